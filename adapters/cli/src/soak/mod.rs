//! `towline soak`: runs random jobs with faults of every kind until one fails, with real processes or in the simulator.
//!
//! Both need the library of `host-tests`, which contains the simulator and the relays. Without the feature `sim` they
//! are left out.

use std::process::ExitCode;

mod arguments;
#[cfg(feature = "sim")]
mod faults;
#[cfg(feature = "sim")]
mod job;
#[cfg(feature = "sim")]
mod limits;
#[cfg(feature = "sim")]
mod process_handle;
#[cfg(feature = "sim")]
mod processes;
#[cfg(feature = "sim")]
pub mod rank;
#[cfg(feature = "sim")]
mod resources;
#[cfg(feature = "sim")]
mod shared_window;
#[cfg(feature = "sim")]
mod simulator;
#[cfg(feature = "sim")]
mod traffic;

pub use arguments::Arguments;

#[cfg(not(feature = "sim"))]
pub fn run(_: &Arguments) -> ExitCode {
    eprintln!("towline: this program was built without the feature `sim`, which `towline soak` needs");
    ExitCode::FAILURE
}

/// Runs the jobs. Returns the exit status.
#[cfg(feature = "sim")]
pub fn run(arguments: &Arguments) -> ExitCode {
    if arguments.sim { simulator::run(arguments) } else { processes::run(arguments) }
}
