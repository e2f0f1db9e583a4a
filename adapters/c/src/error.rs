//! Codes of errors, and the text of the last error of each thread.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};

use towline::{Blame, CommError, Error as TowlineError, SetupError, WorkerError};

use crate::texts::copy_text;

/// What a function returns: 0 for success, and a negative code otherwise. Later versions may add codes, so a program must treat a
/// code that it does not know as a failure.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum Code {
    /// The function has done what it says.
    TOWLINE_SUCCESS = 0,
    /// An argument is impossible: a null pointer, a count, a value that is not one of those listed.
    TOWLINE_ERR_ARGUMENT = -1,
    /// A handle stands for nothing: it was freed, its request was completed, or it never was one.
    TOWLINE_ERR_HANDLE = -2,
    /// A context of one thread was used by another thread.
    TOWLINE_ERR_THREAD = -3,
    /// The communicator has no such rank.
    TOWLINE_ERR_RANK = -4,
    /// The tag is above `TOWLINE_TAG_MAX`.
    TOWLINE_ERR_TAG = -5,
    /// The message was longer than the memory to receive it. The part that fits was delivered.
    TOWLINE_ERR_TRUNCATED = -6,
    /// As many operations, communicators or contexts are in use as the settings allow.
    TOWLINE_ERR_BUSY = -7,
    /// There is not enough memory.
    TOWLINE_ERR_NO_MEMORY = -8,
    /// A rank was lost: it ended without finishing, or no connection to it is left.
    TOWLINE_ERR_PEER_FAILED = -9,
    /// A rank has finished, and can neither receive nor send any more.
    TOWLINE_ERR_PEER_FINISHED = -10,
    /// A rank was restarted since the communicator was made.
    TOWLINE_ERR_RESTARTED = -11,
    /// The operation was cancelled.
    TOWLINE_ERR_CANCELLED = -12,
    /// A ready send found no posted receive.
    TOWLINE_ERR_NOT_READY = -13,
    /// The receiver freed its communicator before it received the message.
    TOWLINE_ERR_NO_COMMUNICATOR = -14,
    /// The context has ended, or is another one.
    TOWLINE_ERR_FINISHED = -15,
    /// The context belongs to the process from which this one was forked.
    TOWLINE_ERR_FORKED = -16,
    /// A layout is impossible, or nothing can be received into it.
    TOWLINE_ERR_LAYOUT = -17,
    /// A setting is unknown, or has an impossible value.
    TOWLINE_ERR_SETTING = -18,
    /// The job cannot be joined or ended as it should: the text says why.
    TOWLINE_ERR_JOB = -19,
    /// Another rank could not take part in an operation of all ranks.
    TOWLINE_ERR_OTHER_RANK = -20,
    /// The library has a fault. Please report the text.
    TOWLINE_ERR_INTERNAL = -21,
    /// Any other failure: the text says which.
    TOWLINE_ERR_OTHER = -22,
    /// A one-sided operation reaches beyond a rank's part of a window, or a word is not at a multiple of its size.
    TOWLINE_ERR_RANGE = -23,
    /// A rank does not allow the operation on its part of a window, or has freed that part.
    TOWLINE_ERR_DENIED = -24,
    /// There is no such operation, or not with this length or alignment.
    TOWLINE_ERR_NOT_AVAILABLE = -25,
}

/// Who has to act on an error.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)] // as in C
pub enum Fault {
    /// There was no error.
    TOWLINE_FAULT_NONE = 0,
    /// The program that called the function.
    TOWLINE_FAULT_CALLER = 1,
    /// Another rank.
    TOWLINE_FAULT_PEER = 2,
    /// The system, or whoever chose the settings: memory, descriptors, limits.
    TOWLINE_FAULT_RESOURCE = 3,
    /// The library.
    TOWLINE_FAULT_LIBRARY = 4,
}

