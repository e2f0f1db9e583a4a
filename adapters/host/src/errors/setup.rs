//! Errors of the set-up and of the end of a world.

use std::ops::RangeInclusive;
use std::{fmt, io};

use towline_bootstrap as bootstrap;
use towline_bootstrap::report::Unmatched;
use towline_core::arena::OutOfMemory;
use towline_core::modex::RecvError;
use towline_core::mtl::CommError;
use towline_core::pml::{self, TooFew};
use towline_net::advice;
use towline_settings::InvalidSetting;

use crate::errors::error::Error;

/// The largest number of contexts in a job, all ranks together.
pub(crate) const MAX_ADDRESSES: u32 = 1 << 20;

/// Why a world did not come up, or did not finish normally.
///
/// ```
/// let error = towline::Builder::new().transports("pigeon").build().unwrap_err();
/// assert!(error.to_string().starts_with("TOWLINE_TRANSPORTS: `pigeon`, which the program has set, is not a known transport"));
/// ```
#[non_exhaustive]
pub enum SetupError {
    /// The exchange with the launcher failed.
    Bootstrap(bootstrap::Error),
    /// The job of a PMIx launcher cannot be joined.
    Pmix(towline_pmix::Error),
    /// The value of a setting cannot be kept. The user or the program that has set it has to correct it.
    Setting(InvalidSetting),
    /// A transport that was asked for does not work here.
    Transport {
        /// Its name.
        name: String,
        /// The transport's error, and what asks for the transport.
        why: String,
    },
    /// [`Config::strict`](crate::Config::strict) is set, and there is a warning.
    Warning(String),
    /// The card of a rank is missing or malformed.
    Card {
        /// Which rank.
        rank: u32,
        /// Why it cannot be used.
        why: RecvError,
    },
    /// Ranks have different numbers of contexts.
    Contexts {
        /// The first rank that differs from most ranks.
        rank: u32,
        /// How many contexts it has.
        contexts: u32,
        /// One of the ranks with the most common number of contexts.
        other: u32,
        /// How many contexts that rank, like most ranks, has.
        others: u32,
    },
    /// The program asked for no context.
    NoContexts,
    /// There are more contexts, all ranks together, than a job can have.
    TooManyContexts {
        /// How many ranks there are.
        ranks: u32,
        /// How many contexts each rank asked for.
        contexts: u32,
    },
    /// This process has joined the job before, as the rank that is named. A second [`init`](crate::init), for example.
    AlreadyJoined {
        /// The rank.
        rank: u32,
    },
    /// This process was forked from a rank, which has a world of its own: see [`World`](crate::World#forks).
    Forked(Error),
    /// A rail of the program's own serves one context, but the program asked for several contexts or threads.
    CustomRail,
    /// This rank was restarted, and other ranks have not accepted it: see [`World::rejoin`](crate::World::rejoin).
    NotRejoined {
        /// The ranks that have not accepted it.
        ranks: Vec<u32>,
        /// How long this rank waited for them, in milliseconds.
        waited_ms: u64,
    },
    /// A number of a [`Place`](crate::Place) is impossible.
    Place {
        /// What it is.
        what: &'static str,
        /// The number.
        number: u32,
        /// The possible ones.
        range: RangeInclusive<u32>,
    },
    /// No transport reaches a rank.
    Unreachable {
        /// Which rank.
        rank: u32,
        /// The verdict on each transport.
        report: String,
    },
    /// The operating system refused memory, random numbers, a descriptor or a thread: the purpose, and the system's error.
    System(&'static str, io::Error),
    /// The settings ask for more memory than there is.
    Memory(OutOfMemory),
    /// A setting is below the least value with which an engine works.
    Limits(TooFew),
    /// The communicator of all ranks could not be made.
    World(CommError),
    /// Some ranks did not finish in time: they still wait for messages, or never called [`World::finish`](crate::World::finish).
    Finish {
        /// How long this rank has waited, in milliseconds.
        waited_ms: u64,
    },
    /// Ranks were lost before they had finished, as far as this rank has noticed.
    LostRanks {
        /// Which ranks.
        ranks: Vec<u32>,
        /// How long this rank has waited in [`World::finish`](crate::World::finish), in milliseconds.
        waited_ms: u64,
    },
    /// All other ranks have finished, but messages of this rank have not all been sent: no rank has received them.
    Unsent {
        /// How long this rank has waited, in milliseconds.
        waited_ms: u64,
    },
    /// This rank has not received all messages, and [`Config::unmatched`](crate::Config::unmatched) makes that an error.
    Unmatched(Unmatched),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrap(why) => why.fmt(f),
            Self::Pmix(why) => why.fmt(f),
            Self::Setting(why) => why.fmt(f),
            Self::Forked(why) => why.fmt(f),
            Self::Transport { name, why } => write!(f, "transport {name} does not work here: {why}"),
            Self::Warning(warning) => write!(f, "{warning} (an error, since TOWLINE_STRICT is set)"),
            Self::Card { rank, why } => {
                write!(f, "the card of rank {rank} is missing or malformed ({why}): run the same version on all ranks")
            }
            Self::NoContexts => f.write_str("a rank has at least one context: pass 1 or more to `Builder::contexts`"),
            Self::Contexts { rank, contexts, other, others } => write!(
                f,
                "rank {rank} has {contexts} contexts, but rank {other} has {others}: build all ranks with the same number"
            ),
            Self::TooManyContexts { ranks, contexts } => write!(
                f,
                "{ranks} ranks with {contexts} contexts each are more than {MAX_ADDRESSES} contexts: ask for fewer contexts"
            ),
            Self::AlreadyJoined { rank } => write!(
                f,
                "this process has joined the job as rank {rank} before, and a process joins once: make several contexts by \
                 `Builder::contexts`, one for each thread, or let all threads use one world of `Builder::threads(Multiple)`"
            ),
            Self::CustomRail => f.write_str(
                "a rail of `Builder::rail` serves one context and one thread: use `Builder::rail_per_context`",
            ),
            Self::NotRejoined { ranks, waited_ms } => write!(
                f,
                "this rank was restarted, and ranks {ranks:?} have not accepted it within {waited_ms} ms: have them call \
                 `World::rejoin`, or raise TOWLINE_STARTUP_TIMEOUT_MS"
            ),
            Self::Place { what, number, range } => write!(
                f,
                "{what}: {number} is not within {} to {}: correct the `Place` of this process",
                range.start(),
                range.end()
            ),
            Self::Unreachable { rank, report } => {
                write!(f, "no transport reaches rank {rank} ({report}): allow another transport, or check the network")
            }
            Self::System(what, why) => write!(f, "the operating system refused to {what}: {why}{}", advice(why)),
            Self::Memory(why) => {
                write!(f, "{why}; or ask for fewer requests and units (TOWLINE_REQUESTS, TOWLINE_UNITS)")
            }
            Self::Limits(why) => why.fmt(f),
            Self::World(CommError::Full) => {
                f.write_str("there is no room for the communicator of all ranks: raise TOWLINE_COMMUNICATORS")
            }
            Self::World(why) => why.fmt(f),
            Self::Finish { waited_ms } => write!(
                f,
                "some ranks had not finished after {waited_ms} ms: look for messages that no rank receives, or raise \
                 TOWLINE_FINISH_TIMEOUT_MS"
            ),
            Self::LostRanks { ranks, waited_ms } => {
                let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
                let (s, were) = if ranks.len() == 1 { ("", "was") } else { ("s", "were") };
                write!(
                    f,
                    "rank{s} {} {were} lost before all ranks had finished, which this rank noticed after {waited_ms} ms in `finish`: see \
                     the output of the lost rank{s} for the reason",
                    ranks.join(", ")
                )
            }
            Self::Unsent { waited_ms } => write!(
                f,
                "messages of this rank had not been received when all other ranks had finished, after {waited_ms} ms in `finish`: \
                 look for sends without a receive whose requests were dropped"
            ),
            Self::Unmatched(unmatched) => {
                write!(f, "{unmatched}: receive them, do not send them, or set TOWLINE_UNMATCHED to `warn` or `ignore`")
            }
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bootstrap(why) => Some(why),
            Self::Pmix(why) => Some(why),
            Self::Setting(why) => Some(why),
            Self::System(_, why) => Some(why),
            Self::Memory(why) => Some(why),
            Self::Limits(why) => Some(why),
            _ => None,
        }
    }
}

towline_core::debug_as_display!(SetupError);

impl From<pml::SetUpError> for SetupError {
    fn from(why: pml::SetUpError) -> Self {
        match why {
            pml::SetUpError::Memory(why) => Self::Memory(why),
            pml::SetUpError::Limits(why) => Self::Limits(why),
        }
    }
}

impl From<bootstrap::Error> for SetupError {
    fn from(why: bootstrap::Error) -> Self {
        Self::Bootstrap(why)
    }
}

impl From<towline_pmix::Error> for SetupError {
    fn from(why: towline_pmix::Error) -> Self {
        Self::Pmix(why)
    }
}

impl From<InvalidSetting> for SetupError {
    fn from(why: InvalidSetting) -> Self {
        Self::Setting(why)
    }
}
