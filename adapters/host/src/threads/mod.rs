//! How threads use an engine: the cell or the lock around it, and how they wait.
//!
//! | file | subject |
//! |---|---|
//! | `lock` | the functions of every lock around an engine, and how its holder waits |
//! | `shared_state` | the state of an engine that several threads share |
//! | `shared_guard` | the engine while one of these threads holds the lock: progress, sleep, notifications |
//! | `progress_thread` | the thread that makes progress while no other thread does |
//! | `progress_policy` | whether there is such a thread |
//! | `shared` | the lock of [`Multiple`](levels::Multiple) threads |
//! | `engine_cell` | the cell of an engine that one thread uses |
//! | `exclusive` | that cell, or a lock where rails need it, for a [`Single`](levels::Single) thread |
//! | `executor` | `block_on` for both |
//! | `levels` | the public thread levels |

pub(crate) mod engine_cell;
pub(crate) mod exclusive;
pub(crate) mod executor;
pub(crate) mod levels;
pub(crate) mod lock;
pub(crate) mod progress_policy;
pub(crate) mod progress_thread;
pub(crate) mod shared;
pub(crate) mod shared_guard;
pub(crate) mod shared_state;
