//! The engine over the real rails. They use the standard library, which has panics of its own, so a failing link would not
//! show whose panic it is. But each reachable panic puts the name of its source file into the program, and none of these
//! files may belong to the core.
//!
//! The program is never run.

use towline_core::arena::Arena;
use towline_core::mtl::Mtl;
use towline_core::pml::{Rails, SetUpError};
use towline_panic_check::engine::{config, transport};
use towline_panic_check::{any, loopback};

fn over<R: Rails>(rails: R) -> Result<(), SetUpError> {
    let mut memory = [0; 4096];
    transport(Mtl::new(config(), any(0), &mut Arena::new(&mut memory), rails)?);
    Ok(())
}

fn main() {
    if let Ok(mut rail) = towline_sm::Rail::open(any(towline_sm::Config::new(0, 0, 0))) {
        loopback::rail(&mut rail);
        let _ = over([rail]);
    }
    let tcp = || towline_tcp::Rail::new(any(towline_tcp::Config::new(0, 0, towline_tcp::JobKey::new(any([0; 32])))));
    if let (Ok(mut one), Ok(two), Ok(three)) = (tcp(), tcp(), tcp()) {
        loopback::rail(&mut one);
        let _ = over([one, two, three]);
    }
    #[cfg(feature = "bad")]
    towline_panic_check::keep(towline_panic_check::bytes(&mut [0; 16])[any(3)]);
}
