//! Why a rail could not be opened.

use std::fmt;
use std::io;

use towline_settings::InvalidSetting;

use crate::advice::advice;

/// A network rail could not be opened.
#[non_exhaustive]
pub enum SetupError {
    /// No interface that is up is allowed by the include and exclude lists. Change the lists.
    NoInterface,
    /// A setting cannot be kept on this host.
    Setting(InvalidSetting),
    /// The operating system refused the operation that the text names. Raise the system's limits, or set other ports.
    System(&'static str, io::Error),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface => {
                f.write_str("the include and exclude lists allow no network interface that is up: change these lists")
            }
            Self::Setting(why) => why.fmt(f),
            Self::System(what, error) => write!(f, "cannot {what}: {error}{}", advice(error)),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoInterface => None,
            Self::Setting(why) => Some(why),
            Self::System(_, error) => Some(error),
        }
    }
}

towline_core::debug_as_display!(SetupError);
