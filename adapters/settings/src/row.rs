//! A setting as `towline info` shows it, and the error for an invalid value.

use std::error::Error;
use std::fmt;

/// One setting as it is in force. `towline info` lists all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Setting {
    /// The path of its field in the configuration, such as `tcp.ports`.
    pub name: &'static str,
    /// The environment variable that sets it.
    pub variable: &'static str,
    /// Its value, in [`unit`](Self::unit).
    pub value: String,
    /// The value that it has if it is not set.
    pub default: String,
    /// Its unit, such as `B` or `ms`; empty for names and plain numbers.
    pub unit: &'static str,
    /// Where its value comes from.
    pub origin: Origin,
    /// A description of its effect.
    pub help: &'static str,
}

impl Setting {
    /// A row, for the macro [`settings!`](crate::settings).
    #[doc(hidden)]
    pub const fn new(
        (name, variable, unit, help): (&'static str, &'static str, &'static str, &'static str),
        origin: Origin,
        value: String,
        default: String,
    ) -> Self {
        Self { name, variable, value, default, unit, origin, help }
    }
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// The setting has its default value.
    Default,
    /// The program gave it a value that is not the default.
    Program,
    /// The setting's environment variable, which takes precedence over the program.
    Environment,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Program => "program",
            Self::Environment => "environment",
        })
    }
}

/// The value of a setting is invalid. The user who set it has to correct it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The environment variable that sets it.
    pub variable: &'static str,
    /// The invalid value.
    pub value: String,
    /// A description of valid values.
    pub expected: &'static str,
}

impl InvalidSetting {
    /// The error for the setting of `variable`, whose `value` is not `expected`.
    pub fn new(variable: &'static str, value: &str, expected: &'static str) -> Self {
        Self { variable, value: value.to_string(), expected }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}` is not {}", self.variable, self.value, self.expected)
    }
}

impl Error for InvalidSetting {}
