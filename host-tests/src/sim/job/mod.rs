//! Runs a plan: the real engine on every node, in one thread and in virtual time.

mod clock;
mod counts;
mod failures;
mod node;
pub mod rails;
mod recovery;
mod report;
mod run;
mod setting;
mod silent_node;
mod stalls;
mod standstill;
mod state;
mod steps;
mod window_state;
mod windows;

pub use counts::add;
pub use rails::LinkParams;
pub use report::{JobError, Report};
pub use run::{LIVENESS, run};
pub use setting::{Death, Setting, Toggle};
pub use window_state::Windows;
