//! What the host asks the device for.

use core::fmt;

use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};

use crate::ring::{Entry, WORDS};

/// Any rank, or any tag.
pub const ANY: u32 = u32::MAX;

/// Memory of a message body. Region 0 is the window itself. Other numbers are those of [host regions](Command::RegisterHost).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Body {
    /// The region.
    pub region: u32,
    /// Bytes from the begin of the region.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Bytes of the key of registered memory.
pub const KEY: usize = 64;

/// Where the key of registered memory is: [`KEY`] bytes, of which only devices know the meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct KeyPlace {
    /// The region, as in [`Body`].
    pub region: u32,
    /// Bytes from the begin of the region.
    pub at: u64,
}

/// Memory of the host outside the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HostRange {
    /// Its address at the host.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The most bytes of the description of a host region.
pub const DESCRIPTION: u32 = 256;

/// Memory of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Remote {
    /// The peer that has registered it.
    pub peer: u32,
    /// Bytes from the begin of the registered memory.
    pub offset: u64,
    /// Where its key is, in the window. It does not change until the completion.
    pub key: KeyPlace,
}

/// Lengths of messages from here on are those of [announcements](Command::Announce). No other message is as long.
pub const ANNOUNCED: u64 = 1 << 48;
/// The context in which hosts send long messages in pieces. Only one communicator has it.
pub const PIPELINES: u32 = 0xffff_fffd;
/// The longest announcement.
pub const MOST_ANNOUNCED: u64 = 0x7fff * ANNOUNCED - 1;

/// When a send is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[repr(u8)]
pub enum Mode {
    /// When its memory may be used again.
    #[default]
    Standard = 0,
    /// When its receive has begun.
    Synchronous = 1,
    /// When the device needs no further work for it.
    Complete = 2,
    /// When its receive has begun. It fails if the receive was not posted before.
    Ready = 3,
}

