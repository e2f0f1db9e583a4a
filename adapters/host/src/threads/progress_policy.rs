//! Whether a context has a progress thread, and why.

use towline_settings::{InvalidSetting, entries};

use crate::settings::config::Config;
use crate::transports::rails::AnyRail;

const VARIABLE: &str = "TOWLINE_PROGRESS_THREAD";

/// Whether to start a progress thread: see [`Config::progress_thread`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgressThreadPolicy {
    /// Only where a rail loses frames.
    Auto,
    Always,
    Never,
    /// There can be none: a rail of the program's own cannot leave its thread.
    Unavailable,
}

impl ProgressThreadPolicy {
    /// As configured. `bound`: the context has a rail of the program's own that cannot leave its thread.
    pub fn new(config: &Config, bound: bool) -> Result<Self, InvalidSetting> {
        let invalid = |value: &str, why, possible| InvalidSetting::new(VARIABLE, value, why, possible);
        let policy = match config.progress_thread.as_str() {
            "auto" => Self::Auto,
            "always" => Self::Always,
            "never" => Self::Never,
            other => return Err(invalid(other, "is not a known value", "always, never or auto")),
        };
        match policy {
            Self::Always if bound => {
                let why = "is impossible: a rail of the program's own is bound to its thread";
                let possible = "never or auto; or the program adds its rail by `Builder::rail_per_context`";
                Err(invalid("always", why, possible))
            }
            Self::Auto if bound => Ok(Self::Unavailable),
            _ => Ok(policy),
        }
    }

    /// Whether the rails can rely on a progress thread. This is asked before they are opened.
    pub fn is_expected(self, config: &Config) -> bool {
        match self {
            Self::Auto => entries(&config.transports).iter().any(|name| name == "udp"),
            Self::Always => true,
            Self::Never | Self::Unavailable => false,
        }
    }

    /// Whether to start a progress thread for these rails, and a line about it for the report.
    pub fn resolve(self, rails: &[AnyRail]) -> (bool, Option<String>) {
        let lossy = rails.iter().any(|rail| matches!(rail, AnyRail::Udp(_)));
        let needed = "udp loses frames, which must be sent again, and detects lost hosts by heartbeats";
        let missed = "over udp, a lost frame is sent again only while its sender is in a call of the library, and a lost host \
                      is not detected";
        match (self, lossy) {
            (Self::Auto, true) => (true, Some(format!("progress thread: yes: {needed}"))),
            (Self::Auto, false) => (false, None),
            (Self::Always, _) => (true, Some("progress thread: yes, as asked for".into())),
            (Self::Never, true) => (false, Some(format!("progress thread: no, as asked for: {missed}"))),
            (Self::Unavailable, true) => (
                false,
                Some(format!("progress thread: no: a rail of the program's own is bound to its thread: {missed}")),
            ),
            (Self::Never | Self::Unavailable, false) => (false, None),
        }
    }
}
