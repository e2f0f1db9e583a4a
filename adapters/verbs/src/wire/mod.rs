pub mod card;
pub mod hello;
pub mod remote_key;
