//! Environment variables that look like settings and are none.

use towline_settings::nearest;

use crate::settings::config::Config;
use crate::settings::warn::warn;

/// The beginning of the names of all variables that Towline reads.
const PREFIX: &str = "TOWLINE_";
/// The beginning of the names of variables that tests of Towline use. They are never settings.
const OF_TESTS: &str = "TOWLINE_TEST_";
/// Variables of tools and of the firmware, which libraries ignore.
const OF_TOOLS: [&str; 5] = [
    "TOWLINE_TRACE",
    "TOWLINE_SEEDS",
    "TOWLINE_MPI_COUNTERS",
    "TOWLINE_FIRMWARE_AWAKE_US",
    "TOWLINE_FIRMWARE_SLEEP_MS",
];
/// The names of unknown variables that the launcher has reported, with commas between them. It sets this variable so that ranks
/// do not report them again.
const REPORTED: &str = "TOWLINE_REPORTED";

/// Variables of the environment whose names begin with `TOWLINE_`, in any case, and that this version does not know.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UnknownVariable {
    /// Its name.
    pub name: String,
    /// The name of the setting that was probably meant.
    pub nearest: Option<&'static str>,
}

impl std::fmt::Display for UnknownVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what(), self.advice())
    }
}

impl UnknownVariable {
    /// What happened.
    pub(crate) fn what(&self) -> String {
        format!("{} is set, but this version of Towline has no such setting, so it has no effect", self.name)
    }

    /// What to do.
    pub(crate) fn advice(&self) -> String {
        match self.nearest {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "unset it, or see `towline info` for all settings".into(),
        }
    }
}

impl Config {
    /// The variables among `names` that look like settings of Towline, and are none: each is probably a mistake. Worlds and
    /// launchers warn of them. They are errors where [`strict`](Self::strict) is set. Otherwise a variable of a later version
    /// does no harm in an earlier one.
    ///
    /// ```
    /// let unknown = towline::Config::unknown_variables(["PATH", "TOWLINE_SPINN_US"]);
    /// assert_eq!((unknown.len(), unknown[0].nearest), (1, Some("TOWLINE_SPIN_US")));
    /// ```
    pub fn unknown_variables<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Vec<UnknownVariable> {
        let settings = Self::default().settings_from(|_| None).unwrap_or_default();
        let known = || {
            let settings = settings.iter().map(|setting| setting.variable);
            settings.chain(towline_bootstrap::VARIABLES)
        };
        let is_meant_for_us = |name: &str| {
            name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
                && !name.starts_with(OF_TESTS)
                && !OF_TOOLS.contains(&name)
                && name != REPORTED
        };
        let mut unknown: Vec<UnknownVariable> = Vec::new();
        for name in names {
            let name = name.as_ref();
            if !is_meant_for_us(name) || known().any(|known| known == name) {
                continue;
            }
            // All names have the same beginning, which says nothing about what is meant.
            let rest = |name: &'static str| name.strip_prefix(PREFIX).unwrap_or(name);
            let meant = name.get(PREFIX.len()..).and_then(|name| nearest(name, known().map(rest)));
            let nearest = meant.and_then(|meant| known().find(|known| rest(known) == meant));
            unknown.push(UnknownVariable { name: name.into(), nearest });
        }
        unknown.sort_by(|one, other| one.name.cmp(&other.name));
        unknown
    }

    /// The variable by which a launcher says to its ranks which unknown variables it has reported, and its value.
    ///
    /// ```
    /// let unknown = towline::Config::unknown_variables(["TOWLINE_SPINN_US"]);
    /// let (name, value) = towline::Config::reported_variables(&unknown);
    /// assert_eq!((name, value.as_str()), ("TOWLINE_REPORTED", "TOWLINE_SPINN_US"));
    /// ```
    pub fn reported_variables(unknown: &[UnknownVariable]) -> (&'static str, String) {
        let names: Vec<_> = unknown.iter().map(|unknown| unknown.name.as_str()).collect();
        (REPORTED, names.join(","))
    }
}

impl Config {
    /// Warns of the [unknown variables](Self::unknown_variables) of this process, as the first world of the process does. The
    /// process does not warn of them again. A variable that a launcher has reported is left out.
    ///
    /// ```
    /// towline::Config::warn_of_unknown_variables();
    /// ```
    pub fn warn_of_unknown_variables() {
        unknown_here().iter().for_each(|unknown| warn(&unknown.to_string()));
    }
}

/// The unknown variables of this process that no launcher and no tool has reported.
pub(crate) fn unknown_here() -> Vec<UnknownVariable> {
    let reported = std::env::var(REPORTED).unwrap_or_default();
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut unknown = Config::unknown_variables(names);
    unknown.retain(|unknown| !reported.split(',').any(|name| name == unknown.name));
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_variables_that_look_like_settings_are_named_with_the_nearest_one() {
        let of = |name: &str| Config::unknown_variables([name]).first().map(|unknown| unknown.nearest);
        for known in ["TOWLINE_SPIN_US", "TOWLINE_RANK", "TOWLINE_LOCAL", "TOWLINE_TEST_WAYS", "TOWLINE_TRACE", "PATH"]
        {
            assert_eq!(of(known), None, "{known}");
        }
        for (wrong, meant) in [
            ("TOWLINE_SPINN_US", "TOWLINE_SPIN_US"),
            ("towline_spin_us", "TOWLINE_SPIN_US"),
            ("TOWLINE_TRANSPORT", "TOWLINE_TRANSPORTS"),
            ("TOWLINE_TCP_EAGER_LIMIT", "TOWLINE_TCP_EAGER_LIMIT_BYTES"),
            ("TOWLINE_PEER_TIMEOUT", "TOWLINE_PEER_TIMEOUT_MS"),
            ("TOWLINE_SM_SINGLECOPY_BYTES", "TOWLINE_SM_SINGLE_COPY_BYTES"),
            ("TOWLINE_ENCRYPTION", "TOWLINE_ENCRYPT"),
        ] {
            assert_eq!(of(wrong), Some(Some(meant)), "{wrong}");
        }
        assert_eq!(of("TOWLINE_"), Some(None));
        assert_eq!(of("TOWLINE_X7"), Some(None));
    }
}
