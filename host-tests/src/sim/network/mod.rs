//! The network of the simulator: rails that delay, refuse, reorder, lose and change frames, in virtual time.
//!
//! Types are below, behaviour is above: [`faults`] contains the possible faults, `packet` and `endpoint` the frames in flight,
//! `state` the whole network, `transit`, `connections` and `device_work` its behaviour, and [`Net`] and [`SimRail`] are its
//! interfaces.

mod connections;
mod device_work;
mod devices;
mod endpoint;
pub mod faults;
mod net;
mod packet;
mod rail;
mod state;
mod trace;
mod transit;

pub use net::Net;
pub use rail::SimRail;
