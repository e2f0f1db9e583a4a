//! Why a device cannot be opened, and why operations are refused or fail.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use towline_core::error::Blame;
use towline_window::completion;
use towline_window::host::{AttachError, DeviceError};

/// A device cannot be opened.
#[non_exhaustive]
pub enum OpenError {
    /// No window is named.
    NoSetting,
    /// An entry of the list of windows is wrong, and why.
    Setting(String, String),
    /// Another process uses the window.
    InUse(PathBuf),
    /// The log of the window has another reader.
    LogInUse(PathBuf),
    /// The firmware has no log.
    NoLog(PathBuf),
    /// The window's file cannot be mapped.
    File(PathBuf, io::Error),
    /// The file is too small for a window.
    NoWindow(PathBuf),
    /// The device cannot be used.
    Attach(PathBuf, AttachError),
    /// The device did not answer.
    Silent(PathBuf, Duration),
}

impl OpenError {
    /// Whether another process uses the device.
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::Attach(_, AttachError::Busy))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSetting => f.write_str(
                "no window of a DPU is named: set TOWLINE_DPU_WINDOWS to the files of the windows of this host's DPUs",
            ),
            Self::Setting(entry, why) => {
                write!(f, "`{entry}` in TOWLINE_DPU_WINDOWS {why}: write `file` or `file@offset`")
            }
            Self::InUse(path) => write!(
                f,
                "another process uses the DPU of window {}: name a window for each process of this host in TOWLINE_DPU_WINDOWS",
                path.display()
            ),
            Self::LogInUse(path) => write!(f, "the log of window {} has another reader", path.display()),
            Self::NoLog(path) => write!(
                f,
                "the firmware of window {} has no log there: use one whose window has version 1.3 or later",
                path.display()
            ),
            Self::File(path, why) => write!(f, "the window {} cannot be mapped: {why}", path.display()),
            Self::NoWindow(path) => write!(f, "{} is no window of a device: it is too small", path.display()),
            Self::Attach(path, why) => write!(f, "the device of window {} cannot be used: {why}", path.display()),
            Self::Silent(path, time) => write!(
                f,
                "the device of window {} did not answer for {} ms: its firmware does not run, or hangs",
                path.display(),
                time.as_millis()
            ),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(_, why) => Some(why),
            Self::Attach(_, why) => Some(why),
            Self::NoSetting
            | Self::Setting(..)
            | Self::InUse(_)
            | Self::LogInUse(_)
            | Self::NoLog(_)
            | Self::NoWindow(_)
            | Self::Silent(..) => None,
        }
    }
}

towline_core::debug_as_display!(OpenError);

/// What happened to a device.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// It says so itself, or has started again, or has violated the protocol.
    Device(DeviceError),
    /// Its heartbeat has not changed for too long, or it has not answered a command.
    Silent,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(why) => why.fmt(f),
            Self::Silent => {
                f.write_str("the firmware of the device does not answer any more: it has stopped, or hangs")
            }
        }
    }
}

impl std::error::Error for Lost {}

towline_core::debug_as_display!(Lost);

/// Nothing was begun.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As many operations are in progress as the device can have, or its buffers are in use: take outcomes first.
    Busy,
    /// The message is longer than the longest part of the device's buffers that can be given to it: about seven eighths of them.
    TooLong,
    /// The rank, peer or tag is one that nothing has, or memory is of another transport, has no byte, or would be registered without
    /// a right.
    Invalid,
    /// The device refuses.
    Device(completion::Failure),
    /// The device has no one-sided operations. Its window has this version.
    NoOneSided(u32),
    /// The device has failed.
    Lost(Lost),
}

/// The first version of the window with one-sided operations.
const ONE_SIDED_SINCE: u32 = 1 << 16 | 1;

impl Refusal {
    /// Whether a peer was not added since the device has no room for so many.
    pub const fn is_full_of_peers(&self) -> bool {
        matches!(self, Self::Device(completion::Failure::Full | completion::Failure::NoSuchThing))
    }

    /// The party that has to act.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Busy | Self::TooLong | Self::NoOneSided(_) => Blame::Resource,
            Self::Invalid => Blame::Caller,
            Self::Device(why) => blame(*why),
            Self::Lost(_) => Blame::Peer,
        }
    }
}

/// The party that has to act on a failure of a command.
const fn blame(why: completion::Failure) -> Blame {
    match why {
        completion::Failure::Full | completion::Failure::NoHostMemory => Blame::Resource,
        completion::Failure::PeerFailed
        | completion::Failure::PeerFinished
        | completion::Failure::Refused
        | completion::Failure::NoRight
        | completion::Failure::Aborted
        | completion::Failure::Unreachable => Blame::Peer,
        _ => Blame::Caller,
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("the device has no more room for operations or messages: take outcomes first"),
            Self::TooLong => f.write_str("the message is longer than the buffers of the device can hold in one piece"),
            Self::Invalid => f.write_str(
                "the rank, peer or tag is 4294967295, which nothing has, or the memory is of another transport or has no byte or right",
            ),
            Self::NoOneSided(version) if *version < ONE_SIDED_SINCE => write!(
                f,
                "the device has no one-sided operations: its window has version {}.{}, and they came with {}.{}: update its firmware",
                version >> 16,
                version & 0xffff,
                ONE_SIDED_SINCE >> 16,
                ONE_SIDED_SINCE & 0xffff
            ),
            Self::NoOneSided(_) => f.write_str(
                "the device has no one-sided operations: its firmware was built without them: use one that has them",
            ),
            Self::Device(why) => write!(f, "the device refuses: {why}"),
            Self::Lost(why) => write!(f, "the device has failed: {why}"),
        }
    }
}

impl std::error::Error for Refusal {}

towline_core::debug_as_display!(Refusal);

/// An operation has failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The device reports this.
    Operation(completion::Failure),
    /// The device has failed. Whether the message was sent is not known.
    Device(Lost),
    /// No such request: its outcome was taken already.
    NoRequest,
}

impl Failure {
    /// The party that has to act.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Operation(why) => blame(*why),
            Self::Device(_) => Blame::Peer,
            Self::NoRequest => Blame::Caller,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(why) => why.fmt(f),
            Self::Device(why) => write!(f, "the device has failed: {why}"),
            Self::NoRequest => f.write_str("there is no such request: its outcome was taken already"),
        }
    }
}

impl std::error::Error for Failure {}

towline_core::debug_as_display!(Failure);
