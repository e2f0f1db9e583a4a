//! The rail. `state` and the files that it imports hold the rail's state. Its behaviour is in `open`, `transfer` (sending and
//! receiving), `progress` and `completions` (polling), `handshake`, `keepalive`, `one_sided` and `close`.

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
