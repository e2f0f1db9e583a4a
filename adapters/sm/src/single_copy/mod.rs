pub mod sender;
