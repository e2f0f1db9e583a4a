//! How settings of addresses are read: the ports on which a rail listens, and the address that it publishes.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use towline_settings::{InvalidSetting, Values};

/// Possible texts for [`ports`].
pub const PORTS: Values = Values::Checked("0 for any port, a port, or a range of ports such as 5000-5100", |text| {
    parse_ports(text).map(drop)
});
/// Possible texts for [`advertised`].
pub const ADVERTISED: Values = Values::Checked(ADVERTISED_TEXT, |text| parse_advertised(text, 0).map(drop));

const ADVERTISED_TEXT: &str =
    "empty, or an address and a port such as 192.0.2.1:5000 that has a port after it for each further link";

/// The ports that a text such as `5000-5100` or `0` describes; 0 lets the system choose.
///
/// # Errors
/// A text that is not a port or a range of ports. `variable` names the setting in the error.
pub fn ports(variable: &'static str, text: &str) -> Result<RangeInclusive<u16>, InvalidSetting> {
    parse_ports(text).map_err(|why| InvalidSetting::new(variable, text, why, PORTS.describe::<String>("")))
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| text.trim().parse().map_err(|_| format!("has `{}` where a port must be", text.trim()));
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    if first > last {
        return Err(format!("begins with {first}, which is above its end"));
    }
    if first == 0 && last != 0 {
        return Err("is a range with port 0, which no rank can listen on".into());
    }
    Ok(first..=last)
}

/// The address of a forwarder, which a link publishes instead of its own: the forwarder passes on to the rank all that it
/// receives. Link `n` has the `n`-th port after the port in `text`. `None` for an empty text.
///
/// # Errors
/// A text that is not an address with a port, port 0, and a port with fewer than `link` ports after it. `variable` names the
/// setting in the error.
pub fn advertised(variable: &'static str, text: &str, link: u8) -> Result<Option<SocketAddr>, InvalidSetting> {
    parse_advertised(text, link).map_err(|why| InvalidSetting::new(variable, text, why, ADVERTISED_TEXT))
}

fn parse_advertised(text: &str, link: u8) -> Result<Option<SocketAddr>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let first: SocketAddr = text.parse().map_err(|_| "is not an address and a port".to_string())?;
    if first.port() == 0 {
        return Err("has port 0, to which no rank can connect".into());
    }
    let port = first.port().checked_add(link.into());
    let port = port.ok_or_else(|| format!("has no port for link {link}, since ports end at {}", u16::MAX))?;
    Ok(Some(SocketAddr::new(first.ip(), port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_advertised_at_the_ports_after_the_first() {
        assert_eq!(advertised("A", "", 1), Ok(None));
        assert_eq!(advertised("A", " 10.0.0.1:80 ", 2), Ok(Some("10.0.0.1:82".parse().unwrap())));
        for wrong in ["10.0.0.1", "10.0.0.1:0", "10.0.0.1:65535"] {
            assert!(advertised("A", wrong, 1).is_err_and(|why| why.to_string().contains(wrong)));
        }
    }

    #[test]
    fn ranges_of_ports() {
        assert_eq!(ports("P", "0"), Ok(0..=0));
        assert_eq!(ports("P", " 5000 - 5100 "), Ok(5000..=5100));
        for wrong in ["5000-", "70000", "5100-5000", "0-10", "", "-", "5000-5100-5200"] {
            let why = ports("P", wrong).unwrap_err().to_string();
            assert!(why.contains("P: ") && why.contains(wrong));
        }
    }
}
