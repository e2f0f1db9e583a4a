//! The rail kit over the loopback rail.

use towline_host_tests::kit::loopback::Loopback;
use towline_host_tests::rail_suite;

mod small {
    use super::*;
    rail_suite!(Loopback { slots: 4, frame: 80 });
}

mod large {
    use super::*;
    rail_suite!(Loopback { slots: 64, frame: 65_536 });
}

/// The suite for matching transports.
mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(Loopback { slots: 16, frame: 4096 });
}

/// The suite for one-sided operations, which are emulated.
mod one_sided {
    use super::*;
    towline_host_tests::one_sided_suite!(Loopback { slots: 16, frame: 4096 });
}
