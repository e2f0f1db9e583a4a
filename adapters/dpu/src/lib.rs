//! The matching transport on a DPU. The host posts commands, and the DPU matches, sends and receives. So messages make progress while
//! the host computes and makes no call.
//!
//! [`Transport`] has the calls of the core's transport (`towline_core::mtl::Mtl`). Its messages lie in the buffers of the DPU's
//! window, or in any memory of the host, which is copied to and from these buffers.
//!
//! | module | subject |
//! |---|---|
//! | [`transport`] | the transport |
//! | [`mapping`] | the window's file |
//! | [`heap`] | which parts of the buffers are in use |
//! | [`operations`] | the commands in progress |
//! | [`errors`] | why a device cannot be opened, and why operations are refused or fail |
//!
//! A device whose firmware has failed, was reset, or is silent for too long has failed: all operations in progress end with
//! [`Failure::Device`].

pub mod errors;
pub mod heap;
pub mod mapping;
pub mod operations;
pub mod transport;

pub use errors::{Failure, Lost, OpenError, Refusal};
pub use transport::{Buffer, Comm, Message, Mode, Options, Request, Source, Status, Tag, Transport};
