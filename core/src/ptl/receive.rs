//! Frames that arrive: the check of their headers, and the upcall that each of them makes.

use zerocopy::FromBytes;

use crate::rail::{Frame, Peer, REMOTE_BUFFER_BYTES, SINGLE_COPY};
use crate::wire::{self, Common, Kind};

/// The functions of floor 3 for frames that arrive. The contract's three upcalls are [`first`](Self::first) (`ptl_match`),
/// [`fragment`](Self::fragment) (`ptl_recv_progress`) and [`acked`](Self::acked) (`ptl_send_progress`). The engine is one
/// implementation; a test or a tracer may be another (CONTRACTS P31).
pub trait Upcalls {
    /// Credit came back with a frame of any kind. Called before the upcall for the frame.
    fn credit(&mut self, from: Peer, envelopes: u16, units: u16);
    /// A first fragment. The body begins at [`First::header`] and may not have arrived yet. Returns whether a receive matched.
    fn first(&mut self, frame: &Frame, first: First) -> bool;
    /// A later fragment, for the receive that the header names.
    fn fragment(&mut self, frame: &Frame, header: wire::Fragment);
    /// The peer has matched a message of this side. It wants the other bytes now, or says that it will ask for them later.
    fn acked(&mut self, from: Peer, header: wire::Ack);
    /// The peer has matched a message of this side, and wants no more of it.
    fn finished(&mut self, from: Peer, header: wire::Finish);
    /// The peer has refused a message of this side.
    fn rejected(&mut self, from: Peer, header: wire::Reject);
    /// The peer holds back messages for lack of credit.
    fn held(&mut self, from: Peer, header: wire::Held);
    /// The peer asks for a message that is held back here.
    fn asked(&mut self, from: Peer, header: wire::Ask);
    /// The peer has no message for an ask.
    fn nothing(&mut self, from: Peer, header: wire::Nothing);
    /// The peer offers memory that a device of this side may access.
    fn offered(&mut self, from: Peer, header: wire::Offer);
    /// A device of the peer has moved the offered bytes.
    fn performed(&mut self, from: Peer, header: wire::Performed);
    /// The peer asks whether this side makes progress.
    fn keepalive(&mut self, from: Peer);
    /// The peer has given up this side, which seemed to be stalled.
    fn given_up(&mut self, from: Peer);
    /// A frame without a valid header of this version.
    fn malformed(&mut self, frame: &Frame);
}

/// The header of a first fragment, eager or rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct First {
    /// Context of the communicator.
    pub context: u32,
    /// Tag of the message.
    pub tag: u32,
    /// Number of the message, cut to 32 bits.
    pub sequence: u32,
    /// The flags: `wire::FLAG_*`.
    pub flags: u8,
    /// Bytes of the header: where the body begins in the frame.
    pub header: u8,
    /// Whether the sender waits for an answer: it sent a rendezvous header.
    pub rendezvous: bool,
    /// The sender's handle, 0 in an eager message.
    pub sender: u64,
    /// Bytes of the whole message.
    pub total: u64,
}

/// The header of an eager message, for a path that is faster than [`Upcalls::first`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortHeader {
    pub context: u32,
    pub tag: u32,
    pub sequence: u32,
    /// Credit that the frame carries: envelopes in the low half, units in the high half.
    pub credit: u32,
}

/// The header of a short frame with the engine's [`TAG`](super::TAG), if it is an eager message.
#[inline(always)]
pub(crate) fn short_message(header: [u64; 3]) -> Option<ShortHeader> {
    let [first, second, third] = header.map(u64::from_le);
    (first as u8 == Kind::Match.byte()).then_some(ShortHeader {
        context: (second >> 32) as u32,
        tag: third as u32,
        sequence: (third >> 32) as u32,
        credit: (first >> 16) as u32,
    })
}

/// Makes the upcall of a frame. A frame is malformed if it is shorter than its header, or longer than the header allows, or if
/// its version or kind is not known.
#[inline]
pub fn receive<U: Upcalls>(frame: &Frame, upcalls: &mut U) {
    let head = frame.head();
    // The kind that matters most for latency: one check of length and kind.
    if let Ok((header, _)) = wire::Match::read_from_prefix(head)
        && wire::kind(head) == Some(Kind::Match)
        && let Some(body) = frame.len.checked_sub(size_of::<wire::Match>() as u32)
    {
        give_credit(frame.from, &header.common, upcalls);
        let first = First {
            context: header.context.get(),
            tag: header.tag.get(),
            sequence: header.sequence.get(),
            flags: 0,
            header: size_of::<wire::Match>() as u8,
            rendezvous: false,
            sender: 0,
            total: u64::from(body),
        };
        upcalls.first(frame, first);
        return;
    }
    receive_other(frame, upcalls);
}

