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
//! | `no_unwind` | code that must not unwind |

pub(crate) mod clock;
pub(crate) mod futex;
pub(crate) mod idle;
pub(crate) mod no_unwind;
pub(crate) mod notify;
pub(crate) mod parker;
pub(crate) mod task_waker;
pub(crate) mod wait_coordinator;
pub(crate) mod wait_set;
