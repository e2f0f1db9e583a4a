//! The module exchange: sets from peers, and the store.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::modex::{
    Component, Instances, Modex, Set, SetWriter, Stamp, Store, StoreConfig, Version, entry_size,
};
use towline_core::time::Instant;

use crate::{any, bytes, format, keep};

/// Reaches all functions of the module exchange.
pub fn reach() {
    let mut buffer = [0; 4096];
    parse(bytes(&mut buffer));
    write(bytes(&mut buffer));
    let _ = store(&mut Arena::new(bytes(&mut buffer)));
}

fn component() -> Component<'static> {
    let version = Version::new(any(0), any(0), any(0));
    Component { mca: any(version), kind: any(""), kind_version: any(version), name: any(""), version }
}

fn parse(input: &[u8]) {
    match Set::parse(input) {
        Ok(set) => {
            keep((set.rank(), set.stamp(), set.len(), set.is_empty(), set.find(&component())));
            for entry in set.entries() {
                keep(entry);
            }
        }
        Err(error) => format(error),
    }
    match Instances::parse(input) {
        Ok(instances) => {
            keep((instances.size(), instances.count(), instances.get(any(0))));
            for instance in instances.iter() {
                keep(instance);
            }
        }
        Err(error) => format(error),
    }
}

fn write(buffer: &mut [u8]) {
    let mut data = [0; 64];
    keep(Instances::frame(any(0), bytes(&mut data), buffer));
    keep(entry_size(&component(), any(0)));
    keep((component().corresponds(&component()), component().is_valid()));
    format(component());
    if let Some(mut writer) = SetWriter::new(buffer, any(0), any(Stamp { incarnation: 0, revision: 0 })) {
        while let Ok(()) = writer.entry(&component(), any(0), bytes(&mut data)) {}
        keep(writer.finish());
    }
}

fn store(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    let config = any(StoreConfig::default());
    keep(config.memory());
    let mut store = Store::new(config, arena)?;
    let mut buffer = [0; 256];
    loop {
        match any(0) {
            0 => keep((store.revision(), store.encoded_len(), store.rank(), store.size())),
            1 => keep(store.encode(bytes(&mut buffer))),
            2 => match store.merge(bytes(&mut buffer)) {
                Ok(merged) => keep(merged),
                Err(error) => format(error),
            },
            3 => match store.send(&component(), bytes(&mut buffer)) {
                Ok(()) => {}
                Err(error) => {
                    keep(error.blame());
                    format(error);
                }
            },
            4 => match store.recv(&component(), any(0), bytes(&mut buffer)) {
                Ok(len) => keep(len),
                Err(error) => format(error),
            },
            5 => match store.recv_nb(&component(), any(0)) {
                Ok(watch) => keep(watch),
                Err(error) => format(error),
            },
            6 => keep(store.next_change()),
            7 => match store.exchange(Instant::from_nanos(any(0)), Instant::from_nanos(any(0))) {
                Ok(exchange) => keep(exchange),
                Err(error) => format(error),
            },
            8 => store.finalize(),
            _ => return Ok(()),
        }
    }
}
