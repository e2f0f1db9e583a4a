//! The setting that says which connections are encrypted.

use std::fmt;
use std::str::FromStr;

/// Which connections are encrypted. All ranks of a job must use the same setting; ranks with different settings refuse
/// each other.
///
/// ```
/// use towline_crypt::Encrypt;
///
/// let encrypt: Encrypt = "between-hosts".parse().unwrap();
/// assert!(encrypt.applies(false) && !encrypt.applies(true));
/// assert_eq!(encrypt.to_string(), "between-hosts");
/// assert!("perhaps".parse::<Encrypt>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Encrypt {
    /// No connection. Peers authenticate, but their data is not encrypted.
    Off,
    /// Connections between hosts.
    #[default]
    BetweenHosts,
    /// All connections.
    Always,
}

impl Encrypt {
    /// Whether a connection is encrypted. `stays_here` says whether both ends are on this host.
    pub const fn applies(self, stays_here: bool) -> bool {
        match self {
            Self::Off => false,
            Self::BetweenHosts => !stays_here,
            Self::Always => true,
        }
    }

    /// The setting's number on the wire, below 4.
    pub const fn code(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::BetweenHosts => 1,
            Self::Always => 2,
        }
    }

    /// The setting with this number on the wire.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Off),
            1 => Some(Self::BetweenHosts),
            2 => Some(Self::Always),
            _ => None,
        }
    }
}

impl fmt::Display for Encrypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::BetweenHosts => "between-hosts",
            Self::Always => "always",
        })
    }
}

impl FromStr for Encrypt {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Off, Self::BetweenHosts, Self::Always].into_iter().find(|it| it.to_string() == text).ok_or(())
    }
}
