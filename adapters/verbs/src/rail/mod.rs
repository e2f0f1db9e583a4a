mod handshake;
mod one_sided;
mod progress;
mod state;
mod transfer;

pub use state::Rail;
