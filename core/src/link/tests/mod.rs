//! Links over a wire on which everything goes wrong.

mod bench;
mod crossed;
mod exact;
mod health;
mod hostile;
mod late;
mod moves;
mod native;
mod recovery;
mod room;
mod wanted;
pub(crate) mod wire;
