//! What a job did, as its programs saw it, and the checker that judges it.

mod checker;
mod digest;
mod ledger;
mod lives;
mod matching;
mod messages;
pub mod one_sided;
mod record;
mod violation;

pub use checker::check;
pub use digest::{digest, digest_of};
pub use messages::{Failed, MODES, Message, Mode, Outcome, RESERVED, Receive};
pub use record::{History, Record};
pub use violation::{SIZES, Summary, Violation, Wrong};