/// An error of a function: its code, whose fault it is, and its text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: Code,
    pub fault: Fault,
    pub text: String,
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// The caller's fault.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, fault: Fault::TOWLINE_FAULT_CALLER, text: text.into() }
    }

    /// An argument is impossible.
    pub fn argument(text: impl Into<String>) -> Self {
        Self::new(Code::TOWLINE_ERR_ARGUMENT, text)
    }

    /// A handle of some kind stands for nothing.
    #[cold]
    pub fn handle(what: &str) -> Self {
        Self::new(
            Code::TOWLINE_ERR_HANDLE,
            format!("there is no such {what}: it was freed, or its context has ended, or the handle was never set"),
        )
    }
}

impl From<TowlineError> for Failure {
    #[cold]
    fn from(error: TowlineError) -> Self {
        use TowlineError as E;
        let code = match &error {
            E::Busy | E::Communicator(_) => Code::TOWLINE_ERR_BUSY,
            E::NoSuchRank { .. } | E::NoSuchAddress(_) => Code::TOWLINE_ERR_RANK,
            E::NoSuchTag(_) => Code::TOWLINE_ERR_TAG,
            E::PeerFailed { .. } | E::NoSharedMemory { .. } => Code::TOWLINE_ERR_PEER_FAILED,
            E::PeerFinished { .. } => Code::TOWLINE_ERR_PEER_FINISHED,
            E::Restarted { .. } => Code::TOWLINE_ERR_RESTARTED,
            E::Truncated { .. } => Code::TOWLINE_ERR_TRUNCATED,
            E::NoMemory { .. } => Code::TOWLINE_ERR_NO_MEMORY,
            E::Cancelled => Code::TOWLINE_ERR_CANCELLED,
            E::NoRequest => Code::TOWLINE_ERR_HANDLE,
            E::NotReady { .. } => Code::TOWLINE_ERR_NOT_READY,
            E::NoCommunicator { .. } => Code::TOWLINE_ERR_NO_COMMUNICATOR,
            E::Finished => Code::TOWLINE_ERR_FINISHED,
            E::Forked { .. } => Code::TOWLINE_ERR_FORKED,
            E::Layout(_) | E::OutOfBuffer(_) | E::Overlap | E::UndecidedOverlap | E::OnAccelerator => {
                Code::TOWLINE_ERR_LAYOUT
            }
            E::OutOfWindow { .. } | E::Unaligned { .. } | E::UnalignedPart { .. } => Code::TOWLINE_ERR_RANGE,
            E::Refused { .. } => Code::TOWLINE_ERR_DENIED,
            E::NoSuchOperation { .. } => Code::TOWLINE_ERR_ARGUMENT,
            E::NoRoom { .. } | E::NoWindow { .. } | E::NoPart { .. } | E::UnequalLengths { .. } => {
                Code::TOWLINE_ERR_OTHER_RANK
            }
            _ => Code::TOWLINE_ERR_OTHER,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let (code, fault) = match error {
            WorkerError::Operation(TowlineError::Communicator(CommError::ContextTaken)) => {
                (Code::TOWLINE_ERR_ARGUMENT, Fault::TOWLINE_FAULT_CALLER)
            }
            WorkerError::Operation(error) => return error.into(),
            WorkerError::Full { .. } => (Code::TOWLINE_ERR_BUSY, Fault::TOWLINE_FAULT_RESOURCE),
            WorkerError::Unreachable { .. } => (Code::TOWLINE_ERR_PEER_FAILED, Fault::TOWLINE_FAULT_PEER),
            WorkerError::NoSuchPeer(_) | WorkerError::Rank { .. } => {
                (Code::TOWLINE_ERR_RANK, Fault::TOWLINE_FAULT_CALLER)
            }
            _ => (Code::TOWLINE_ERR_ARGUMENT, Fault::TOWLINE_FAULT_CALLER),
        };
        Self { code, fault, text: error.to_string() }
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        let (code, fault) = match &error {
            SetupError::Setting(_) => (Code::TOWLINE_ERR_SETTING, Fault::TOWLINE_FAULT_CALLER),
            SetupError::Place { .. } => (Code::TOWLINE_ERR_ARGUMENT, Fault::TOWLINE_FAULT_CALLER),
            SetupError::Forked(_) => (Code::TOWLINE_ERR_FORKED, Fault::TOWLINE_FAULT_CALLER),
            SetupError::LostRanks { .. } | SetupError::Unreachable { .. } => {
                (Code::TOWLINE_ERR_PEER_FAILED, Fault::TOWLINE_FAULT_PEER)
            }
            _ => (Code::TOWLINE_ERR_JOB, Fault::TOWLINE_FAULT_RESOURCE),
        };
        Self { code, fault, text: error.to_string() }
    }
}

impl From<Blame> for Fault {
    fn from(blame: Blame) -> Self {
        match blame {
            Blame::Caller => Self::TOWLINE_FAULT_CALLER,
            Blame::Peer => Self::TOWLINE_FAULT_PEER,
            _ => Self::TOWLINE_FAULT_RESOURCE,
        }
    }
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Keeps an error as the last one of this thread. Returns its code.
#[cold]
pub(crate) fn keep(failure: Failure) -> c_int {
    let code = failure.code as c_int;
    // A thread that is about to end has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(Some(failure)));
    code
}

/// The text of the last error of the calling thread: what happened, whose fault it is, and what to do.
///
/// A function that succeeds leaves the text as it is. The text is of UTF-8.
///
/// @param buffer  Gets the text, cut to `size` - 1 bytes if it is longer, and a 0. May be null if `size` is 0.
/// @param size    Bytes of `buffer`.
/// @return        The length of the whole text in bytes, without the 0. 0: no function has failed in this thread.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `buffer` is writable for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_error_text(buffer: *mut c_char, size: usize) -> usize {
    let copy = |last: &RefCell<Option<Failure>>| {
        let last = last.borrow();
        let text = last.as_ref().map_or("", |failure| &failure.text);
        // SAFETY: the caller's promise.
        unsafe { copy_text(text, buffer, size) }
    };
    LAST.try_with(copy).unwrap_or(0)
}

/// Whose fault the last error of the calling thread is: who has to act.
///
/// @return  `TOWLINE_FAULT_NONE` if no function has failed in this thread.
///
/// Thread-safe. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_error_fault() -> Fault {
    LAST.try_with(|last| last.borrow().as_ref().map_or(Fault::TOWLINE_FAULT_NONE, |failure| failure.fault))
        .unwrap_or(Fault::TOWLINE_FAULT_NONE)
}

