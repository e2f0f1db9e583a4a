//! The rail: its state, the message path (`transport`), and the rare parts of sending, receiving, waiting and peers.

mod departure;
mod held_frames;
mod incoming;
mod liveness;
mod maintenance;
mod one_sided;
mod outgoing;
mod peer;
mod peers;
mod prefetch;
mod receive;
mod ring_pair;
mod send;
mod single_copy;
mod state;
mod transport;
mod wait;

pub use state::Rail;
