//! The rail: its state (`state` and the files that it imports), and its behaviour: opening, sending and receiving (`transfer`),
//! polling (`progress`, `completions`), handshakes, keepalives, one-sided operations, closing.

mod close;
mod completions;
mod endpoint_lists;
mod handshake;
mod hello_channel;
mod keepalive;
mod local_port;
mod one_sided;
mod open;
mod peer;
mod peers;
mod progress;
mod queues;
mod receive;
mod send;
mod state;
mod transfer;
mod work_id;

pub use state::Rail;
