//! Several links as one rail, which goes on while at least one link to a peer works.
//!
//! The engine schedules over many rails by itself, and migrates frames between links. A user of a single rail, such as the BTL
//! face, has nothing of that. A [`Bundle`] does it below such a user: it is one rail over several links of the same kind.
//!
//! - **Sending.** Frames of the eager and the control lane go by the first link that has room. Frames of the bulk lane go by the
//!   links in turn.
//! - **A link goes down.** Other links carry its unacknowledged frames, as they have room. The bundle answers each migrated frame
//!   that arrives, so its user gets each frame once. A peer is lost when its last link is.
//! - **A silent link** is given up if another link proves that the peer is alive.
//! - **Cards.** The card of a bundle is made of the cards of its links (`WIRE.md`). The first links of two sides belong together,
//!   then the second ones, and so on. If one side has more links, it does not use the others to that peer.
//!
//! A device does each operation once, and a link cannot repeat any. So a bundle has no operations of devices, and no single copy.
//! (Counterparts: Linux bonding, `bfo` of Open MPI, multi-rail of UCX.)

mod attributes;
mod card;
mod entries;
mod errors;
mod failover;
mod held;
mod peers;
mod rail;
mod receive;
mod send;
mod state;
#[cfg(test)]
mod tests;

pub use errors::BundleError;
pub use state::{Bundle, Config, Counters};
