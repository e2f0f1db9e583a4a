//! The matcher and the selection of rails.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::btl::selection::{Candidate, Report, select};
use towline_core::pml::matching::{Key, Matcher, Pattern};
use towline_core::rail::{Capabilities, Endpoint, Peer, Unreachable, tags};

use crate::{any, bytes, format, keep};

/// Reaches all functions of the matcher and the selection.
pub fn reach() {
    let mut memory = [0; 4096];
    let _ = matcher(&mut Arena::new(bytes(&mut memory)));
    selection();
}

fn matcher(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    keep(Matcher::cost(any(0), any(0)));
    let mut matcher = Matcher::new(arena, any(0), any(0), any(0))?;
    loop {
        let key = Key { context: any(0), source: any(0), tag: any(0) };
        let pattern = Pattern { context: any(0), source: any(0), tag: any(0) };
        match any(0) {
            0 => matcher.post(any(0), pattern),
            1 => keep(matcher.unpost(any(0))),
            2 => keep(matcher.take_posted(&key)),
            3 => keep(matcher.peek_posted(&key)),
            4 => keep(matcher.posted(any(0))),
            5 => keep(matcher.next_posted(any(None))),
            6 => matcher.add_unexpected(any(0), key),
            7 => keep(matcher.find_unexpected(&pattern)),
            8 => keep(matcher.remove_unexpected(any(0))),
            9 => keep(matcher.unexpected(any(0))),
            10 => keep(matcher.next_unexpected(any(None))),
            11 => keep((matcher.posted_len(), matcher.unexpected_len(), matcher.counters(), pattern.accepts(&key))),
            _ => return Ok(()),
        }
    }
}

fn selection() {
    keep((tags::framework(any(0)), tags::private(any(0))));
    let mut rails = [Candidate::new(any(""), any(0), any(Capabilities::SEND)); 3];
    let len = any(rails.len());
    let rails = rails.get_mut(..len).unwrap_or(&mut []);
    keep(select(rails, |rail| match any(rail) {
        0 => Ok(Endpoint(any(0))),
        _ => Err(any(Unreachable::Full)),
    }));
    for rail in rails.iter() {
        keep((rail.for_messages(), rail.for_one_sided(), rail.for_spare()));
    }
    format(Report { peer: Peer(any(0)), rails: any(rails) });
}
