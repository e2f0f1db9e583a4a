//! The flags of a peer. "We" is this engine, "the peer" the other one.

// Lists.

/// The peer is in the engine's work list.
pub(crate) const QUEUED: u16 = 0x0001;

// We ask the peer: it holds messages back, and a receive or a probe of ours may want one.

/// The peer holds messages back from us.
pub(crate) const HOLDING: u16 = 0x0002;
/// We asked the peer, and wait for an answer or a [`Nothing`](crate::wire::Nothing).
pub(crate) const ASKING: u16 = 0x0004;
/// Our ask was for a probe.
pub(crate) const ASKING_PROBE: u16 = 0x0008;
/// Our ask was for any tag.
pub(crate) const ASKING_WIDE: u16 = 0x0400;
/// A probe of ours found nothing: the peer is to be asked for its message.
pub(crate) const PROBE: u16 = 0x0010;
/// An answer of the peer is to be sent back: a reject is due.
pub(crate) const REJECT_DUE: u16 = 0x0200;

// The peer asks us: we hold messages back.

/// The peer asked, and is to be answered.
pub(crate) const ASKED: u16 = 0x0020;
/// The peer's ask was for a probe.
pub(crate) const ASKED_PROBE: u16 = 0x0040;
/// The peer has a notice of all messages that we hold back.
pub(crate) const ANNOUNCED: u16 = 0x0080;
/// An ask of the peer found nothing since the last notice: the next message that we hold back brings another notice.
pub(crate) const ASK_EMPTY: u16 = 0x0800;

// Credit, single copy, failover and failure.

/// A credit frame is due: the credit does not wait for another frame to ride on.
pub(crate) const CREDIT_DUE: u16 = 0x0100;
/// A message to the peer is exposed for single copy, and the peer has yet to answer.
pub(crate) const EXPOSING: u16 = 0x1000;
/// A link to the peer is down, and may have frames that other links are to carry.
pub(crate) const MIGRATING: u16 = 0x2000;
/// All rails to the peer can fail over. Each of them must be able to carry the undelivered frames of another, so the smallest
/// limits apply.
pub(crate) const LINKED: u16 = 0x4000;
/// The peer failed, and the failure was not reported yet.
pub(crate) const FAILURE_UNREPORTED: u16 = 0x8000;

/// Each flag has a bit of its own.
const _: () = {
    let flags = [
        QUEUED,
        HOLDING,
        ASKING,
        ASKING_PROBE,
        PROBE,
        ASKED,
        ASKED_PROBE,
        ANNOUNCED,
        CREDIT_DUE,
        REJECT_DUE,
        ASKING_WIDE,
        ASK_EMPTY,
        EXPOSING,
        MIGRATING,
        LINKED,
        FAILURE_UNREPORTED,
    ];
    let (mut seen, mut rest) = (0u16, flags.as_slice());
    while let [flag, others @ ..] = rest {
        assert!(flag.is_power_of_two() && seen & *flag == 0);
        (seen, rest) = (seen | *flag, others);
    }
};
