pub mod control;
pub mod file;
pub mod layout;
pub mod slots;
