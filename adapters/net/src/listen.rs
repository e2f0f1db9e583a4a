//! How settings of addresses are read: the ports on which a rail listens, and the address that it publishes.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use towline_settings::InvalidSetting;

/// The ports that a text such as `5000-5100` or `0` describes; 0 lets the system choose.
///
/// # Errors
/// A text that is not a port or a range of ports. `variable` names the setting in the error.
pub fn ports(variable: &'static str, text: &str) -> Result<RangeInclusive<u16>, InvalidSetting> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => Ok(first..=last),
        _ => Err(InvalidSetting::new(variable, text, "a port or a range of ports such as 5000-5100")),
    }
}

/// The address of a forwarder, which a link publishes instead of its own: the forwarder passes on to the rank all that it
/// receives. Link `n` has the `n`-th port after the port in `text`. `None` for an empty text.
///
/// # Errors
/// A text that is not an address with a port, port 0, and a port with fewer than `link` ports after it. `variable` names the
/// setting in the error.
pub fn advertised(variable: &'static str, text: &str, link: u8) -> Result<Option<SocketAddr>, InvalidSetting> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |expected| InvalidSetting::new(variable, text, expected);
    let first: SocketAddr = text.trim().parse().map_err(|_| invalid("an address and a port such as 192.0.2.1:5000"))?;
    let port = first.port().checked_add(link.into()).filter(|_| first.port() != 0);
    let port = port
        .ok_or_else(|| invalid("an address with a port that is not 0 and has a port after it for each further link"))?;
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
        for wrong in ["5000-", "70000"] {
            let why = ports("P", wrong).unwrap_err().to_string();
            assert!(why.contains("P: ") && why.contains(wrong));
        }
    }
}
