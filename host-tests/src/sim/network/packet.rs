//! Frames under way.

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Lane};

/// A frame.
#[derive(Clone)]
pub(super) struct Packet {
    pub id: u64,
    pub from: u32,
    pub to: u32,
    pub rail: u32,
    /// The sender's connection.
    pub session: Option<u32>,
    pub tag: u8,
    pub lane: Lane,
    pub header: u8,
    pub bytes: Vec<u8>,
    /// The body, as long as it lies with the sender: then `bytes` is the header alone.
    pub in_place: Option<(Span, Cookie)>,
    /// When the body is in.
    pub body_at: u64,
    /// Where a pending delivery goes to: the sink, and the bytes left out before it.
    pub sink: Option<(Span, usize, Cookie)>,
    /// A second copy takes no room.
    pub copy: bool,
    /// Handed over and not yet given back.
    pub held: bool,
}

impl Packet {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.in_place.map_or(0, |(body, _)| body.len() as usize)
    }
}
