//! The one place that chooses where log lines go: `defmt`, the `log` crate, or nowhere.
//!
//! Call sites use `trace!`, `debug!`, `info!`, `warn!` and `error!` with plain `{}` placeholders, which all three
//! accept. With neither feature the arguments are still type-checked, then compiled to nothing.

#[cfg(all(feature = "defmt", feature = "log"))]
compile_error!("features `defmt` and `log` of towline-core exclude each other: choose one");

#[allow(unused_macros)]
macro_rules! emit {
    ($level:ident, $($arg:expr),* $(,)?) => {{
        #[cfg(feature = "defmt")]
        ::defmt::$level!($($arg),*);
        #[cfg(all(feature = "log", not(feature = "defmt")))]
        ::log::$level!($($arg),*);
        #[cfg(not(any(feature = "defmt", feature = "log")))]
        if false {
            $(let _ = &$arg;)*
        }
    }};
}
#[allow(unused_macros)]
macro_rules! trace { ($($arg:expr),* $(,)?) => { emit!(trace, $($arg),*) } }
#[allow(unused_macros)]
macro_rules! debug { ($($arg:expr),* $(,)?) => { emit!(debug, $($arg),*) } }
#[allow(unused_macros)]
macro_rules! warn { ($($arg:expr),* $(,)?) => { emit!(warn, $($arg),*) } }
