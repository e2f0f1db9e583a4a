//! The engine over the real rails. They stand on the standard library, which panics in places of its own, so a link
//! cannot tell; but a panic brings the name of its source file into the program, and none may be the core's.
//!
//! Never run.

use towline_core::arena::Arena;
use towline_core::mtl::Mtl;
use towline_core::pml::{Rails, SetUpError};
use towline_panic_check::engine::{config, transport};
use towline_panic_check::{any, loopback};

fn over<R: Rails>(rails: R) -> Result<(), SetUpError> {
    let mut room = [0; 4096];
    transport(Mtl::new(config(), any(0), &mut Arena::new(&mut room), rails)?);
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
