//! Tests of links over a wire with faults of all kinds.

mod crossed;
mod exact;
mod health;
mod hostile;
mod late;
mod mesh;
mod migration;
mod nack;
mod native;
mod recovery;
mod room;
pub(crate) mod wire;
