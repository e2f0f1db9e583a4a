//! Sets that peers publish: well-formed, changed and arbitrary. Compares the store of one process with the sets.

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::arena::Arena;
use towline_core::modex::{Component, Instances, Merged, Modex, Set, SetWriter, Stamp, Store, StoreConfig, Version};

const ME: u32 = 1;
const CONFIG: StoreConfig = StoreConfig { me: ME, size: 3, incarnation: 2, components: 3, bytes: 200 };

/// Runs one input as a set, as instances, and as a sequence of calls of a store.
pub fn run(data: &[u8]) {
    if let Ok(set) = Set::parse(data) {
        assert_eq!(written(&set, data.len()), data);
    }
    if let Ok(instances) = Instances::parse(data) {
        let plain: Vec<u8> = instances.iter().flatten().copied().collect();
        let mut back = vec![0; data.len()];
        let length = Instances::frame(instances.size() as u32, &plain, &mut back).expect("it was parsed");
        assert_eq!(back[..length], *data);
    }
    let mut memory = vec![0; CONFIG.memory()];
    let mut store = Store::new(CONFIG, &mut Arena::new(&mut memory)).expect("the memory is large enough");
    let mut data = Unstructured::new(data);
    while !data.is_empty() {
        if step(&mut store, &mut data).is_err() {
            break;
        }
        check_own_set(&store);
    }
}

fn step(store: &mut Store<'_>, data: &mut Unstructured<'_>) -> Result<()> {
    match u8::arbitrary(data)? % 6 {
        0 => merge(store, &set(data)?),
        1 => {
            let (mut set, at, value) = (set(data)?, u16::arbitrary(data)?, u8::arbitrary(data)?);
            let at = usize::from(at) % set.len();
            set[at] = value;
            merge(store, &set);
        }
        2 => {
            let length = data.arbitrary_len::<u8>()?;
            merge(store, data.bytes(length)?);
        }
        3 => {
            let (component, bytes) = (component(data)?, bytes(data)?);
            if store.send(&component, &bytes).is_ok() {
                assert_eq!(received(store, &component, ME), Some(bytes));
            }
        }
        4 => {
            // A watch occupies an entry for its component, if one is free.
            let _watch = store.recv_nb(&component(data)?, u32::arbitrary(data)? % 5);
        }
        _ => {
            let changes = std::iter::from_fn(|| store.next_change()).take(100).count();
            assert!(changes <= (CONFIG.size * CONFIG.components) as usize, "a change is reported again and again");
        }
    }
    Ok(())
}

fn merge(store: &mut Store<'_>, bytes: &[u8]) {
    let Ok(merged) = store.merge(bytes) else { return };
    let set = Set::parse(bytes).expect("it was merged");
    assert!(set.rank() < CONFIG.size);
    if merged == Merged::Old {
        return;
    }
    assert_ne!(set.rank(), ME);
    for entry in set.entries() {
        let got = received(store, &entry.component, set.rank());
        // The store does not read an entry of a known revision again. So it keeps the first bytes of a peer that sends
        // different bytes under one revision.
        assert!(got.is_some());
        if merged == Merged::Restarted {
            assert_eq!(got.as_deref(), Some(entry.data));
        }
    }
}

/// Checks that this process's own set is well-formed and has the announced length, whatever peers have sent.
fn check_own_set(store: &Store<'_>) {
    let mut own = vec![0; store.encoded_len()];
    assert_eq!(store.encode(&mut own), Ok(own.len()));
    let set = Set::parse(&own).expect("this process's own set is well-formed");
    assert_eq!((set.rank(), set.stamp().incarnation, set.stamp().revision), (ME, 2, store.revision()));
    assert_eq!(written(&set, own.len()), own);
}

fn received(store: &mut Store<'_>, component: &Component<'_>, peer: u32) -> Option<Vec<u8>> {
    let mut into = [0; CONFIG.bytes as usize];
    store.recv(component, peer, &mut into).ok().map(|length| into[..length].to_vec())
}

fn written(set: &Set<'_>, length: usize) -> Vec<u8> {
    let mut back = vec![0; length];
    let mut writer = SetWriter::new(&mut back, set.rank(), set.stamp()).expect("the header fits");
    for entry in set.entries() {
        writer.entry(&entry.component, entry.revision, entry.data).expect("the entries fit");
    }
    assert_eq!(writer.finish(), length);
    back
}

fn set(data: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut into = vec![0; 1024];
    let stamp = Stamp { incarnation: u32::arbitrary(data)? % 4, revision: u8::arbitrary(data)?.into() };
    let mut writer = SetWriter::new(&mut into, u32::arbitrary(data)? % 4, stamp).expect("the header fits");
    for _ in 0..u8::arbitrary(data)? % 5 {
        let (component, revision, bytes) = (component(data)?, u8::arbitrary(data)?, bytes(data)?);
        // The writer refuses an invalid component.
        let _put = writer.entry(&component, revision.into(), &bytes);
    }
    let length = writer.finish();
    into.truncate(length);
    Ok(into)
}

fn component(data: &mut Unstructured<'_>) -> Result<Component<'static>> {
    let name = *data.choose(&["", "sm", "tcp", "udp", "verbs"])?;
    let minor = u16::from(u8::arbitrary(data)? / 128);
    let v = Version::new(1, 0, 0);
    Ok(Component { mca: v, kind: "btl", kind_version: v, name, version: Version::new(1, minor, 0) })
}

fn bytes(data: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = u8::arbitrary(data)? & 127;
    Ok((0..length).map(|i| i.wrapping_mul(3)).collect())
}
