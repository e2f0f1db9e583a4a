//! Frames in flight.

use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Lane};

/// A frame in flight.
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
    /// The body, while it is left in place at the sender. Then `bytes` holds the header only.
    pub in_place: Option<(Span, Cookie)>,
    /// When the body has arrived.
    pub body_at: u64,
    /// The target of a pending delivery: the sink, and the number of bytes to skip.
    pub sink: Option<(Span, usize, Cookie)>,
    /// A duplicate. It occupies no slot.
    pub copy: bool,
    /// Received and not yet released.
    pub held: bool,
}

impl Packet {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.in_place.map_or(0, |(body, _)| body.len() as usize)
    }
}
