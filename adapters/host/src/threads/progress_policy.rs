//! Whether a progress thread looks after an engine, and why.

use crate::errors::setup::SetupError;
use crate::settings::config::{Config, entries};
use crate::transports::rails::AnyRail;

/// What is wished for: see [`Config::progress_thread`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attendance {
    /// Where a rail loses frames.
    Auto,
    Always,
    Never,
    /// None can be had: a rail of the program's own cannot leave its thread.
    Impossible,
}

impl Attendance {
    /// As configured; `bound`: to the thread of a rail of the program's own.
    pub fn wished(config: &Config, bound: bool) -> Result<Self, SetupError> {
        let wish = match config.progress_thread.as_str() {
            "auto" => Self::Auto,
            "always" => Self::Always,
            "never" => Self::Never,
            other => return Err(SetupError::Variable { variable: "TOWLINE_PROGRESS_THREAD", value: other.into() }),
        };
        Ok(if bound && wish != Self::Never { Self::Impossible } else { wish })
    }

    /// Whether rails that are to be opened can count on it.
    pub fn is_expected(self, config: &Config) -> bool {
        match self {
            Self::Auto => entries(&config.transports).iter().any(|name| name == "udp"),
            Self::Always => true,
            Self::Never | Self::Impossible => false,
        }
    }

    /// Whether there is to be one over these rails, and what is to be told of that.
    pub fn settled(self, rails: &[AnyRail]) -> (bool, Option<String>) {
        let lossy = rails.iter().any(|rail| matches!(rail, AnyRail::Udp(_)));
        let needed = "udp loses frames, which have to be sent again, and tells of lost hosts by heartbeats";
        let missed = "over udp, what is lost comes again only while its sender is in a call of the library, and a lost host is \
                      not noticed";
        match (self, lossy) {
            (Self::Auto, true) => (true, Some(format!("progress thread: yes: {needed}"))),
            (Self::Auto, false) => (false, None),
            (Self::Always, _) => (true, Some("progress thread: yes, as asked for".into())),
            (Self::Never, true) => (false, Some(format!("progress thread: no, as asked for: {missed}"))),
            (Self::Impossible, true) => (
                false,
                Some(format!("progress thread: no: a rail of the program's own is bound to its thread: {missed}")),
            ),
            (Self::Never | Self::Impossible, false) => (false, None),
        }
    }
}
