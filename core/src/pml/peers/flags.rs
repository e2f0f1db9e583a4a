//! The flags of a peer.

/// The peer is in the work list.
pub(crate) const QUEUED: u16 = 0x0001;

/// The peer holds messages back from us.
pub(crate) const HOLDING: u16 = 0x0002;

/// We asked the peer, and wait for an answer or for nothing.
pub(crate) const ASKING: u16 = 0x0004;

/// What we asked was for a probe.
pub(crate) const ASKING_PROBE: u16 = 0x0008;

/// A probe found nothing: ask for it.
pub(crate) const PROBE: u16 = 0x0010;

/// The peer asked, and is to be answered.
pub(crate) const ASKED: u16 = 0x0020;

/// What the peer asked is for a probe.
pub(crate) const ASKED_PROBE: u16 = 0x0040;

/// We hold messages back, and have told so since the last was added.
pub(crate) const ANNOUNCED: u16 = 0x0080;

/// Credit is to be sent without waiting for a frame that it could ride on.
pub(crate) const CREDIT_DUE: u16 = 0x0100;

/// `reject` is to be sent.
pub(crate) const REJECT_DUE: u16 = 0x0200;

/// What we asked was for any tag.
pub(crate) const ASKING_WIDE: u16 = 0x0400;

/// An ask found nothing since the last notice: the next message that is held back brings another.
pub(crate) const ASK_EMPTY: u16 = 0x0800;

/// The peer failed, and nobody has asked who did.
pub(crate) const FAILURE_UNREPORTED: u16 = 0x8000;

/// A message to the peer is lent, and the peer has yet to say that it is done with it.
pub(crate) const EXPOSING: u16 = 0x1000;

/// A link to the peer is down, and may have frames that others are to carry.
pub(crate) const MIGRATING: u16 = 0x2000;

/// All rails to the peer can fail over, so any of them must take what another could not deliver: their least limits count.
pub(crate) const LINKED: u16 = 0x4000;

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
