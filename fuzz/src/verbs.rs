//! What strangers say to a verbs rail: cards and hellos.

use towline_tcp::JobKey;
use towline_verbs::card::Card;
use towline_verbs::hello::{BYTES, Hello};
use towline_verbs::port::{Entry, Gid, Kind, choose_gid, way};

/// Feeds the input to each reader: what is read writes back the same, and nothing passes for proved. What a card says of its
/// port has an answer, and of the input as a port's table the choice is one that can be used.
pub fn run(data: &[u8]) {
    let key = JobKey::new([0x5a; 32]);
    if let Ok(card) = Card::decode(data) {
        assert_eq!(card.encode()[..], *data);
        let own = Entry { index: 0, gid: card.gid, kind: card.kind };
        assert_eq!(way(&own, &card), Ok(()), "from where it is to itself");
    }
    assert_eq!(Hello::decode(data, &key), None, "a stranger's code");
    if let Some(bytes) = data.first_chunk::<BYTES>()
        && let Some(hello) = Hello::read(bytes)
    {
        let written = hello.encode(&key);
        assert_eq!(written[..BYTES - 32], bytes[..BYTES - 32]);
        assert_eq!(Hello::decode(&written, &key), Some(hello));
    }
    let entry = |(index, bytes): (usize, &[u8; 17])| {
        let (kind, gid) = bytes.split_first().expect("17 bytes");
        Some(Entry { index: index as u32, gid: Gid(gid.try_into().expect("16 bytes")), kind: Kind::of(kind % 4)? })
    };
    let table: Vec<Entry> = data.as_chunks::<17>().0.iter().enumerate().filter_map(entry).collect();
    let usable = |gid: Gid| !gid.is_zero() && !gid.is_multicast();
    match choose_gid(&table, None) {
        Ok(choice) => assert!(table.contains(&choice.entry) && usable(choice.entry.gid)),
        Err(_) => assert!(!table.iter().any(|entry| usable(entry.gid))),
    }
}
