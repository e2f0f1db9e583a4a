//! How a thread waits, and how it is woken. Nothing in this folder knows the engine.
//!
//! | file | subject |
//! |---|---|
//! | `futex` | the system call under a parker, or its model under loom |
//! | `parker` | one thread's place to sleep |
//! | `notify` | how a waiting thread is notified: by its parker, or by an eventfd |
//! | `task_waker` | the waker of a thread in `block_on` |
//! | `wait_coordinator` | which of several waiting threads polls, sleeps or is parked |
//! | `clock` | the engine's time stamp |
//! | `idle` | when a waiting thread polls, yields and sleeps |
//! | `wait_set` | the wait handles of all rails, on which a thread sleeps |
//! | `wait_handle` | one descriptor for the wait handles, a timer and a wake-up |
//! | `reactor` | wakes tasks that wait in executors of other libraries |
//! | `tokio` | a task of tokio in place of the reactor's thread |
//! | `no_unwind` | code that must not unwind |

pub(crate) mod clock;
pub(crate) mod futex;
pub(crate) mod idle;
pub(crate) mod no_unwind;
pub(crate) mod notify;
pub(crate) mod parker;
pub(crate) mod reactor;
pub(crate) mod task_waker;
#[cfg(feature = "tokio")]
pub(crate) mod tokio;
pub(crate) mod wait_coordinator;
pub(crate) mod wait_handle;
pub(crate) mod wait_set;
