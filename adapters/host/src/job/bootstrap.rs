//! Which bootstrap brings this process into its job.

use std::fmt;

use towline_bootstrap::Environment;

use crate::settings::config::Config;

/// How a process joins its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bootstrap {
    /// No launcher has started it, so it is a job of its own.
    Alone,
    /// By the library's own bootstrap: under `towline run`, or by variables that somebody has set.
    Own,
    /// By a PMIx launcher, such as mpirun, prterun or srun.
    Pmix,
}

/// The bootstrap that a process of this environment uses, and why: [`Config::chosen_bootstrap`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ChosenBootstrap {
    /// The bootstrap.
    pub bootstrap: Bootstrap,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for ChosenBootstrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.bootstrap {
            Bootstrap::Alone => "a job of its own",
            Bootstrap::Own => "own",
            Bootstrap::Pmix => "pmix",
        };
        write!(f, "{name}: {}", self.why)
    }
}

impl Config {
    /// The bootstrap that a program with this configuration would use here, and why. The environment has been read into the
    /// configuration [before](Self::with_environment). Whether the launcher answers is not tried.
    ///
    /// ```
    /// let config = towline::Config::default().with_environment()?;
    /// println!("{}", config.chosen_bootstrap()); // a job of its own: no launcher has started this process
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn chosen_bootstrap(&self) -> ChosenBootstrap {
        choose(&self.bootstrap, Environment::is_set(), towline_pmix::is_started())
    }
}

/// The choice by the setting, and by what the variables of both bootstraps say.
fn choose(setting: &str, own: bool, pmix: bool) -> ChosenBootstrap {
    let (bootstrap, why) = match (setting, own, pmix) {
        ("pmix", ..) => (Bootstrap::Pmix, "TOWLINE_BOOTSTRAP is pmix"),
        (_, true, false) => (Bootstrap::Own, "TOWLINE_RANK or another variable of a job is set"),
        ("own", true, _) => {
            (Bootstrap::Own, "TOWLINE_BOOTSTRAP is own, and TOWLINE_RANK or another variable of a job is set")
        }
        ("own", false, _) => {
            (Bootstrap::Alone, "TOWLINE_BOOTSTRAP is own, and no variable of a job, such as TOWLINE_RANK, is set")
        }
        (_, true, true) => {
            (Bootstrap::Own, "TOWLINE_RANK or another variable of a job is set, which counts before PMIX_RANK")
        }
        (_, false, true) => {
            (Bootstrap::Pmix, "PMIX_NAMESPACE and PMIX_RANK are set, and no variable of a job, such as TOWLINE_RANK")
        }
        (_, false, false) => {
            (Bootstrap::Alone, "no launcher has started this process: neither TOWLINE_RANK nor PMIX_RANK is set")
        }
    };
    ChosenBootstrap { bootstrap, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_counts_first_then_the_own_variables_then_those_of_pmix() {
        let kind = |setting, own, pmix| choose(setting, own, pmix).bootstrap;
        for (own, pmix) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(kind("pmix", own, pmix), Bootstrap::Pmix);
            assert_eq!(kind("own", own, pmix), if own { Bootstrap::Own } else { Bootstrap::Alone });
        }
        assert_eq!(kind("auto", true, true), Bootstrap::Own);
        assert_eq!(kind("auto", true, false), Bootstrap::Own);
        assert_eq!(kind("auto", false, true), Bootstrap::Pmix);
        assert_eq!(kind("auto", false, false), Bootstrap::Alone);
        assert!(choose("auto", false, true).to_string().starts_with("pmix: PMIX_NAMESPACE"));
    }
}
