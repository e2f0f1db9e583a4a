//! Input to a verbs rail from processes without the key: cards, hellos and memory keys.

use towline_core::rail::atomics::{Atomic, AtomicFlags};
use towline_core::rail::native::{KEY, Key, Local, Work};
use towline_net::JobKey;
use towline_verbs::card::Card;
use towline_verbs::hello::{BYTES, Hello};
use towline_verbs::port::{GidEntry, check_route, choose_gid};
use towline_verbs::remote_key::RemoteMemory;
use towline_verbs::{Gid, GidKind};

/// Runs one input with each parser. Accepted input must be encoded to the same bytes, and no hello that was made without the
/// key may be accepted. An accepted card must have a route to its own port. The GID chosen from the input, read as a port's
/// table, must be usable. No operation may reach memory outside of a key's bounds.
pub fn run(data: &[u8]) {
    let key = JobKey::new([0x5a; 32]);
    if let Ok(card) = Card::decode(data) {
        assert_eq!(card.encode()[..], *data);
        let own = GidEntry { index: 0, gid: card.gid, kind: card.kind };
        assert_eq!(check_route(&own, &card), Ok(()), "a port has a route to itself");
    }
    assert_eq!(Hello::decode(data, &key), None, "the hello's code was made without the key");
    if let Some(bytes) = data.first_chunk::<BYTES>()
        && let Some(hello) = Hello::read(bytes)
    {
        let written = hello.encode(&key);
        assert_eq!(written[..BYTES - 32], bytes[..BYTES - 32]);
        assert_eq!(Hello::decode(&written, &key), Some(hello));
    }
    let entry = |(index, bytes): (usize, &[u8; 17])| {
        let (kind, gid) = bytes.split_first().expect("17 bytes");
        Some(GidEntry {
            index: index as u32,
            gid: Gid(gid.try_into().expect("16 bytes")),
            kind: GidKind::of(kind % 4)?,
        })
    };
    let table: Vec<GidEntry> = data.as_chunks::<17>().0.iter().enumerate().filter_map(entry).collect();
    let usable = |gid: Gid| !gid.is_zero() && !gid.is_multicast();
    match choose_gid(&table, None) {
        Ok(choice) => assert!(table.contains(&choice.entry) && usable(choice.entry.gid)),
        Err(_) => assert!(!table.iter().any(|entry| usable(entry.gid))),
    }
    check_bounds(data);
}

fn check_bounds(data: &[u8]) {
    let Some((key, rest)) = data.split_first_chunk::<KEY>() else { return };
    let Some(remote) = RemoteMemory::decode(&Key(*key)) else { return };
    assert_eq!(RemoteMemory::decode(&remote.encode()), Some(remote));
    let mut words = rest.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let (offset, len) = (words.next().unwrap_or(0), words.next().unwrap_or(8));
    let local = Local { base: std::ptr::null_mut(), len, region: None };
    let atomic = |flags| Work::Atomic(Atomic::CompareSwap(0, 0), flags);
    for (work, bytes) in [
        (Work::Put(local), len),
        (Work::Get(local), len),
        (atomic(AtomicFlags::empty()), 8),
        (atomic(AtomicFlags::BITS_32), 4),
    ] {
        let Some(at) = remote.address_of(&work, offset) else { continue };
        assert_eq!(u128::from(at), u128::from(remote.address) + u128::from(offset));
        assert!(u128::from(offset) + u128::from(bytes) <= u128::from(remote.len) && at.checked_add(bytes).is_some());
        assert!(!matches!(work, Work::Atomic(..)) || at % bytes == 0);
    }
}
