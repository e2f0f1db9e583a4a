//! Jobs by seed: a random shape, random limits, a random set of faults.

mod cuts;
mod families;
mod faults;
mod limits;

pub use families::{MESSAGES, POOLS, Single, describe, faulty, least, only, setting};
