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
    /// A description of its possible values. Other settings may restrict them further.
    pub possible: String,
    /// Where its value comes from.
    pub origin: Origin,
    /// A description of its effect.
    pub help: &'static str,
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

/// The value of a setting cannot be kept: it is impossible, or impossible on this machine, or beside another setting. Whoever set
/// it, the user or the program, has to correct it.
///
/// ```
/// use towline_settings::InvalidSetting;
///
/// let why = InvalidSetting::new("TOWLINE_LINKS", "1000", "is above 64", "1 to 64");
/// assert_eq!(why.to_string(), "TOWLINE_LINKS: `1000` is above 64; possible: 1 to 64");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidSetting {
    /// The environment variable that sets it.
    pub variable: &'static str,
    /// The invalid value.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
    /// The reason, as the end of a sentence that begins with the value.
    pub why: String,
    /// A description of possible values.
    pub possible: String,
}

impl InvalidSetting {
    /// The error for the setting of `variable`, whose `value` from the environment cannot be kept. `why` is the end of a sentence
    /// that begins with the value, such as `is above 64`; `possible` describes the possible values.
    pub fn new(
        variable: &'static str,
        value: impl ToString,
        why: impl Into<String>,
        possible: impl Into<String>,
    ) -> Self {
        let (why, possible) = (why.into(), possible.into());
        Self { variable, value: value.to_string(), origin: Origin::Environment, why, possible }
    }

    /// The same error for a value that comes from elsewhere.
    #[must_use]
    pub fn with_origin(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { variable, value, origin, why, possible } = self;
        let by = match origin {
            Origin::Environment => "",
            Origin::Program => ", which the program has set,",
            Origin::Default => ", the default,",
        };
        write!(f, "{variable}: `{value}`{by} {why}; possible: {possible}")
    }
}

/// The text of [`Display`](fmt::Display), since `main` prints an error this way.
impl fmt::Debug for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for InvalidSetting {}
