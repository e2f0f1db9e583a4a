use super::*;
use crate::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

const TCP: Component = Component {
    mca: Version::new(2, 1, 0),
    kind: "btl",
    kind_version: Version::new(3, 1, 0),
    name: "tcp",
    version: Version::new(5, 0, 7),
};
const SM: Component = Component { name: "sm", ..TCP };

fn config(me: u32, size: u32) -> StoreConfig {
    StoreConfig { me, size, components: 2, bytes: 64 * size, ..StoreConfig::default() }
}

/// A store over memory that lives as long as the test process.
fn store(config: StoreConfig) -> Store<'static> {
    let memory = vec![0u8; config.memory()].leak();
    Store::new(config, &mut Arena::new(memory)).unwrap()
}

fn encoded(store: &Store<'_>) -> Vec<u8> {
    let mut bytes = vec![0; store.encoded_len()];
    assert_eq!(store.encode(&mut bytes), Ok(bytes.len()));
    bytes
}

fn received(store: &mut Store<'_>, component: &Component<'_>, peer: u32) -> Result<Vec<u8>, RecvError> {
    let mut bytes = [0; 64];
    store.recv(component, peer, &mut bytes).map(|length| bytes[..length].to_vec())
}

const NOW: Instant = Instant::ZERO;
const LATER: Instant = Instant::from_nanos(100);

#[test]
fn x1_a_second_send_replaces_the_first() {
    let mut one = store(config(1, 2));
    let mut zero = store(config(0, 2));
    zero.send(&TCP, b"first").unwrap();
    zero.send(&TCP, b"the second is longer").unwrap();
    zero.send(&SM, b"other").unwrap();
    one.merge(&encoded(&zero)).unwrap();
    assert_eq!(received(&mut one, &TCP, 0).unwrap(), b"the second is longer");
    assert_eq!(received(&mut one, &SM, 0).unwrap(), b"other");
}

#[test]
fn x1_x5_data_that_does_not_fit_is_refused_and_the_old_data_stays() {
    let mut zero = store(StoreConfig { bytes: 32, ..config(0, 1) });
    zero.send(&TCP, b"card").unwrap();
    assert_eq!(zero.send(&TCP, &[7; 25]), Err(SendError::TooLong { needed: 33, room: 32 }));
    assert_eq!(zero.send(&Component { name: "", ..TCP }, b""), Err(SendError::BadComponent));
    assert_eq!(received(&mut zero, &TCP, 0).unwrap(), b"card");
    zero.send(&TCP, &[7; 24]).unwrap();
    assert_eq!(zero.send(&SM, b""), Err(SendError::TooLong { needed: 8, room: 0 }));
    assert_eq!(zero.send(&Component { name: "udp", ..TCP }, b""), Err(SendError::TooManyComponents));
    assert_eq!(received(&mut zero, &TCP, 0).unwrap(), [7; 24]);
}

#[test]
fn x2_only_the_corresponding_component_of_the_peer_reads_it() {
    let mut zero = store(config(0, 2));
    let mut one = store(config(1, 2));
    zero.send(&TCP, b"card").unwrap();
    one.merge(&encoded(&zero)).unwrap();
    let other_release = Component { version: Version::new(5, 0, 99), ..TCP };
    assert_eq!(received(&mut one, &other_release, 0).unwrap(), b"card");
    for stranger in [
        Component { mca: Version::new(2, 2, 0), ..TCP },
        Component { kind: "mtl", ..TCP },
        Component { kind_version: Version::new(3, 2, 0), ..TCP },
        Component { name: "sm", ..TCP },
        Component { version: Version::new(5, 1, 7), ..TCP },
    ] {
        assert_eq!(received(&mut one, &stranger, 0), Err(RecvError::NotFound), "{stranger:?}");
    }
}