/// A command. Each has a *cookie*, a number of the host's choice, which its completion repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Command {
    /// Sends a message to a rank of a communicator.
    Send {
        /// The communicator.
        comm: u32,
        /// The rank that it is sent to.
        dest: u32,
        /// Its tag.
        tag: u32,
        /// When it is complete.
        mode: Mode,
        /// Its bytes. They do not change until the completion.
        body: Body,
    },
    /// Receives a message.
    Receive {
        /// The communicator.
        comm: u32,
        /// The rank of the sender, or [`ANY`].
        source: u32,
        /// Its tag, or [`ANY`].
        tag: u32,
        /// Where its bytes go. Nothing else accesses them until the completion.
        body: Body,
    },
    /// Looks for a message without receiving it. It completes at once.
    Probe {
        /// The communicator.
        comm: u32,
        /// The rank of the sender, or [`ANY`].
        source: u32,
        /// Its tag, or [`ANY`].
        tag: u32,
        /// Whether the message is taken out, so that only [`ReceiveMatched`](Self::ReceiveMatched) receives it.
        take: bool,
    },
    /// Receives a message that a probe has taken out.
    ReceiveMatched {
        /// The value of the probe's completion.
        message: u32,
        /// Where its bytes go.
        body: Body,
    },
    /// Cancels a send or receive. Its own completion says whether that succeeded.
    Cancel {
        /// The cookie of the send or receive.
        cookie: u64,
    },
    /// Adds a peer.
    AddPeer {
        /// Its number.
        peer: u32,
        /// Its card, as the other device has published it, in the window.
        card: Body,
    },
    /// Forgets a peer.
    DeletePeer {
        /// Its number.
        peer: u32,
    },
    /// Makes a communicator. The completion has its number.
    AddCommunicator {
        /// Its context, which all members use.
        context: u32,
        /// The own rank.
        rank: u32,
        /// The number of ranks.
        size: u32,
        /// The peers of the ranks, as words in the window. Of no length if rank r is peer r.
        peers: Body,
    },
    /// Deletes a communicator.
    DeleteCommunicator {
        /// The communicator.
        comm: u32,
    },
    /// Writes the card of this device, which other devices need to add it as a peer. The completion has its length.
    Publish {
        /// Where the card goes, in the window.
        into: Body,
    },
    /// The host knows that a peer has failed. Operations with it end. The peer may be added again.
    LosePeer {
        /// Its number.
        peer: u32,
    },
    /// The host knows of the failures of a communicator's members so far: receives from any rank wait for the other members.
    Acknowledge {
        /// The communicator.
        comm: u32,
    },
    /// Registers memory of the window, so that peers access it without the host. The completion has its number.
    Register {
        /// What peers may do: [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`], [`Access::REMOTE_ATOMIC`], at least one of them.
        access: Access,
        /// The only peer that may do it, or [`ANY`].
        only: u32,
        /// The memory. Peers access it at any time until it is deregistered.
        memory: Body,
        /// Where its key goes, in the window.
        key: KeyPlace,
    },
    /// Ends a registration. It completes when no peer accesses the memory any more.
    Deregister {
        /// The number of the registration.
        registration: u32,
    },
    /// Writes memory of a peer. It is complete when the bytes are there.
    Put {
        /// Where the bytes go.
        to: Remote,
        /// The bytes. They do not change until the completion.
        body: Body,
    },
    /// Reads memory of a peer.
    Get {
        /// Where the bytes are.
        from: Remote,
        /// Where they go. Nothing else accesses it until the completion.
        body: Body,
    },
    /// Changes a word of a peer, as one step. The completion has its old value.
    Atomic {
        /// Where the word is.
        at: Remote,
        /// What happens to it.
        atomic: Atomic,
        /// The type of the word.
        flags: AtomicFlags,
    },
    /// Counts the messages of a peer that have arrived. The completion has as value their number since the peer was added, modulo
    /// 2^32, and as length of the message the number of those that were not received or taken out.
    Count {
        /// Its number.
        peer: u32,
    },
    /// Sends a frame to a peer. It is complete when the device needs no further work for it.
    SendFrame {
        /// The peer.
        peer: u32,
        /// A number of the hosts' choice, below 2^31.
        tag: u32,
        /// The frame. It does not change until the completion.
        body: Body,
    },
    /// Gives the device a buffer for the next frame of any peer.
    ReceiveFrame {
        /// Where the frame goes. Nothing else accesses it until the completion.
        body: Body,
    },
    /// Registers memory of the host outside the window, for bodies of messages. The completion has the number of the region.
    RegisterHost {
        /// The memory. It need not be mapped as a whole.
        memory: HostRange,
        /// Where the description is, in the window: how this device reaches the memory.
        description: KeyPlace,
        /// Bytes of the description, at most [`DESCRIPTION`].
        bytes: u32,
    },
    /// Sends a message that has a length and no bytes. The receiver's host finds out by the length what it stands for. It is complete when
    /// its receive has begun.
    Announce {
        /// The communicator.
        comm: u32,
        /// The rank that it is sent to.
        dest: u32,
        /// Its tag.
        tag: u32,
        /// Whether it fails if there is no receive.
        mode: Mode,
        /// The length that its receiver finds, from [`ANNOUNCED`] to [`MOST_ANNOUNCED`].
        length: u64,
    },
    /// Says what happens to messages in [ready mode](Mode::Ready) that find no receive: whether they are kept, as those in synchronous mode
    /// are, or refused. They are kept while the host has posted receives that it has not given to the device.
    KeepReady {
        /// Whether they are kept.
        keep: bool,
    },
    /// Ends a host region. From the completion on, the device does not access its memory. Operations that use it end with
    /// [`Failure::BadMemory`](crate::completion::Failure::BadMemory).
    DeregisterHost {
        /// The number of the region.
        region: u32,
    },
}

/// A command cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum BadCommand {
    /// The device does not know it: the host is newer than the firmware.
    Unknown(u8),
    /// A word has a value that is not allowed.
    Malformed,
}

impl fmt::Display for BadCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => {
                write!(f, "the firmware does not know command {number}: it is older than the host")
            }
            Self::Malformed => f.write_str("the host has written a command with a value that is not allowed"),
        }
    }
}

impl core::error::Error for BadCommand {}

towline_core::debug_as_display!(BadCommand);

/// Splits 64 bits into the words of a slot, the lower half first.
pub(crate) const fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Joins two words of a slot.
pub(crate) const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

// The layout of an entry: word 1 (here 0) has the number of the command in byte 0 and flags in byte 1; words 2 and 3 have the
// cookie. Words 4 to 6 have arguments, 7 the region, 8 to 11 offset and length, or the operands of an atomic. Words 12 to 14 have
// offset and region of a key.

/// The rights that a registration may give. Their values are those of the flags.
const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
/// The flags of an atomic: the number of the operation, or 0 for compare and swap.
const OPERATION: u8 = 0x3f;
/// The flags of an atomic: where the [`AtomicFlags`] begin.
const TYPE_SHIFT: u32 = 6;