/// A short text for a code, such as "the message is longer than the buffer". `towline_error_text` says more about the case at hand.
///
/// @param code  What a function returned. Any number is allowed.
/// @return      A text that ends with 0, and that lives as long as the process. Never null.
///
/// Thread-safe. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_strerror(code: c_int) -> *const c_char {
    let text = match code {
        0 => c"success",
        -1 => c"an argument is impossible",
        -2 => c"a handle stands for nothing",
        -3 => c"a context of one thread was used by another thread",
        -4 => c"the communicator has no such rank",
        -5 => c"the tag is too large",
        -6 => c"the message is longer than the buffer",
        -7 => c"too many operations or objects are in use",
        -8 => c"there is not enough memory",
        -9 => c"a rank was lost",
        -10 => c"a rank has finished",
        -11 => c"a rank was restarted since the communicator was made",
        -12 => c"the operation was cancelled",
        -13 => c"a ready send found no posted receive",
        -14 => c"the receiver has freed its communicator",
        -15 => c"the context has ended",
        -16 => c"the context belongs to the parent of this process",
        -17 => c"a layout is impossible, or overlaps itself",
        -18 => c"a setting is unknown or impossible",
        -19 => c"the job cannot be joined or ended",
        -20 => c"another rank could not take part",
        -21 => c"the library has a fault",
        -22 => c"another failure",
        -23 => c"a place outside of a window, or one that is not aligned",
        -24 => c"a rank does not allow the operation on its memory",
        -25 => c"there is no such operation",
        _ => c"a code that this version does not have",
    };
    text.as_ptr()
}
