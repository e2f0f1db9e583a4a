//! The history of a job, as its programs saw it, and the checker of that history.

mod checker;
mod digest;
mod lives;
mod matching;
mod messages;
pub mod one_sided;
mod record;
mod rma_checker;
mod violation;

pub use checker::check;
pub use digest::{digest, digest_of};
pub use messages::{MODES, Message, Mode, Outcome, RESERVED, Receive, SendFailure};
pub use record::{History, Record};
pub use violation::{RmaViolation, SIZES, Summary, Violation};
