//! Why a rail could not be made.

use std::{fmt, io};

use towline_net::advice;
use towline_settings::InvalidSetting;

/// A rail could not be made.
#[non_exhaustive]
pub enum SetupError {
    /// This build contains no verbs. Build with the feature `verbs` (of this crate: `device`).
    NotBuiltIn,
    /// libibverbs cannot be loaded. Install it (rdma-core).
    NoLibrary,
    /// This host has no device.
    NoDevice,
    /// A setting cannot be kept with this device.
    Setting(InvalidSetting),
    /// There are devices, but no port that is up, selected and has an address; the text gives the reason for each port.
    NoPort(String),
    /// The device or the operating system refused the named operation.
    Refused(&'static str, io::Error),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuiltIn => f.write_str("verbs are not built in: build with `--features verbs`"),
            Self::NoLibrary => f.write_str("libibverbs.so.1 cannot be loaded: install the libraries of rdma-core"),
            Self::NoDevice => f.write_str(
                "this host has no RDMA device, or its driver is not loaded: load it, or use another transport",
            ),
            Self::Setting(why) => why.fmt(f),
            Self::NoPort(why) => write!(f, "no port can be used: {why}"),
            Self::Refused(what, why) if why.raw_os_error() == Some(libc::ENOMEM) => {
                write!(f, "cannot {what}: {why}; the limit of locked memory (ulimit -l) may be too low")
            }
            Self::Refused(what, why) => write!(f, "cannot {what}: {why}{}", advice(why)),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_, why) => Some(why),
            _ => None,
        }
    }
}

towline_core::debug_as_display!(SetupError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let full = SetupError::Refused("register memory", io::Error::from_raw_os_error(libc::ENOMEM));
        assert!(full.to_string().contains("ulimit -l"), "{full}");
        assert!(SetupError::NotBuiltIn.to_string().contains("--features verbs"));
        assert!(SetupError::NoLibrary.to_string().contains("install"));
        assert!(SetupError::NoPort("rxe0:1 is not up".into()).to_string().contains("rxe0:1 is not up"));
    }
}
