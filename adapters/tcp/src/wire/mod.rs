pub mod framing;
pub mod hello;