#[test]
fn x3_every_buffer_reaches_every_peer() {
    for size in [1, 2, 1000] {
        let mut sets = Vec::new();
        for me in 0..size {
            let mut store = store(config(me, size));
            store.send(&TCP, format!("card {me}").as_bytes()).unwrap();
            sets.push(encoded(&store));
        }
        // The stores of all ranks would have a million cells, so only the first, a middle and the last rank are tested.
        for me in [0, size / 2, size - 1] {
            let mut store = store(config(me, size));
            store.send(&TCP, format!("card {me}").as_bytes()).unwrap();
            for set in &sets {
                store.merge(set).unwrap();
            }
            assert_eq!(store.exchange(NOW, LATER), Ok(Exchange::Done));
            for peer in 0..size {
                assert_eq!(received(&mut store, &TCP, peer).unwrap(), format!("card {peer}").as_bytes());
            }
        }
    }
}

#[test]
fn x4_the_sender_may_overwrite_its_buffer_after_send() {
    let mut zero = store(config(0, 1));
    let mut buffer = *b"card";
    zero.send(&TCP, &buffer).unwrap();
    buffer.fill(0xff);
    assert_eq!(received(&mut zero, &TCP, 0).unwrap(), b"card");
    assert_eq!(Set::parse(&encoded(&zero)).unwrap().find(&TCP).unwrap().data, b"card");
}

#[test]
fn x5_recv_copies_and_its_errors_are_distinct() {
    let mut zero = store(config(0, 2));
    let mut one = store(config(1, 2));
    assert_eq!(received(&mut one, &TCP, 0), Err(RecvError::NotYet));
    assert_eq!(received(&mut one, &TCP, 2), Err(RecvError::NoSuchPeer));
    assert_eq!(received(&mut one, &TCP, 1), Err(RecvError::NotFound));
    zero.send(&TCP, b"card").unwrap();
    one.merge(&encoded(&zero)).unwrap();
    let mut copy = [9; 3];
    assert_eq!(one.recv(&TCP, 0, &mut copy), Err(RecvError::TooShort { needed: 4 }));
    assert_eq!(copy, [9; 3]);
    assert_eq!(received(&mut one, &SM, 0), Err(RecvError::NotFound));
    let mut copy = [0; 4];
    one.recv(&TCP, 0, &mut copy).unwrap();
    copy.fill(9);
    assert_eq!(received(&mut one, &TCP, 0).unwrap(), b"card");
}

#[test]
fn x7_late_joiner_republication_and_restart_each_make_a_change() {
    let mut zero = store(config(0, 3));
    let mut one = store(config(1, 3));
    let watch = one.recv_nb(&TCP, 0).unwrap();
    let change = Some(Change { watch, peer: 0 });
    assert_eq!(one.recv_nb(&TCP, 0), Ok(watch));
    assert_ne!(one.recv_nb(&TCP, 2), Ok(watch));
    assert_ne!(one.recv_nb(&SM, 0), Ok(watch));
    assert_eq!(one.next_change(), None);

    // A late joiner.
    zero.send(&TCP, b"card").unwrap();
    let first = encoded(&zero);
    assert_eq!(one.merge(&first), Ok(Merged::New));
    assert_eq!((one.next_change(), one.next_change()), (change, None));

    // The same set again, and new data of another component, make no change.
    assert_eq!(one.merge(&first), Ok(Merged::Old));
    zero.send(&SM, b"watched as well").unwrap();
    one.merge(&encoded(&zero)).unwrap();
    assert_ne!(one.next_change(), change);
    assert_eq!(one.next_change(), None);

    // The same bytes, published again, make a change; two publications in a row make one change.
    zero.send(&TCP, b"card").unwrap();
    one.merge(&encoded(&zero)).unwrap();
    zero.send(&TCP, b"moved").unwrap();
    one.merge(&encoded(&zero)).unwrap();
    assert_eq!(one.merge(&first), Ok(Merged::Old));
    assert_eq!((one.next_change(), one.next_change()), (change, None));
    assert_eq!(received(&mut one, &TCP, 0).unwrap(), b"moved");

    // After a restart, revisions start again from 1. Data that is not published any more is removed, which makes a change, too.
    let mut restarted = store(StoreConfig { incarnation: 2, ..config(0, 3) });
    restarted.send(&TCP, b"card").unwrap();
    assert_eq!(one.merge(&encoded(&restarted)), Ok(Merged::Restarted));
    assert_eq!(one.next_change(), change);
    assert_eq!(one.next_change().map(|change| change.peer), Some(0));
    assert_eq!(one.next_change(), None);
    assert_eq!(received(&mut one, &TCP, 0).unwrap(), b"card");
    assert_eq!(received(&mut one, &SM, 0), Err(RecvError::NotFound));
    assert_eq!(one.merge(&encoded(&zero)), Ok(Merged::Old));
}

