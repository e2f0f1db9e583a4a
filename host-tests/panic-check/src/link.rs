//! Links, over a rail that is opaque to the optimiser.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::link::{Checksum, Config, Crc32c, Link, SmallCrc32c};
use towline_core::rail::{Peer, Rail};

use crate::opaque::Opaque;
use crate::{any, bytes, keep, loopback};

/// Reaches all functions of links.
pub fn reach() {
    let mut memory = [0; 4096];
    keep(Crc32c.sum(any(0), bytes(&mut memory)));
    keep(SmallCrc32c.sum(any(0), bytes(&mut memory)));
    let _ = link(&mut Arena::new(bytes(&mut memory)));
}

fn link(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    let raw = Opaque;
    let config = any(Config::new(any(0), any(0), raw.attributes()));
    keep(config.bytes(&raw));
    keep(config.bytes_over(raw.attributes(), any(0)));
    let mut link = Link::new(raw, Crc32c, config, arena)?;
    keep((
        link.counters().list(),
        link.used(),
        link.has_answered(any(Peer(0))),
        link.raw().poll_at(),
        link.raw_mut().arm(),
    ));
    loopback::rail(&mut link);
    keep(link.into_raw());
    Ok(())
}
