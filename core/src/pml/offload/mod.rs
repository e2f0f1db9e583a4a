//! Matching by a device: the engine hands the messages of some communicators to a device that matches, sends and receives them by
//! itself, and keeps a request for each operation.
//!
//! All traffic of a communicator goes through the device or none of it, so that receives from any source have one owner. The
//! device is beside the rails: the engine never mixes its messages with theirs, unless a device fails ([`Fallback`]).

/// Whether devices match messages: the feature `offload`. Without it, a device that an engine is given is not asked, and code behind this
/// constant is not linked.
pub(crate) const ENABLED: bool = cfg!(feature = "offload");

pub(crate) mod device;
mod fallback;
mod requests;

pub use device::{Delivered, DeviceFailure, Ended, Found, Offload, Operation};
pub(crate) use fallback::ANNOUNCEMENT_TAG;
pub use fallback::{ANNOUNCEMENT, Fallback, Held};
