//! Error texts say what happened and what to do, and are what a `main` that returns the error prints.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use towline::bootstrap::launch::LaunchError;
use towline::bootstrap::{EnvironmentError, Error as BootstrapError};
use towline::{
    Address, Blame, BoundsError, CommError, Denied, Error, Failed, InvalidSetting, LayoutError, PmixError, RejoinError,
    SetupError, Shortage,
};
use towline_core::modex::{RecvError, SendError};

fn refused() -> io::Error {
    io::Error::from_raw_os_error(24) // EMFILE
}

/// One of each kind.
fn all() -> Vec<Box<dyn std::error::Error>> {
    let (rank, tag) = (3, 7);
    let operations = [
        Error::Busy,
        Error::NoSuchRank { rank, size: 2 },
        Error::NoSuchAddress(Address { rank, index: 1 }),
        Error::NoSuchTag(u32::MAX),
        Error::PeerFailed { rank },
        Error::Restarted { rank },
        Error::Truncated { source: rank, tag, sent: 9, delivered: 8 },
        Error::NoMemory { bytes: 1 << 40 },
        Error::NotReady { rank },
        Error::NoCommunicator { rank },
        Error::DeviceFailed,
        Error::MessagesLost { rank: 3 },
        Error::TooLong,
        Error::BadMemory,
        Error::Aborted { rank },
        Error::Finished,
        Error::Forked { process: 1234 },
        Error::Rail(towline::EnableError::NoRail(9)),
        Error::UnalignedPart { rank, word: 8 },
        Error::Layout(LayoutError::TooDeep),
        Error::OutOfBuffer(BoundsError::BeyondEnd(4)),
        Error::Overlap,
        Error::OnAccelerator,
        Error::Communicator(CommError::Full),
        Error::NoRoom { rank, why: Shortage::Communicators },
        Error::NoRoom { rank, why: Shortage::ContextIds },
        Error::NoWindow { rank, why: Shortage::Windows },
        Error::NoWindow { rank, why: Shortage::Memory },
        Error::WrongLength { expected: 4, given: 3 },
        Error::WrongCounts { sum: 4, items: 3 },
        Error::UnequalLengths { rank, expected: 8, sent: 9 },
        Error::NoPart { rank },
        Error::InProgress,
        Error::NotStarted,
        Error::OutOfWindow { rank, offset: 60, bytes: 8, len: 64 },
        Error::Unaligned { rank, offset: 2, word: 4, len: 64 },
        Error::Refused { rank, why: Denied::NoRight },
        Error::Refused { rank, why: Denied::NoMemory },
        Error::Refused { rank, why: Denied::NotAvailable },
        Error::NoSuchOperation { operation: "Min", word: "u32" },
    ];
    let bootstrap = [
        BootstrapError::Environment(EnvironmentError { name: "TOWLINE_RANK", why: "`x` is not a number".into() }),
        BootstrapError::Connect { address: "unix:@job".into(), source: refused() },
        BootstrapError::Refused { address: "unix:@job".into(), why: "it serves another job: check TOWLINE_JOB".into() },
        BootstrapError::Timeout { step: "fence".into(), waited: Duration::from_secs(1) },
        BootstrapError::Lost { step: "fence", source: refused() },
        BootstrapError::Protocol { what: "a frame at the wrong time".into() },
        BootstrapError::PeerGone { rank, step: "fence" },
        BootstrapError::Finished,
        BootstrapError::Exchange {
            step: "start",
            why: "rank 3 gave nothing: run the same version on all ranks".into(),
        },
        BootstrapError::TooLate,
        BootstrapError::Publish(SendError::Lost),
        BootstrapError::System(refused()),
    ];
    let set_up = [
        SetupError::Setting(InvalidSetting::new("TOWLINE_LINKS", 65, "is above 64", "1 to 64")),
        SetupError::Transport { name: "tcp".into(), why: "cannot listen: in use".into() },
        SetupError::Warning("TOWLINE_SPINN_US is unknown".into()),
        SetupError::Card { rank, why: RecvError::NotFound },
        SetupError::Contexts { rank, contexts: 2, other: 0, others: 1 },
        SetupError::TooManyContexts { ranks: 1 << 20, contexts: 2 },
        SetupError::AlreadyJoined { rank },
        SetupError::Forked(Error::Forked { process: 1234 }),
        SetupError::CustomRail,
        SetupError::NoContexts,
        SetupError::NotRejoined { ranks: vec![1, 2], waited_ms: 7 },
        SetupError::Unreachable { rank, report: "peer 3: none".into() },
        SetupError::System("map memory", refused()),
        SetupError::World(CommError::Full),
        SetupError::Bootstrap(BootstrapError::Finished),
        SetupError::Pmix(PmixError::NotStarted("PMIX_RANK")),
        SetupError::Pmix(PmixError::Library("libpmix.so.2: there is no such file".into())),
        SetupError::Pmix(PmixError::Call { what: "connect to the launcher", why: "UNREACHABLE (-25)".into() }),
    ];
    let rejoin = [
        RejoinError::NoSuchRank { rank, size: 2 },
        RejoinError::NotRestarted { rank, waited_ms: 7 },
        RejoinError::Unreachable { rank, report: "peer 3: none".into() },
        RejoinError::Contexts { rank },
        RejoinError::Itself { rank },
        RejoinError::Forked(Error::Forked { process: 1234 }),
    ];
    let launch = [
        LaunchError::NoRanks,
        LaunchError::TooManyRanks { ranks: u32::MAX },
        LaunchError::TooFewSlots { ranks: 3, slots: 2 },
        LaunchError::TooFewFiles { ranks: 3, needed: 9, limit: 8 },
        LaunchError::System { what: "watch signals", source: refused() },
    ];
    let mut all: Vec<Box<dyn std::error::Error>> = Vec::new();
    all.extend(operations.map(|error| Box::new(error) as _));
    all.extend(bootstrap.map(|error| Box::new(error) as _));
    all.extend(set_up.map(|error| Box::new(error) as _));
    all.extend(rejoin.map(|error| Box::new(error) as _));
    all.extend(launch.map(|error| Box::new(error) as _));
    all
}

#[test]
fn each_error_says_what_happened_and_what_to_do() {
    for error in all() {
        let text = error.to_string();
        let (what, advice) = text.split_once([':', ';', '?', '.']).unwrap_or((&text, ""));
        assert!(what.len() > 4, "{text}");
        assert!(advice.len() > 8 || text.contains("an error, since") || text.contains("possible"), "no advice: {text}");
        assert!(!text.contains(" { ") && !text.contains("Some("), "debug output: {text}");
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
        assert_eq!(format!("{error:?}"), text);
    }
}

#[test]
fn a_failed_operation_prints_its_error_and_gives_the_buffer_back() {
    let failed = Failed { error: Error::Busy, buffer: vec![1u8] };
    assert_eq!((format!("{failed:?}"), failed.to_string()), (Error::Busy.to_string(), Error::Busy.to_string()));
    assert_eq!(failed.source().unwrap().to_string(), Error::Busy.to_string());
}

#[test]
fn the_side_that_has_to_act_is_named() {
    assert_eq!(Error::Refused { rank: 0, why: Denied::NoRight }.blame(), Blame::Caller);
    assert_eq!(Error::Refused { rank: 0, why: Denied::NoMemory }.blame(), Blame::Peer);
    assert_eq!(Error::PeerFailed { rank: 0 }.blame(), Blame::Peer);
    assert_eq!(Error::Busy.blame(), Blame::Resource);
}
