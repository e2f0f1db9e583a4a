//! Frames as text, for the trace that `TOWLINE_TRACE` turns on.

use towline_core::wire;

/// The engine's header as text.
pub(super) fn describe(bytes: &[u8]) -> String {
    use zerocopy::FromBytes;

    macro_rules! header {
        ($name:ident $($field:ident)*) => {
            wire::$name::read_from_prefix(bytes).map_or(String::new(), |(header, _)| {
                let common = header.common;
                let (flags, envelopes, units) = (common.flags, common.envelopes.get(), common.units.get());
                #[allow(unused_mut)]
                let mut text = format!("{} flags {flags:x} credit {envelopes} {units}", stringify!($name));
                $(text += &format!(" {} {:x}", stringify!($field), header.$field.get());)*
                text
            })
        };
    }
    match wire::kind(bytes) {
        Some(wire::Kind::Match) => header!(Match context tag sequence),
        Some(wire::Kind::Rendezvous) => header!(Rendezvous context tag sequence sender total),
        Some(wire::Kind::Ack) => header!(Ack sender receiver wanted by_frames),
        Some(wire::Kind::Fragment) => header!(Fragment receiver offset),
        Some(wire::Kind::Finish) => header!(Finish sender),
        Some(wire::Kind::Reject) => header!(Reject sender reason),
        Some(wire::Kind::Credit) => header!(Credit),
        Some(wire::Kind::Held) => header!(Held notice),
        Some(wire::Kind::Ask) => header!(Ask context tag),
        Some(wire::Kind::Nothing) => header!(Nothing notice),
        Some(wire::Kind::Offer) => header!(Offer request offset len),
        Some(wire::Kind::Performed) => header!(Performed request offset len),
        None => String::new(),
    }
}
