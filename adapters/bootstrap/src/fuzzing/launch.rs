//! Fuzzes messages of remote shells and agents, and files of hosts.

use std::fmt::Debug;

use serde::{Serialize, de::DeserializeOwned};

use crate::launch::hosts::place;
use crate::launch::message::{self, Order, Report};
use crate::launch::{Host, Mapping};

/// Text of a remote shell, and messages after it in both directions.
pub(crate) fn messages(data: &[u8]) {
    let mut rest = data;
    if let Ok((noise, true)) = message::skip_to_mark(&mut rest) {
        assert!(data.starts_with(&noise) && noise.len() + message::MARK.len() + rest.len() == data.len());
    }
    for mut from in [rest, data] {
        all::<Report>(from);
        all::<Order>(from);
        from = from.get(1..).unwrap_or_default();
        all::<Order>(from);
    }
}

fn all<M: Serialize + DeserializeOwned + Debug>(mut from: &[u8]) {
    while let Ok(Some(read)) = message::read::<M>(&mut from) {
        let mut written = Vec::new();
        message::write(&mut written, &read).expect("a message that was read is not too long");
        let again = message::read::<M>(&mut &written[..])
            .expect("a message that was written can be read")
            .expect("one message is there");
        assert_eq!(format!("{again:?}"), format!("{read:?}"));
    }
}

pub(crate) fn hosts(data: &[u8]) {
    let (size, text) = data.split_first().map_or((0, data), |(size, rest)| (u32::from(*size), rest));
    let Ok(hosts) = Host::parse_list(&String::from_utf8_lossy(text)) else { return };
    let lines: Vec<_> = hosts.iter().map(|host| format!("{} slots={}\n", host.name, host.slots)).collect();
    assert_eq!(Host::parse_list(&lines.concat()), Ok(hosts.clone()));
    for mapping in [Mapping::Slot, Mapping::Node] {
        match place(&hosts, size, mapping) {
            Ok(placed) => {
                let mut ranks: Vec<u32> = placed.iter().flat_map(|(_, ranks)| ranks.iter().copied()).collect();
                if mapping == Mapping::Node {
                    ranks.sort_unstable();
                }
                assert_eq!(ranks, (0..size).collect::<Vec<_>>());
            }
            Err(slots) => assert!(slots < size),
        }
    }
}
