//! The network of the simulator: rails that delay, refuse, reorder, lose and change frames, in virtual time.
//!
//! Types are below, behaviour is above: [`faults`] says what may go wrong, `packet` and `endpoint` hold what is under way, `state` holds
//! the whole network, `transit`, `connections` and `device_work` say what happens to it, and [`Net`] and [`SimRail`] are its faces.

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
