mod held_frames;
mod outgoing;
mod peers;
mod receive;
mod send;
mod transport;
mod wait;

pub use transport::Rail;
pub(crate) use transport::Stage;
