//! Macros for log lines. They use `defmt`, the `log` crate, or nothing, as the features of the crate say.
//!
//! Callers use `trace!`, `debug!` and `warn!` with plain `{}` placeholders, which both crates accept. Without either feature the
//! arguments are type-checked, and compile to nothing.

#[cfg(all(feature = "defmt", feature = "log"))]
compile_error!("the features `defmt` and `log` of towline-core exclude each other: choose one");

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

/// Implements `defmt::Format` by [`Debug`](core::fmt::Debug), for types with fields that have no `Format`: such as numbers of
/// `zerocopy`, and accelerators.
macro_rules! format_by_debug {
    ($($type:ty),+ $(,)?) => {
        $(
            #[cfg(feature = "defmt")]
            impl defmt::Format for $type {
                fn format(&self, f: defmt::Formatter<'_>) {
                    defmt::write!(f, "{}", defmt::Debug2Format(self));
                }
            }
        )+
    };
}