#[test]
fn x7_existing_data_makes_a_change_at_once() {
    let mut zero = store(config(0, 1));
    zero.send(&TCP, b"card").unwrap();
    let watch = zero.recv_nb(&TCP, 0).unwrap();
    assert_eq!((zero.next_change(), zero.next_change()), (Some(Change { watch, peer: 0 }), None));
    assert_eq!(zero.recv_nb(&TCP, 0), Ok(watch));
    assert_eq!(zero.next_change(), None);
    zero.send(&TCP, b"card").unwrap();
    assert_eq!(zero.next_change(), Some(Change { watch, peer: 0 }));
    assert_eq!(zero.recv_nb(&TCP, 1), Err(WatchError::NoSuchPeer));
    assert_eq!(zero.recv_nb(&Component { kind: "", ..TCP }, 0), Err(WatchError::BadComponent));
    zero.recv_nb(&SM, 0).unwrap();
    assert_eq!(zero.recv_nb(&Component { kind: "mtl", ..TCP }, 0), Err(WatchError::TooManyComponents));
}

#[test]
fn x8_exchange_times_out_and_is_idempotent() {
    let mut zero = store(config(0, 4));
    assert_eq!(zero.exchange(NOW, LATER), Ok(Exchange::Pending));
    zero.merge(&encoded(&store(config(1, 4)))).unwrap();
    zero.merge(&encoded(&store(config(3, 4)))).unwrap();
    let before = LATER - Instant::from_nanos(1);
    assert_eq!(zero.exchange(Instant::ZERO + before, LATER), Ok(Exchange::Pending));
    assert_eq!(zero.exchange(LATER, LATER), Err(ExchangeError::Timeout { missing: 1, first: 2 }));
    assert_eq!(zero.exchange(LATER, LATER + Duration::from_secs(1)), Ok(Exchange::Pending));
    zero.merge(&encoded(&store(config(2, 4)))).unwrap();
    for _ in 0..3 {
        assert_eq!(zero.exchange(LATER, LATER), Ok(Exchange::Done));
    }
    // Later sets do not undo it.
    let mut two = store(config(2, 4));
    two.send(&TCP, b"card").unwrap();
    zero.merge(&encoded(&two)).unwrap();
    assert_eq!(zero.exchange(LATER, LATER), Ok(Exchange::Done));
}

#[test]
fn x9_use_after_finalize_is_refused() {
    let mut zero = store(config(0, 1));
    zero.send(&TCP, b"card").unwrap();
    zero.recv_nb(&TCP, 0).unwrap();
    let set = encoded(&zero);
    zero.finalize();
    zero.finalize();
    assert_eq!(zero.send(&TCP, b"card"), Err(SendError::Closed));
    assert_eq!(received(&mut zero, &TCP, 0), Err(RecvError::Closed));
    assert_eq!(zero.recv_nb(&TCP, 0), Err(WatchError::Closed));
    assert_eq!(zero.exchange(NOW, LATER), Err(ExchangeError::Closed));
    assert_eq!(zero.merge(&set), Err(MergeError::Closed));
    assert_eq!(zero.next_change(), None);
}

#[test]
fn x9_init_takes_no_more_memory_than_its_config_says() {
    let config = config(0, 7);
    let mut memory = vec![0u8; config.memory()];
    assert!(Store::new(config, &mut Arena::new(&mut memory)).is_ok());
    assert!(Store::new(config, &mut Arena::new(&mut memory[..config.bytes as usize])).is_err());
    let absurd = StoreConfig { size: u32::MAX, components: u32::MAX, ..config };
    assert!(Store::new(absurd, &mut Arena::new(&mut memory)).is_err());
    // The memory can be used again after the store was dropped.
    let again = Store::new(config, &mut Arena::new(&mut memory)).unwrap();
    assert_eq!((again.data_live, again.keys_used), (0, 0));
}