#[inline(always)]
fn give_credit<U: Upcalls>(from: Peer, common: &Common, upcalls: &mut U) {
    if common.has_credit() {
        upcalls.credit(from, common.envelopes.get(), common.units.get());
    }
}

#[inline(never)]
fn receive_other<U: Upcalls>(frame: &Frame, upcalls: &mut U) {
    let head = frame.head();
    if let Some(kind) = wire::kind(head)
        && let Ok((common, _)) = Common::read_from_prefix(head)
    {
        give_credit(frame.from, &common, upcalls);
        if dispatch(kind, common.flags, frame, upcalls).is_some() {
            return;
        }
    }
    upcalls.malformed(frame);
}

#[inline]
fn dispatch<U: Upcalls>(kind: Kind, flags: u8, frame: &Frame, upcalls: &mut U) -> Option<()> {
    let head = frame.head();
    let body = (frame.len as usize).checked_sub(kind.header_len())?;
    let from = frame.from;
    match kind {
        Kind::Rendezvous => {
            let (header, _) = wire::Rendezvous::read_from_prefix(head).ok()?;
            let first = First {
                context: header.context.get(),
                tag: header.tag.get(),
                sequence: header.sequence.get(),
                flags,
                header: size_of::<wire::Rendezvous>() as u8,
                rendezvous: true,
                sender: header.sender.get(),
                total: header.total.get(),
            };
            let fits = if flags & wire::FLAG_EXPOSED != 0 {
                SINGLE_COPY && body == REMOTE_BUFFER_BYTES && flags & wire::FLAG_ANSWER == 0
            } else {
                body as u64 <= first.total
            };
            if !fits {
                return None;
            }
            upcalls.first(frame, first);
            return Some(());
        }
        Kind::Fragment => {
            let (header, _) = wire::Fragment::read_from_prefix(head).ok()?;
            upcalls.fragment(frame, header);
            return Some(());
        }
        _ => {}
    }
    if body != 0 {
        return None; // control frames have no body
    }
    match kind {
        Kind::Ack => upcalls.acked(from, wire::Ack::read_from_prefix(head).ok()?.0),
        Kind::Finish => upcalls.finished(from, wire::Finish::read_from_prefix(head).ok()?.0),
        Kind::Reject => upcalls.rejected(from, wire::Reject::read_from_prefix(head).ok()?.0),
        Kind::Held => upcalls.held(from, wire::Held::read_from_prefix(head).ok()?.0),
        Kind::Ask => upcalls.asked(from, wire::Ask::read_from_prefix(head).ok()?.0),
        Kind::Nothing => upcalls.nothing(from, wire::Nothing::read_from_prefix(head).ok()?.0),
        // A peer offers memory to devices alone.
        Kind::Offer | Kind::Performed if !SINGLE_COPY => return None,
        Kind::Offer => upcalls.offered(from, wire::Offer::read_from_prefix(head).ok()?.0),
        Kind::Performed => upcalls.performed(from, wire::Performed::read_from_prefix(head).ok()?.0),
        Kind::Match => return None, // see `receive`
        Kind::Credit
            if flags & (wire::FLAG_KEEPALIVE | wire::FLAG_ANSWER) == wire::FLAG_KEEPALIVE | wire::FLAG_ANSWER =>
        {
            upcalls.given_up(from);
        }
        Kind::Credit if flags & wire::FLAG_KEEPALIVE != 0 => upcalls.keepalive(from),
        Kind::Credit | Kind::Rendezvous | Kind::Fragment => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Handle;
    use crate::rail::native::{KEY, Key};
    use crate::rail::{FrameId, HEAD};
    use std::{vec, vec::Vec};
    use zerocopy::IntoBytes;

    /// A tracer in place of the engine.
    #[derive(Default)]
    struct Tracer(Vec<&'static str>);

    impl Upcalls for Tracer {
        fn credit(&mut self, _: Peer, _: u16, _: u16) {
            self.0.push("credit");
        }
        fn first(&mut self, _: &Frame, first: First) -> bool {
            self.0.push(if first.rendezvous { "rendezvous" } else { "match" });
            false
        }
        fn fragment(&mut self, _: &Frame, _: wire::Fragment) {
            self.0.push("fragment");
        }
        fn acked(&mut self, _: Peer, _: wire::Ack) {
            self.0.push("ack");
        }
        fn finished(&mut self, _: Peer, _: wire::Finish) {
            self.0.push("finish");
        }
        fn rejected(&mut self, _: Peer, _: wire::Reject) {
            self.0.push("reject");
        }
        fn held(&mut self, _: Peer, _: wire::Held) {
            self.0.push("held");
        }
        fn asked(&mut self, _: Peer, _: wire::Ask) {
            self.0.push("ask");
        }
        fn nothing(&mut self, _: Peer, _: wire::Nothing) {
            self.0.push("nothing");
        }
        fn offered(&mut self, _: Peer, _: wire::Offer) {
            self.0.push("offer");
        }
        fn performed(&mut self, _: Peer, _: wire::Performed) {
            self.0.push("performed");
        }
        fn keepalive(&mut self, _: Peer) {
            self.0.push("question");
        }
        fn given_up(&mut self, _: Peer) {
            self.0.push("given up");
        }
        fn malformed(&mut self, _: &Frame) {
            self.0.push("malformed");
        }
    }

    fn trace(bytes: &[u8], len: usize) -> Vec<&'static str> {
        let mut head = [0; HEAD];
        let valid = bytes.len().min(HEAD);
        head.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let frame =
            Frame { id: FrameId(0), from: Peer(1), tag: super::super::TAG, valid: valid as u8, len: len as u32, head };
        let mut tracer = Tracer::default();
        receive(&frame, &mut tracer);
        tracer.0
    }

    #[test]
    fn p31_each_kind_makes_its_upcall_on_whatever_is_plugged_in() {
        let mut header = wire::Match::new(1, 2, 3);
        assert_eq!(trace(header.as_bytes(), 24), ["match"]);
        header.common.envelopes.set(1);
        assert_eq!(trace(header.as_bytes(), 5000), ["credit", "match"]);
        assert_eq!(trace(wire::Rendezvous::new(1, 2, 3, Handle::NONE, 50).as_bytes(), 90), ["rendezvous"]);
        assert_eq!(trace(wire::Fragment::new(1, 2).as_bytes(), 100), ["fragment"]);
        assert_eq!(trace(wire::Ack::new(1, Handle::NONE, 2).as_bytes(), 40), ["ack"]);
        assert_eq!(trace(wire::Finish::new(1).as_bytes(), 20), ["finish"]);
        assert_eq!(trace(wire::Offer::new(1, 2, 3, Key([4; KEY])).as_bytes(), 56), ["offer"]);
        assert_eq!(trace(wire::Performed::new(1, 2, 3).as_bytes(), 32), ["performed"]);
        assert_eq!(trace(wire::Reject::new(1, wire::Reason::Unmatched).as_bytes(), 24), ["reject"]);
        let mut question = wire::Credit::new();
        assert_eq!(trace(question.as_bytes(), 12), vec![""; 0]);
        question.common.flags = wire::FLAG_KEEPALIVE;
        assert_eq!(trace(question.as_bytes(), 12), ["question"]);
        question.common.flags |= wire::FLAG_ANSWER;
        assert_eq!(trace(question.as_bytes(), 12), ["given up"]);
        assert_eq!(trace(wire::Held::new(1).as_bytes(), 16), ["held"]);
        assert_eq!(trace(wire::Ask::new(1, 2).as_bytes(), 20), ["ask"]);
        assert_eq!(trace(wire::Nothing::new(1).as_bytes(), 16), ["nothing"]);
    }

    #[test]
    fn p33_inconsistent_headers_are_malformed() {
        assert_eq!(trace(&[], 0), ["malformed"]);
        assert_eq!(trace(&[0x21; 24], 24), ["malformed"]); // another version
        assert_eq!(trace(wire::Match::new(1, 2, 3).as_bytes(), 23), ["malformed"]); // length and bytes contradict each other
        assert_eq!(trace(wire::Rendezvous::new(1, 2, 3, Handle::NONE, 50).as_bytes(), 91), ["malformed"]);
        assert_eq!(trace(wire::Finish::new(1).as_bytes(), 21), ["malformed"]);
    }
}
