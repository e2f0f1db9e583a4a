//! Control frames that arrive: their parsing and checks, and their effects.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::ack_parts::WORDS;
use super::checksum::Checksum;
use super::header::{ACK, ACK_WORDS, Ack, Header, Hello, Kind, TAG, head_check};
use super::numbers::widen;
use super::path::DownReason;
use super::state::Link;
use crate::convertor::copy_slice;
use crate::rail::{FullRail, HEAD};

/// A control frame whose check is right. All but hellos acknowledge frames.
enum Control {
    Hello(Hello),
    Ack(AckInfo, Notice),
}

/// The acknowledgement in a control frame, and its bits.
struct AckInfo {
    /// The first number that did not arrive.
    ack: u64,
    /// The number that the first bit stands for.
    from: u64,
    /// One bit for each number.
    bits: [u64; WORDS],
    /// How many words of `bits` were sent.
    words: usize,
}

/// What a control frame says in addition to its acknowledgement.
enum Notice {
    /// How many frames arrived twice.
    Duplicates(u16),
    /// It answers this probe.
    ProbeAnswer(u16),
    /// It is a probe with this number.
    Probe(u16),
    Goodbye,
    GivenUp,
    /// The bits are numbers that have to be sent again.
    Nack,
    /// The bits, from this number on, are gaps.
    Gaps(u64),
    /// The bits, from this number on, are frames that have migrated.
    Migrated(u64),
}

impl AckInfo {
    fn bits(&self) -> &[u64] {
        self.bits.get(..self.words).unwrap_or(&[])
    }
}

impl Notice {
    /// Whether the bits are numbers of the peer's own frames.
    const fn is_of_senders_numbers(&self) -> bool {
        matches!(self, Self::Gaps(_) | Self::Migrated(_))
    }
}

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Processes a control frame of the peer.
    pub(super) fn on_control(&mut self, at: u32, len: u32, header: &Header, head: &[u8], rest: &[u8]) {
        let (info, notice) = match self.parse_control(at, len, header, head, rest) {
            None => return,
            Some(Control::Hello(hello)) => return self.on_hello(at, &hello),
            Some(Control::Ack(info, notice)) => (info, notice),
        };
        self.on_heard(at);
        // In the upper parts of an acknowledgement in several frames, numbers without a bit may have arrived as well.
        let (acked, all) = match notice {
            Notice::Nack | Notice::Gaps(_) | Notice::Migrated(_) => (&[][..], false),
            _ => (info.bits(), info.from == info.ack),
        };
        if !self.take_ack(at, info.ack, info.from, acked, all) {
            return;
        }
        if !notice.is_of_senders_numbers() {
            self.check_gaps(at); // otherwise two sides that tell each other their gaps would do so forever
        }
        match notice {
            Notice::Duplicates(count) => {
                self.counters.acks_received = self.counters.acks_received.wrapping_add(1);
                self.on_duplicates(at, count);
            }
            Notice::ProbeAnswer(probe) => {
                self.counters.acks_received = self.counters.acks_received.wrapping_add(1);
                self.on_probe_answer(at, probe);
            }
            Notice::Probe(number) => {
                if let Some(path) = self.peers.paths.get_mut(at as usize) {
                    path.due.probe_answer = u32::from(number).wrapping_add(1);
                }
                self.ack_now(at);
            }
            Notice::Goodbye => self.set_down(at, DownReason::Closed),
            Notice::GivenUp => self.set_down(at, DownReason::GivenUp),
            Notice::Nack => self.on_nack(at, info.from, info.bits()),
            Notice::Gaps(first) => self.on_gaps(at, first, info.bits(), false),
            Notice::Migrated(first) => self.on_gaps(at, first, info.bits(), true),
        }
    }

    /// Parses a control frame, and checks it. `None`: it is malformed, came before the handshake, or its check is wrong. Each
    /// is counted.
    fn parse_control(&mut self, at: u32, len: u32, header: &Header, head: &[u8], rest: &[u8]) -> Option<Control> {
        let path = self.peers.paths.get(at as usize)?;
        let kind = rest.first().copied().and_then(Kind::of).filter(|_| len as usize <= HEAD);
        let Some(kind) = kind else {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        };
        if kind != Kind::Hello && !path.session.is_established() {
            self.counters.before_handshake = self.counters.before_handshake.wrapping_add(1);
            return None;
        }
        let (seed, ack) = match kind {
            Kind::Hello => (path.session.hello_seeds[1], 0),
            _ => (path.session.seeds[1], widen(header.ack.get(), path.send.first)),
        };
        let first = match kind {
            Kind::Gaps | Kind::Migrated => widen(header.number.get(), path.receive.base),
            _ => 0,
        };
        if head_check(&self.checksum, seed, TAG, len, [first, ack], head) != header.head_check.get() {
            self.counters.bad_headers = self.counters.bad_headers.wrapping_add(1);
            return None;
        }
        let control = match kind {
            Kind::Hello => Hello::read_from_prefix(rest).ok().map(|(hello, _)| Control::Hello(hello)),
            _ => parse_ack(ack, rest).map(|info| Control::Ack(info, notice(kind, first, header))),
        };
        if control.is_none() {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
        }
        control
    }
}

/// The acknowledgement after a header. `None`: its length is wrong.
fn parse_ack(ack: u64, rest: &[u8]) -> Option<AckInfo> {
    let mut told = Ack::new_zeroed();
    copy_slice(told.as_mut_bytes(), rest);
    let words = usize::from(told.words);
    let fits = rest.len() >= ACK && words <= ACK_WORDS && rest.len() == ACK.wrapping_add(words.wrapping_mul(8));
    // The window has no more numbers than the words of this side.
    let bits = core::array::from_fn(|index| told.bits.get(index).map_or(0, |word| word.get()));
    fits.then(|| AckInfo { ack, from: widen(told.from.get(), ack), bits, words: words.min(WORDS) })
}

fn notice(kind: Kind, first: u64, header: &Header) -> Notice {
    let number = header.number.get();
    match kind {
        Kind::Hello | Kind::Ack if header.body_check.get() == 0 => Notice::Duplicates(number),
        Kind::Hello | Kind::Ack => Notice::ProbeAnswer(number),
        Kind::Probe => Notice::Probe(number),
        Kind::Goodbye => Notice::Goodbye,
        Kind::GivenUp => Notice::GivenUp,
        Kind::Nack => Notice::Nack,
        Kind::Gaps => Notice::Gaps(first),
        Kind::Migrated => Notice::Migrated(first),
    }
}
