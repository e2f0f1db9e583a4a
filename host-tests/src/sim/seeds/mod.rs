//! Jobs by seed: a random size, random limits, and a random set of faults.

mod disconnections;
mod families;
mod faults;
mod limits;
mod random_faults;

pub use families::{MESSAGES, POOLS, describe, reliable, smallest_pools};
pub use random_faults::{SingleFault, faulty, only};
