//! Frames of the other link's own.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::checksum::Checksum;
use super::header::{ACK, ACK_WORDS, Ack, Header, Hello, Kind, TAG, head_check};
use super::numbers::widen;
use super::path::Why;
use super::state::Link;
use crate::rail::{FullRail, HEAD};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A frame of the other link's own.
    pub(super) fn on_own(&mut self, at: u32, len: u32, header: &Header, head: &[u8], rest: &[u8]) {
        let kind = rest.first().copied().and_then(Kind::of);
        let Some(path) = self.paths.get(at as usize) else { return };
        let (kind, known) = match kind {
            Some(kind) if len as usize <= HEAD => (kind, path.met() || kind == Kind::Hello),
            _ => {
                self.counters.malformed = self.counters.malformed.wrapping_add(1);
                return;
            }
        };
        if !known {
            self.counters.early = self.counters.early.wrapping_add(1);
            return;
        }
        let (seed, ack) = match kind {
            Kind::Hello => (path.hello_seeds[1], 0),
            _ => (path.seeds[1], widen(header.ack.get(), path.first)),
        };
        let numbers = matches!(kind, Kind::Void | Kind::Away);
        let number = if numbers { widen(header.number.get(), path.base) } else { 0 };
        if head_check(&self.sums, seed, TAG, len, [number, ack], head) != header.head_check.get() {
            self.counters.bad_heads = self.counters.bad_heads.wrapping_add(1);
            return;
        }
        if kind == Kind::Hello {
            match Hello::read_from_prefix(rest) {
                Ok((hello, _)) => self.on_hello(at, &hello),
                Err(_) => self.counters.malformed = self.counters.malformed.wrapping_add(1),
            }
            return;
        }
        let mut told = Ack::new_zeroed();
        told.as_mut_bytes().iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        let words = usize::from(told.words);
        if rest.len() < ACK || words > ACK_WORDS || rest.len() != ACK.wrapping_add(words.wrapping_mul(8)) {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return;
        }
        self.heard(at);
        let from = widen(told.from.get(), ack);
        let came = told.came.map(U64::get);
        let bits = came.get(..words).unwrap_or(&[]);
        // The others of several say less.
        let (told, all) = if numbers || kind == Kind::Wanted { (&[][..], false) } else { (bits, from == ack) };
        if !self.take_ack(at, ack, from, told, all) {
            return;
        }
        if !numbers {
            self.see_voids(at); // or two that are told so would answer each other
        }
        match kind {
            Kind::Ack => {
                self.counters.acks_received = self.counters.acks_received.wrapping_add(1);
                match header.body_check.get() {
                    0 => self.on_doubles(at, header.number.get()),
                    _ => self.on_answer(at, header.number.get()),
                }
            }
            Kind::Probe => {
                if let Some(path) = self.paths.get_mut(at as usize) {
                    path.answer = u32::from(header.number.get()).wrapping_add(1);
                }
                self.ack_now(at);
            }
            Kind::Bye => self.down(at, Why::Closed),
            Kind::GivenUp => self.down(at, Why::GivenUp),
            Kind::Wanted => self.on_wanted(at, from, bits),
            Kind::Void => self.on_gone(at, number, bits, false),
            Kind::Away => self.on_gone(at, number, bits, true),
            Kind::Hello => {}
        }
    }
}
