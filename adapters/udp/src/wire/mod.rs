pub mod card;
pub mod datagram;
pub mod hello;
