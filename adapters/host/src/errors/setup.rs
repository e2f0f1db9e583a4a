//! Why a world did not come up, or did not end well.

use std::ops::RangeInclusive;
use std::{fmt, io};

use towline_bootstrap as bootstrap;
use towline_core::arena::OutOfMemory;
use towline_core::modex::RecvError;
use towline_core::mtl::CommError;
use towline_core::pml::{self, TooFew};

/// Contexts of a job at most, all ranks together.
pub(crate) const MAX_ADDRESSES: u32 = 1 << 20;

/// A world did not come up, or did not end in good order.
///
/// ```
/// let error = towline::Builder::new().transports("pigeon").build().unwrap_err();
/// assert_eq!(error.to_string(), "there is no transport `pigeon`; there are sm, tcp, udp and verbs");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// The launcher, or another rank, did not take part.
    Bootstrap(bootstrap::Error),
    /// A variable of the environment has a value that cannot be understood.
    Variable {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A setting is beyond what there can be.
    OutOfRange {
        /// The variable of the environment that sets it; the program may have set it, too.
        variable: &'static str,
        /// Its value.
        value: u32,
        /// What it can be.
        range: RangeInclusive<u32>,
    },
    /// A transport was asked for that does not exist.
    UnknownTransport(String),
    /// A transport that was asked for does not work here.
    Transport {
        /// Its name.
        name: String,
        /// What it says.
        why: String,
    },
    /// A rank published nothing that could be understood.
    Card {
        /// Which rank.
        rank: u32,
        /// What is missing.
        why: RecvError,
    },
    /// Ranks came with different numbers of contexts.
    Contexts {
        /// The first rank that is not like most.
        rank: u32,
        /// How many it has.
        contexts: u32,
        /// A rank that is like most.
        other: u32,
        /// How many those have.
        others: u32,
    },
    /// Ranks and contexts make more addresses than can be told apart.
    TooManyContexts {
        /// How many ranks there are.
        ranks: u32,
        /// How many contexts each was to have.
        contexts: u32,
    },
    /// A rail of the program's own that was made for one context was to serve several.
    CustomRail,
    /// This rank was started again, and others have not taken it back: see [`World::rejoin`](crate::World::rejoin).
    NotRejoined {
        /// Which ones.
        ranks: Vec<u32>,
        /// How long it waited for them.
        waited_ms: u64,
    },
    /// No transport reaches a rank.
    Unreachable {
        /// Which rank.
        rank: u32,
        /// Each transport, and why it was left.
        report: String,
    },
    /// The operating system refused memory, random numbers or a wait handle.
    System(&'static str, io::Error),
    /// The limits ask for more memory than there is.
    Memory(OutOfMemory),
    /// A limit is below what an engine works with.
    Limits(TooFew),
    /// The communicator of all ranks could not be made.
    World(CommError),
    /// The end did not come in time: some ranks still have messages for each other, or never finished.
    Finish {
        /// How long this rank has waited, in milliseconds.
        waited_ms: u64,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrap(why) => why.fmt(f),
            Self::Variable { variable, value } => {
                write!(f, "{variable}: `{value}` cannot be understood; `towline info` lists what can be set")
            }
            Self::OutOfRange { variable, value, range } => {
                write!(f, "{variable}: {value} is out of range, which is {} to {}", range.start(), range.end())
            }
            Self::UnknownTransport(name) => {
                write!(f, "there is no transport `{name}`; there are sm, tcp, udp and verbs")
            }
            Self::Transport { name, why } => write!(f, "transport {name} does not work here: {why}"),
            Self::Card { rank, why } => {
                write!(f, "rank {rank} published nothing usable ({why}): does it run the same version?")
            }
            Self::Contexts { rank, contexts, other, others } => write!(
                f,
                "rank {rank} has {contexts} contexts, but rank {other} has {others}: build all ranks with the same number"
            ),
            Self::TooManyContexts { ranks, contexts } => {
                write!(f, "{ranks} ranks with {contexts} contexts each are more than {MAX_ADDRESSES} addresses")
            }
            Self::CustomRail => f.write_str(
                "a rail of `Builder::rail` serves one context: give each context one with `Builder::rail_per_context`",
            ),
            Self::NotRejoined { ranks, waited_ms } => write!(
                f,
                "this rank was started again, and within {waited_ms} ms ranks {ranks:?} have not taken it back: have them \
                 call `World::rejoin`, or raise TOWLINE_STARTUP_TIMEOUT_MS"
            ),
            Self::Unreachable { rank, report } => {
                write!(f, "no transport reaches rank {rank} ({report}): allow another one, or check the network")
            }
            Self::System(what, why) => write!(f, "cannot {what}: {why}"),
            Self::Memory(why) => write!(f, "{why}; or ask for fewer requests and units"),
            Self::Limits(why) => why.fmt(f),
            Self::World(why) => why.fmt(f),
            Self::Finish { waited_ms } => write!(
                f,
                "not all ranks came to their end within {waited_ms} ms: look for messages that nobody receives, or raise \
                 TOWLINE_FINISH_TIMEOUT_MS"
            ),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bootstrap(why) => Some(why),
            Self::System(_, why) => Some(why),
            Self::Memory(why) => Some(why),
            Self::Limits(why) => Some(why),
            _ => None,
        }
    }
}

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