/// The arguments of a command on memory of a peer.
const fn arguments_of(remote: &Remote) -> [u32; 3] {
    let [low, high] = halves(remote.offset);
    [remote.peer, low, high]
}

/// The flags of an atomic, and its operands in the place of a body.
const fn encode_atomic(atomic: Atomic, flags: AtomicFlags) -> (u8, Body) {
    let (operation, operand, compare) = match atomic {
        Atomic::Op(operation, operand) => (operation as u8, operand, 0),
        Atomic::CompareSwap(compare, becomes) => (0, becomes, compare),
    };
    (operation | (flags.bits() as u8) << TYPE_SHIFT, Body { region: 0, at: operand, bytes: compare })
}

/// The atomic of flags and operands. `None` if there is no such operation.
fn decode_atomic(flags: u8, operands: Body) -> Option<(Atomic, AtomicFlags)> {
    let atomic = match flags & OPERATION {
        0 => Atomic::CompareSwap(operands.bytes, operands.at),
        operation => Atomic::Op(AtomicOp::of(operation)?, operands.at),
    };
    Some((atomic, AtomicFlags::from_bits(u32::from(flags >> TYPE_SHIFT))?))
}

/// The mode of a send with these flags, of which only the lower two bits count.
const fn mode_of(flags: u8) -> Mode {
    match flags & 3 {
        0 => Mode::Standard,
        1 => Mode::Synchronous,
        2 => Mode::Complete,
        _ => Mode::Ready,
    }
}

impl Command {
    /// The words of the entry.
    #[inline(always)]
    pub fn encode(&self, cookie: u64) -> Entry {
        let (none, nowhere) = (Body::default(), KeyPlace::default());
        let (number, flags, arguments, body, key) = match *self {
            Self::Send { comm, dest, tag, mode, body } => (1, mode as u8, [comm, dest, tag], body, nowhere),
            Self::Receive { comm, source, tag, body } => (2, 0, [comm, source, tag], body, nowhere),
            Self::Probe { comm, source, tag, take } => (3, u8::from(take), [comm, source, tag], none, nowhere),
            Self::ReceiveMatched { message, body } => (4, 0, [message, 0, 0], body, nowhere),
            Self::Cancel { cookie } => {
                let [low, high] = halves(cookie);
                (5, 0, [low, high, 0], none, nowhere)
            }
            Self::AddPeer { peer, card } => (6, 0, [peer, 0, 0], card, nowhere),
            Self::DeletePeer { peer } => (7, 0, [peer, 0, 0], none, nowhere),
            Self::AddCommunicator { context, rank, size, peers } => (8, 0, [context, rank, size], peers, nowhere),
            Self::DeleteCommunicator { comm } => (9, 0, [comm, 0, 0], none, nowhere),
            Self::Publish { into } => (10, 0, [0; 3], into, nowhere),
            Self::LosePeer { peer } => (11, 0, [peer, 0, 0], none, nowhere),
            Self::Acknowledge { comm } => (12, 0, [comm, 0, 0], none, nowhere),
            Self::Register { access, only, memory, key } => (13, access.bits() as u8, [only, 0, 0], memory, key),
            Self::Deregister { registration } => (14, 0, [registration, 0, 0], none, nowhere),
            Self::Put { to, body } => (15, 0, arguments_of(&to), body, to.key),
            Self::Get { from, body } => (16, 0, arguments_of(&from), body, from.key),
            Self::Atomic { at, atomic, flags } => {
                let (flags, operands) = encode_atomic(atomic, flags);
                (17, flags, arguments_of(&at), operands, at.key)
            }
            Self::Count { peer } => (18, 0, [peer, 0, 0], none, nowhere),
            Self::SendFrame { peer, tag, body } => (19, 0, [peer, tag, 0], body, nowhere),
            Self::ReceiveFrame { body } => (20, 0, [0; 3], body, nowhere),
            Self::RegisterHost { memory: HostRange { address, bytes: length }, description, bytes } => {
                (21, 0, [bytes, 0, 0], Body { region: 0, at: address, bytes: length }, description)
            }
            Self::DeregisterHost { region } => (22, 0, [region, 0, 0], none, nowhere),
            Self::Announce { comm, dest, tag, mode, length } => {
                (23, mode as u8, [comm, dest, tag], Body { region: 0, at: 0, bytes: length }, nowhere)
            }
            Self::KeepReady { keep } => (24, u8::from(keep), [0; 3], none, nowhere),
        };
        let ([cookie_low, cookie_high], [a, b, c]) = (halves(cookie), arguments);
        let ([at_low, at_high], [bytes_low, bytes_high]) = (halves(body.at), halves(body.bytes));
        let [key_low, key_high] = halves(key.at);
        let head = u32::from_le_bytes([number, flags, 0, 0]);
        let mut entry = [0; WORDS];
        let used = [
            head,
            cookie_low,
            cookie_high,
            a,
            b,
            c,
            body.region,
            at_low,
            at_high,
            bytes_low,
            bytes_high,
            key_low,
            key_high,
            key.region,
        ];
        for (word, value) in entry.iter_mut().zip(used) {
            *word = value;
        }
        entry
    }

