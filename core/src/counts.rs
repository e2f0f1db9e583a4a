//! Structures of counters that list themselves, so that a program finds them by name.

/// One of the counters of a structure that [`counters!`](crate::counters) defines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Count {
    /// The name of the field.
    pub name: &'static str,
    /// What is counted: the documentation of the field, which begins with a space.
    pub help: &'static str,
    /// The number so far.
    pub value: u64,
}

/// The number of a counter.
#[cfg(feature = "counters")]
pub type Number = u64;

/// The number of a counter in a build without the feature `counters`: none, in no bytes.
#[cfg(not(feature = "counters"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Number;

#[cfg(not(feature = "counters"))]
impl Number {
    /// Counts nothing.
    #[must_use]
    pub const fn wrapping_add(self, _: u64) -> Self {
        self
    }
}

/// The number so far, 0 in a build without the feature `counters`.
pub const fn value(number: Number) -> u64 {
    #[cfg(feature = "counters")]
    return number;
    #[cfg(not(feature = "counters"))]
    {
        let Number = number;
        0
    }
}

/// Defines a structure of counters, with a function that lists them in the order of the fields. What the list says of a counter is
/// the documentation of its field.
///
/// ```
/// towline_core::counters! {
///     /// Events of a lighthouse.
///     #[derive(Clone, Copy, Default)]
///     pub struct Counters {
///         /// Ships that
///         /// passed.
///         pub ships: u64,
///         /// Lamps that were exchanged.
///         pub lamps: u64,
///     }
/// }
///
/// let counters = Counters { ships: 3, lamps: 1 };
/// assert_eq!(counters.list().map(|count| (count.name, count.value)), [("ships", 3), ("lamps", 1)]);
/// assert_eq!(counters.list()[0].help, " Ships that passed.");
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$outer:meta])*
        pub struct $name:ident { $($(#[doc = $help:literal])+ pub $field:ident: u64,)+ }
    ) => {
        $(#[$outer])*
        pub struct $name { $($(#[doc = $help])+ pub $field: $crate::counts::Number,)+ }

        impl $name {
            /// All counters, in the order of the fields.
            pub const fn list(&self) -> [$crate::counts::Count; [$(stringify!($field)),+].len()] {
                [$($crate::counts::Count {
                    name: stringify!($field),
                    help: concat!($($help),+),
                    value: $crate::counts::value(self.$field),
                }),+]
            }
        }
    };
}
