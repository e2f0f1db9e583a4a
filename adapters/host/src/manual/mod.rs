//! The manual of Towline, chapter by chapter.
//!
//! | chapter | it answers |
//! |---|---|
//! | [getting started](getting_started) | How do I build, start and end a job? |
//! | [other launchers](launchers) | How do I start under mpirun, prterun or srun, or by a runtime of my own? |
//! | [messages and matching](messages) | Which receive gets which message? When may I reuse a buffer? |
//! | [collective operations](collectives) | How do I combine or exchange data of all ranks? |
//! | [layouts] | How do I send a column, or fields of a record, without a copy of my own? |
//! | [one-sided operations](one_sided) | How do I read and change the memory of another rank? |
//! | [threads and async](threads) | Which of the four ways to use threads suits my program? |
//! | [transports] | Which transport is used, and how do I choose one? |
//! | [when it does not work](when_it_does_not_work) | The job hangs, fails or is slow: what is the cause, and which command shows it? |
//! | [faults] | What happens when a process, a link or a host fails, and how soon? |
//! | [security] | Who can read, change or forge what? |
//! | [tuning] | Which settings are there, and which ones matter? |
//! | [measuring] | How fast is it here, and how fast could it be? |
//! | [Open MPI](mpi) | How do I run my MPI program over Towline? |
//! | [runtimes] | How do I link Towline into a runtime, in Rust or C? |
//! | [glossary] | What is this term called in Open MPI, UCX and libfabric? |
//!
//! The items of the crate have documentation of their own: start at [`World`](crate::World) and
//! [`Communicator`](crate::Communicator). In the repository, `core/ARCHITECTURE.md` describes how the library is built, and
//! `core/WIRE.md` the bytes on the wire.

pub mod collectives;
pub mod faults;
pub mod getting_started;
pub mod glossary;
pub mod launchers;
pub mod layouts;
pub mod measuring;
pub mod messages;
pub mod mpi;
pub mod one_sided;
pub mod runtimes;
pub mod security;
pub mod threads;
pub mod transports;
pub mod tuning;
pub mod when_it_does_not_work;

#[cfg(test)]
mod tests;