    /// The cookie and the command of an entry. The cookie is right even if the command is not.
    pub fn decode(entry: &Entry) -> (u64, Result<Self, BadCommand>) {
        let [
            head,
            cookie_low,
            cookie_high,
            a,
            b,
            c,
            region,
            at_low,
            at_high,
            bytes_low,
            bytes_high,
            key_low,
            key_high,
            key_region,
            ..,
        ] = *entry;
        let body = Body { region, at: join(at_low, at_high), bytes: join(bytes_low, bytes_high) };
        let key = KeyPlace { region: key_region, at: join(key_low, key_high) };
        let remote = Remote { peer: a, offset: join(b, c), key };
        let [number, flags, 0, 0] = head.to_le_bytes() else {
            return (join(cookie_low, cookie_high), Err(BadCommand::Malformed));
        };
        let command = match (number, flags) {
            (1, 0..=3) => Ok(Self::Send { comm: a, dest: b, tag: c, mode: mode_of(flags), body }),
            (2, 0) => Ok(Self::Receive { comm: a, source: b, tag: c, body }),
            (3, 0..=1) => Ok(Self::Probe { comm: a, source: b, tag: c, take: flags == 1 }),
            (4, 0) => Ok(Self::ReceiveMatched { message: a, body }),
            (5, 0) => Ok(Self::Cancel { cookie: join(a, b) }),
            (6, 0) => Ok(Self::AddPeer { peer: a, card: body }),
            (7, 0) => Ok(Self::DeletePeer { peer: a }),
            (8, 0) => Ok(Self::AddCommunicator { context: a, rank: b, size: c, peers: body }),
            (9, 0) => Ok(Self::DeleteCommunicator { comm: a }),
            (10, 0) => Ok(Self::Publish { into: body }),
            (11, 0) => Ok(Self::LosePeer { peer: a }),
            (12, 0) => Ok(Self::Acknowledge { comm: a }),
            (13, flags) => {
                let access = Access::from_bits_retain(flags.into());
                let is_allowed = RIGHTS.contains(access) && !access.is_empty();
                let register = Self::Register { access, only: a, memory: body, key };
                if is_allowed { Ok(register) } else { Err(BadCommand::Malformed) }
            }
            (14, 0) => Ok(Self::Deregister { registration: a }),
            (15, 0) => Ok(Self::Put { to: remote, body }),
            (16, 0) => Ok(Self::Get { from: remote, body }),
            (17, flags) => match decode_atomic(flags, body) {
                Some((atomic, flags)) => Ok(Self::Atomic { at: remote, atomic, flags }),
                None => Err(BadCommand::Malformed),
            },
            (18, 0) => Ok(Self::Count { peer: a }),
            (19, 0) => Ok(Self::SendFrame { peer: a, tag: b, body }),
            (20, 0) => Ok(Self::ReceiveFrame { body }),
            (21, 0) if a <= DESCRIPTION => Ok(Self::RegisterHost {
                memory: HostRange { address: body.at, bytes: body.bytes },
                description: key,
                bytes: a,
            }),
            (22, 0) => Ok(Self::DeregisterHost { region: a }),
            (23, 0..=3) if (ANNOUNCED..=MOST_ANNOUNCED).contains(&body.bytes) => {
                Ok(Self::Announce { comm: a, dest: b, tag: c, mode: mode_of(flags), length: body.bytes })
            }
            (24, 0..=1) => Ok(Self::KeepReady { keep: flags == 1 }),
            (1..=24, _) => Err(BadCommand::Malformed),
            (unknown, _) => Err(BadCommand::Unknown(unknown)),
        };
        (join(cookie_low, cookie_high), command)
    }
}
