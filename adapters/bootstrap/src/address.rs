//! The address of a server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The address of a server, as it is written in `TOWLINE_ROOT`.
///
/// ```
/// use towline_bootstrap::Address;
///
/// for text in ["unix:/run/job/root", "unix:@job", "tcp:node0:4000", "tcp:[::1]:4000"] {
///     assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
/// }
/// assert!("node0:4000".parse::<Address>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Address {
    /// A Unix socket in the file system.
    Path(PathBuf),
    /// A Unix socket in Linux's abstract name space. It needs no file, so nothing is left behind when its owner dies.
    Abstract(String),
    /// Host name or address, and port.
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an address: write unix:/path, unix:@name or tcp:host:port");
        match text.split_once(':').ok_or_else(wrong)? {
            ("unix", name) if name.len() > 1 && name.starts_with('@') => Ok(Self::Abstract(name[1..].into())),
            ("unix", path) if path.starts_with('/') => Ok(Self::Path(path.into())),
            ("tcp", address) => {
                let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
                let port: u16 = port.parse().map_err(|_| wrong())?;
                if host.is_empty() || port == 0 { Err(wrong()) } else { Ok(Self::Tcp(address.into())) }
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{name}"),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_addresses_are_refused() {
        for wrong in
            ["", ":", "unix:", "unix:@", "unix:relative", "tcp:host", "tcp::1", "tcp:h:0", "tcp:h:70000", "x:y"]
        {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
