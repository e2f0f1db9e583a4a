//! The module exchange: what comes from peers, and the board.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::modex::{
    Board, BoardConfig, Component, Edition, Instances, Modex, Set, SetWriter, Version, entry_size,
};
use towline_core::time::Instant;

use crate::{any, bytes, keep, say};

/// Reaches all of it.
pub fn reach() {
    let mut room = [0; 4096];
    parse(bytes(&mut room));
    write(bytes(&mut room));
    let _ = board(&mut Arena::new(bytes(&mut room)));
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
        Err(error) => say(error),
    }
    match Instances::parse(input) {
        Ok(instances) => {
            keep((instances.size(), instances.count(), instances.get(any(0))));
            for instance in instances.iter() {
                keep(instance);
            }
        }
        Err(error) => say(error),
    }
}

fn write(room: &mut [u8]) {
    let mut data = [0; 64];
    keep(Instances::frame(any(0), bytes(&mut data), room));
    keep(entry_size(&component(), any(0)));
    keep((component().corresponds(&component()), component().is_valid()));
    say(component());
    if let Some(mut writer) = SetWriter::new(room, any(0), any(Edition { incarnation: 0, revision: 0 })) {
        while let Ok(()) = writer.entry(&component(), any(0), bytes(&mut data)) {}
        keep(writer.finish());
    }
}

fn board(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    let config = any(BoardConfig::default());
    keep(config.memory());
    let mut board = Board::new(config, arena)?;
    let mut room = [0; 256];
    loop {
        match any(0) {
            0 => keep((board.revision(), board.encoded_len(), board.rank(), board.size())),
            1 => keep(board.encode(bytes(&mut room))),
            2 => match board.absorb(bytes(&mut room)) {
                Ok(absorbed) => keep(absorbed),
                Err(error) => say(error),
            },
            3 => match board.send(&component(), bytes(&mut room)) {
                Ok(()) => {}
                Err(error) => {
                    keep(error.blame());
                    say(error);
                }
            },
            4 => match board.recv(&component(), any(0), bytes(&mut room)) {
                Ok(len) => keep(len),
                Err(error) => say(error),
            },
            5 => match board.recv_nb(&component(), any(0)) {
                Ok(watch) => keep(watch),
                Err(error) => say(error),
            },
            6 => keep(board.next_change()),
            7 => match board.exchange(Instant::from_nanos(any(0)), Instant::from_nanos(any(0))) {
                Ok(exchange) => keep(exchange),
                Err(error) => say(error),
            },
            8 => board.finalize(),
            _ => return Ok(()),
        }
    }
}
