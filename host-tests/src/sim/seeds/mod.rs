//! Jobs by seed: a random shape, random limits, a random set of faults.

mod disconnections;
mod families;
mod faults;
mod limits;

pub use families::{MESSAGES, POOLS, SingleFault, describe, faulty, only, reliable, smallest_pools};
