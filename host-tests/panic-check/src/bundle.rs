//! Bundles of links, over rails that are opaque to the optimiser.

use towline_core::arena::Arena;
use towline_core::rail::bundle::{Bundle, BundleError, Config};

use crate::opaque::Opaque;
use crate::{any, bytes, keep, loopback};

/// Reaches all functions of bundles.
pub fn reach() {
    let mut memory = [0; 4096];
    let _ = bundle(&mut Arena::new(bytes(&mut memory)));
}

fn bundle(arena: &mut Arena<'_>) -> Result<(), BundleError> {
    let config = any(Config { peers: 0, deliveries: 0 });
    let links = [Opaque, Opaque, Opaque];
    keep(config.bytes(&links));
    let mut bundle = Bundle::new(links, config, arena)?;
    keep((bundle.counters(), bundle.links().len(), bundle.links_mut().len()));
    loopback::rail(&mut bundle);
    keep(bundle.into_links());
    Ok(())
}
