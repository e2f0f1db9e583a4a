//! The module exchange: sets from peers, and the board.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::modex::{
    Board, BoardConfig, Component, Edition, Instances, Modex, Set, SetWriter, Version, entry_size,
};
use towline_core::time::Instant;

use crate::{any, bytes, format, keep};

/// Reaches all functions of the module exchange.
pub fn reach() {
    let mut buffer = [0; 4096];
    parse(bytes(&mut buffer));
    write(bytes(&mut buffer));
    let _ = board(&mut Arena::new(bytes(&mut buffer)));
}

fn component() -> Component<'static> {
    let version = Version::new(any(0), any(0), any(0));
    Component { mca: any(version), kind: any(""), kind_version: any(version), name: any(""), version }
}

fn parse(input: &[u8]) {
    match Set::parse(input) {
        Ok(set) => {
            keep((set.rank(), set.edition(), set.len(), set.is_empty(), set.find(&component())));
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
    if let Some(mut writer) = SetWriter::new(buffer, any(0), any(Edition { incarnation: 0, revision: 0 })) {
        while let Ok(()) = writer.entry(&component(), any(0), bytes(&mut data)) {}
        keep(writer.finish());
    }
}

fn board(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    let config = any(BoardConfig::default());
    keep(config.memory());
    let mut board = Board::new(config, arena)?;
    let mut buffer = [0; 256];
    loop {
        match any(0) {
            0 => keep((board.revision(), board.encoded_len(), board.rank(), board.size())),
            1 => keep(board.encode(bytes(&mut buffer))),
            2 => match board.absorb(bytes(&mut buffer)) {
                Ok(absorbed) => keep(absorbed),
                Err(error) => format(error),
            },
            3 => match board.send(&component(), bytes(&mut buffer)) {
                Ok(()) => {}
                Err(error) => {
                    keep(error.blame());
                    format(error);
                }
            },
            4 => match board.recv(&component(), any(0), bytes(&mut buffer)) {
                Ok(len) => keep(len),
                Err(error) => format(error),
            },
            5 => match board.recv_nb(&component(), any(0)) {
                Ok(watch) => keep(watch),
                Err(error) => format(error),
            },
            6 => keep(board.next_change()),
            7 => match board.exchange(Instant::from_nanos(any(0)), Instant::from_nanos(any(0))) {
                Ok(exchange) => keep(exchange),
                Err(error) => format(error),
            },
            8 => board.finalize(),
            _ => return Ok(()),
        }
    }
}