#[test]
fn invalid_sets_are_refused_and_sets_without_room_can_be_merged_later() {
    let mut zero = store(StoreConfig { bytes: 40, components: 1, ..config(0, 2) });
    assert_eq!(zero.merge(b"noise of another program"), Err(MergeError::Malformed(SetError::NotASet)));
    assert_eq!(zero.merge(&encoded(&store(config(2, 3)))), Err(MergeError::NoSuchPeer { rank: 2 }));
    let mut one = store(config(1, 2));
    one.send(&TCP, &[1; 20]).unwrap();
    zero.send(&TCP, &[0; 12]).unwrap();
    assert_eq!(zero.merge(&encoded(&one)), Err(MergeError::TooLong { needed: 28, room: 20 }));
    assert_eq!(received(&mut zero, &TCP, 1), Err(RecvError::NotYet));
    one.send(&TCP, &[1; 12]).unwrap();
    assert_eq!(zero.merge(&encoded(&one)), Ok(Merged::New));
    one.send(&SM, b"").unwrap();
    assert_eq!(zero.merge(&encoded(&one)), Err(MergeError::TooManyComponents));
    assert_eq!(received(&mut zero, &TCP, 1).unwrap(), [1; 12]);
    assert_eq!(zero.encode(&mut [0; 20]), Err(NoRoom { needed: 24 + 34 + 12 }));
}

/// A peer may publish less than before for one component and more for another, or restart with other components.
#[test]
fn x1_a_set_that_fits_replaces_an_older_one_of_any_shape() {
    let mut zero = store(StoreConfig { bytes: 48, components: 3, ..config(0, 2) });
    let mut one = store(config(1, 2));
    one.send(&TCP, &[1; 2]).unwrap();
    one.send(&SM, &[2; 20]).unwrap();
    assert_eq!(zero.merge(&encoded(&one)), Ok(Merged::New));
    one.send(&TCP, &[3; 20]).unwrap();
    one.send(&SM, &[4; 2]).unwrap();
    assert_eq!(zero.merge(&encoded(&one)), Ok(Merged::New));
    assert_eq!([&TCP, &SM].map(|component| received(&mut zero, component, 1).unwrap().len()), [20, 2]);
    let mut again = store(StoreConfig { incarnation: 2, ..config(1, 2) });
    let udp = Component { name: "udp", ..TCP };
    again.send(&udp, &[5; 40]).unwrap();
    assert_eq!(zero.merge(&encoded(&again)), Ok(Merged::Restarted));
    assert_eq!(received(&mut zero, &udp, 1).unwrap(), [5; 40]);
    assert_eq!(received(&mut zero, &TCP, 1), Err(RecvError::NotFound));
}

proptest! {
    /// Random publications in little memory, compared with a map: compaction and replacement never mix up data.
    #[test]
    fn behaves_like_a_map(ops in prop::collection::vec((0..3u32, 0..2usize, 0..30usize, any::<u8>()), 1..200)) {
        let mut stores: Vec<_> =
            (0..3).map(|me| store(StoreConfig { bytes: 120, ..config(me, 3) })).collect();
        let mut model = BTreeMap::new();
        for (rank, column, length, value) in ops {
            let component = [TCP, SM][column];
            let data = vec![value; length];
            let mut wanted = model.clone();
            wanted.insert((rank, column), data.clone());
            let needed: usize = wanted.values().map(|data| data.len() + 8).sum();
            // A block that gets shorter data keeps its length, so a store may be full a little earlier.
            if stores[rank as usize].send(&component, &data).is_err() {
                continue;
            }
            prop_assert!(stores[rank as usize].data_live <= 120);
            let set = encoded(&stores[rank as usize]);
            let others: Vec<_> = (0..3).filter(|other| *other != rank as usize).collect();
            let mut all = true;
            for other in others {
                all &= stores[other].merge(&set).is_ok();
            }
            if !all {
                prop_assert!(needed > 60);
                break;
            }
            model = wanted;
            for store in &mut stores {
                for ((peer, column), data) in &model {
                    prop_assert_eq!(&received(store, &[TCP, SM][*column], *peer).unwrap(), data);
                }
            }
        }
    }
}
