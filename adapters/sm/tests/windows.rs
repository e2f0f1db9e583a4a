//! Memory that peers map: their operations agree with the processor's, operations without the right are refused, and the mapping
//! ends with the registration.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towline_core::arena::Arena;
use towline_core::btl::endpoint::Proc;
use towline_core::btl::module::{Btl, Config as Settings, RmaCompleted, RmaCompletion, RmaParams};
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_core::rail::native::{Key, Local, Native, NativeError, Region, Work};
use towline_core::rail::{Cookie, DeviceMemory as _, Endpoint, Event, Peer, Rail as _, Unreachable};
use towline_core::rma::{Access, Failure};
use towline_core::time::{Duration, Instant};
use towline_sm::{Config, Rail, SharedRegion};

/// Two rails: the left one accesses memory that the right one shares.
struct Two {
    left: Rail,
    right: Rail,
    to_right: Endpoint,
    now: Instant,
}

impl Two {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let job =
            0x3114_0000 << 32 | u64::from(std::process::id()) << 8 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let mut rails = [0, 1].map(|rank| Rail::open(Config::new(job, rank, 2)).unwrap());
        let cards = rails.each_ref().map(|rail| rail.card().to_vec());
        let to_right = rails[0].add_peer(Peer(1), &cards[1]).unwrap();
        rails[1].add_peer(Peer(0), &cards[0]).unwrap();
        let [left, right] = rails;
        Self { left, right, to_right, now: Instant::ZERO }
    }

    fn share(&mut self, len: usize, access: Access) -> (Arc<SharedRegion>, Result<(Region, Key), NativeError>) {
        let shared = self.right.share(len).unwrap();
        // SAFETY: the region is kept until the test ends, and accessed through addresses and atomics alone.
        let registered = unsafe { self.right.register(shared.base(), len, access) };
        (shared, registered)
    }

    fn perform(&mut self, key: Key, offset: u64, work: Work) -> Result<Option<u64>, NativeError> {
        // SAFETY: local memory of tests exists until this returns.
        unsafe { self.left.perform(self.to_right, &Native { work, key, offset }, Cookie(0)) }
    }

    fn put(&mut self, key: Key, offset: u64, bytes: &[u8]) -> Result<Option<u64>, NativeError> {
        let local = Local { base: bytes.as_ptr().cast_mut(), len: bytes.len() as u64, region: None };
        self.perform(key, offset, Work::Put(local))
    }

    fn get(&mut self, key: Key, offset: u64, bytes: &mut [u8]) -> Result<Option<u64>, NativeError> {
        let local = Local { base: bytes.as_mut_ptr(), len: bytes.len() as u64, region: None };
        self.perform(key, offset, Work::Get(local))
    }

    fn add(&mut self, key: Key, offset: u64, flags: AtomicFlags) -> Result<Option<u64>, NativeError> {
        self.perform(key, offset, Work::Atomic(Atomic::Op(AtomicOp::Add, 1), flags))
    }

    /// How many mappings of windows with this length this process has; the length is in pages, the first page included.
    fn maps(pages: u64) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let len = |line: &str| {
            let (from, to) = line.split_once(' ')?.0.split_once('-')?;
            Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
        };
        maps.lines().filter(|line| line.contains("towline-window") && len(line) == Some(pages * 4096)).count()
    }

    /// Runs the left rail's maintenance.
    fn maintain(&mut self) {
        for _ in 0..2000 {
            self.now = self.now + Duration::from_millis(1);
            let event: Option<Event> = self.left.poll(self.now);
            assert!(event.is_none());
        }
    }
}

fn bytes(shared: &SharedRegion) -> Vec<u8> {
    let mut bytes = vec![0; shared.len()];
    // SAFETY: the region is as long, and no operation is in flight in this thread.
    unsafe { shared.base().copy_to(bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

#[test]
fn b19_b52_puts_and_gets_reach_all_of_the_region_and_nothing_else() {
    let mut two = Two::new();
    let (shared, registered) = two.share(100, Access::ANY);
    let (_, key) = registered.unwrap();
    let mut model = vec![0u8; 100];
    for (offset, len) in [(0, 1), (99, 1), (3, 13), (0, 100), (50, 50)] {
        let data: Vec<u8> = (0..len).map(|at| (at * 3 + offset + 1) as u8).collect();
        assert_eq!(two.put(key, offset as u64, &data), Ok(Some(0)));
        model[offset..offset + len].copy_from_slice(&data);
        assert_eq!(bytes(&shared), model);
        let mut back = vec![0; len];
        assert_eq!(two.get(key, offset as u64, &mut back), Ok(Some(0)));
        assert_eq!(back, data);
    }
    let out = Err(NativeError::NotAvailable);
    for (offset, len) in [(100, 1), (0, 101), (99, 2), (u64::MAX, 1), (u64::MAX - 4, 8), (1 << 40, 1)] {
        assert_eq!(two.put(key, offset, &vec![0xee; len]), out);
        assert_eq!(two.get(key, offset, &mut vec![0; len]), out);
    }
    for offset in [96, 97, 1, u64::MAX - 7] {
        assert_eq!(two.add(key, offset, AtomicFlags::empty()), out, "{offset}");
    }
    assert_eq!(bytes(&shared), model);
}

#[test]
fn b20_b22_atomics_agree_with_the_processors() {
    let mut two = Two::new();
    let (shared, registered) = two.share(16, Access::ANY);
    let (_, key) = registered.unwrap();
    for flags in [AtomicFlags::empty(), AtomicFlags::BITS_32] {
        const EACH: u64 = 20_000;
        std::thread::scope(|scope| {
            let shared = &shared;
            scope.spawn(move || {
                for _ in 0..EACH {
                    if flags.contains(AtomicFlags::BITS_32) {
                        // SAFETY: a word of the region, which outlives this; all accesses to it are atomics of that size.
                        unsafe { AtomicU32::from_ptr(shared.base().cast()) }.fetch_add(1, Ordering::Relaxed);
                    } else {
                        // SAFETY: the same.
                        unsafe { AtomicU64::from_ptr(shared.base().cast()) }.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            for _ in 0..EACH {
                assert!(matches!(two.add(key, 0, flags), Ok(Some(_))));
            }
        });
        assert_eq!(two.perform(key, 0, Work::Atomic(Atomic::CompareSwap(2 * EACH, 0), flags)), Ok(Some(2 * EACH)));
        assert_eq!(bytes(&shared), [0; 16]);
    }
}

#[test]
fn b24_rights_are_enforced_by_the_kernel_or_the_target() {
    let mut two = Two::new();
    let (shared, registered) = two.share(8, Access::REMOTE_READ);
    let (_, key) = registered.unwrap();
    assert_eq!(two.get(key, 0, &mut [0; 8]), Ok(Some(0)));
    assert_eq!(two.put(key, 0, &[1; 8]), Err(NativeError::NotAvailable));
    assert_eq!(two.add(key, 0, AtomicFlags::empty()), Err(NativeError::NotAvailable));
    // A process that accesses the file directly cannot write to it either.
    let file = of_key(&key);
    assert!(file.write_at(&[1], 4096).is_err());
    let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a new mapping would overlap no other; this call fails.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), 8192, protection, rustix::mm::MapFlags::SHARED, &file, 0) };
    assert_eq!(mapped.unwrap_err(), rustix::io::Errno::PERM);
    assert_eq!(bytes(&shared), [0; 8]);
    for access in
        [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::LOCAL_WRITE, Access::ANY - Access::REMOTE_ATOMIC]
    {
        assert_eq!(two.share(8, access).1, Err(NativeError::NotAvailable), "{access:?}");
    }
    // Other memory, part of a region, and a region that is registered.
    let (shared, registered) = two.share(8, Access::ANY);
    registered.unwrap();
    let mut word = [0u8; 8];
    for (base, len) in [(word.as_mut_ptr(), 8), (shared.base(), 7), (shared.base(), 8)] {
        // SAFETY: nothing is registered.
        assert_eq!(unsafe { two.right.register(base, len, Access::ANY) }, Err(NativeError::NotAvailable));
    }
}

/// The file that a key names.
fn of_key(key: &Key) -> File {
    let descriptor = u32::from_le_bytes(key.0[4..8].try_into().unwrap());
    OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{descriptor}")).unwrap()
}

/// The results of operations.
#[derive(Debug, Default)]
struct Results(RefCell<Vec<Result<u64, Failure>>>);

impl RmaCompleted<Rail> for Results {
    fn rma_completed(&self, _: &mut Btl<'_, Rail>, completion: &RmaCompletion) {
        self.0.borrow_mut().push(completion.status);
    }
}

/// The same operations on memory that the rail has made, which is mapped, and on other memory, which is accessed through frames.
#[test]
fn b21_b43_operations_through_a_mapping_and_through_frames_agree() {
    let results = Results::default();
    let Two { left, mut right, .. } = Two::new();
    let shared = right.share(32).unwrap();
    let other = [const { AtomicU64::new(0) }; 4];
    let mut blocks = [(); 2].map(|()| vec![0u8; 1 << 20]);
    let cards = [&left, &right].map(|rail| rail.card().to_vec());
    let mut arenas = blocks.each_mut().map(|block| Arena::new(block));
    let [in_left, in_right] = &mut arenas;
    let mut modules =
        [(in_left, left), (in_right, right)].map(|(arena, rail)| Btl::new(Settings::default(), arena, rail).unwrap());
    let mut reached = [[Err(Unreachable::NoCard)]; 2];
    for (at, reached) in reached.iter_mut().enumerate() {
        modules[at].add_procs(&[Proc { id: 1 - at as u32, card: &cards[1 - at] }], reached, None);
    }
    let to = reached[0][0].unwrap();
    let words = [shared.base(), other.as_ptr().cast_mut().cast::<u8>()];
    let remote = words.map(|base| {
        // SAFETY: both outlive the modules, and are accessed through addresses and atomics alone.
        let registration = unsafe { modules[1].register_mem(None, base, 32, Access::ANY) }.unwrap();
        modules[1].remote_memory(registration).unwrap()
    });
    let params = RmaParams { callback: Some(&results as &dyn RmaCompleted<Rail>), ..RmaParams::NONE };
    let operands = [1u64, u64::MAX, 0x8000_0000_8000_0000, 1.5f64.to_bits(), u64::from(2.5f32.to_bits())];
    for which in 0..2 {
        let mut model = [0u64; 4];
        for (turn, op) in AtomicOp::ALL.into_iter().cycle().take(200).enumerate() {
            let flags = AtomicFlags::from_bits_truncate(turn as u32 / 10 % 4);
            let atomic =
                if turn % 7 == 0 { Atomic::CompareSwap(model[3], 5) } else { Atomic::Op(op, operands[turn % 5]) };
            if !atomic.takes(flags) {
                continue;
            }
            let at = if turn % 7 == 0 { 3 } else { turn % 3 };
            modules[0].atomic(to, atomic, flags, &remote[which], 8 * at as u64, params).unwrap();
            while !modules[0].flush(None) {
                for module in &mut modules {
                    module.progress(Instant::ZERO);
                }
            }
            modules[0].progress(Instant::ZERO);
            let narrow =
                |word: u64| if flags.contains(AtomicFlags::BITS_32) { word & u64::from(u32::MAX) } else { word };
            assert_eq!(
                results.0.borrow_mut().drain(..).collect::<Vec<_>>(),
                [Ok(narrow(model[at]))],
                "{atomic:?} {flags:?}"
            );
            let new = atomic.of_word(narrow(model[at]), flags);
            model[at] = new | (model[at] ^ narrow(model[at]));
            // SAFETY: memory of 32 bytes, on which no operation is in flight.
            assert_eq!(unsafe { words[which].cast::<[u64; 4]>().read() }, model, "{atomic:?} {flags:?}");
        }
        assert_eq!(modules[1].rma_counters().served != 0, which == 1, "through frames or not");
    }
}

#[test]
fn b25_a_file_of_a_window_keeps_its_length() {
    let mut two = Two::new();
    let (_shared, registered) = two.share(8, Access::ANY);
    let file = of_key(&registered.unwrap().1);
    for len in [0, 4096, 1 << 20] {
        assert!(file.set_len(len).is_err());
    }
    assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE).is_err());
}

/// A file that begins as a region does.
fn forged(name: &str, nonce: u64, seals: SealFlags) -> File {
    let file = File::from(rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap());
    file.set_len(8192).unwrap();
    file.write_at(b"towwin\0\x01", 0).unwrap();
    file.write_at(&nonce.to_le_bytes(), 8).unwrap();
    file.write_at(&1u64.to_le_bytes(), 16).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

#[test]
fn b25_forged_keys_give_no_access() {
    let mut two = Two::new();
    let key_of = |file: &dyn AsFd, nonce: u64| {
        let descriptor = file.as_fd().as_raw_fd().cast_unsigned().to_le_bytes();
        let mut key = [0; 24];
        key[..4].copy_from_slice(b"smw\x01");
        key[4..8].copy_from_slice(&descriptor);
        key[8..16].copy_from_slice(&nonce.to_le_bytes());
        Key(key)
    };
    // A correct file is accepted; each of the others differs from it in one property.
    let good = forged("towline-window", 5, SealFlags::SHRINK);
    assert_eq!(two.put(key_of(&good, 5), 0, &[7]), Ok(Some(0)));
    let not = Err(NativeError::NotAvailable);
    assert_eq!(two.put(key_of(&forged("towline-window", 6, SealFlags::GROW), 6), 0, &[7]), not);
    assert_eq!(two.put(key_of(&forged("towline-window", 7, SealFlags::SHRINK), 8), 0, &[7]), not);
    assert_eq!(two.put(key_of(&forged("of another name", 13, SealFlags::SHRINK), 13), 0, &[7]), not);
    let plain = forged("towline-window", 9, SealFlags::SHRINK);
    plain.write_at(b"T", 0).unwrap();
    assert_eq!(two.put(key_of(&plain, 9), 0, &[7]), not);
    let empty = forged("towline-window", 10, SealFlags::empty());
    empty.set_len(4096).unwrap();
    rustix::fs::fcntl_add_seals(&empty, SealFlags::SHRINK).unwrap();
    assert_eq!(two.put(key_of(&empty, 10), 0, &[7]), not);
    assert_eq!(two.put(key_of(&File::open("/dev/null").unwrap(), 11), 0, &[7]), not);
    assert_eq!(two.put(key_of(&OpenOptions::new().write(true).open("/dev/null").unwrap(), 11), 0, &[7]), not);
    let mut unknown = key_of(&good, 5);
    unknown.0[8] = 12;
    unknown.0[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(two.put(unknown, 0, &[7]), not);
    let mut foreign = key_of(&good, 5);
    foreign.0[0] ^= 1;
    assert_eq!(two.put(foreign, 0, &[7]), not);
    assert_eq!(two.perform(key_of(&good, 5), 0, Work::Atomic(Atomic::Op(AtomicOp::Xor, 1), AtomicFlags::FLOAT)), not);
    // SAFETY: no memory is involved.
    let unknown_peer = unsafe {
        let work = Work::Atomic(Atomic::Op(AtomicOp::Add, 1), AtomicFlags::empty());
        two.left.perform(Endpoint(7), &Native { work, key: key_of(&good, 5), offset: 0 }, Cookie(0))
    };
    assert_eq!(unknown_peer, Err(NativeError::Unreachable));
}

#[test]
fn b25_deregistered_memory_is_inaccessible_and_unmapped() {
    const PAGES: u64 = 1234;
    let mut two = Two::new();
    let (shared, registered) = two.share((PAGES as usize - 1) * 4096, Access::ANY);
    let (region, key) = registered.unwrap();
    assert_eq!(two.put(key, 0, &[1]), Ok(Some(0)));
    assert_eq!(Two::maps(PAGES), 2);
    two.right.deregister(region);
    assert_eq!(two.put(key, 0, &[2]), Err(NativeError::NotAvailable));
    assert_eq!(bytes(&shared)[0], 1);
    drop(shared);
    two.maintain();
    assert_eq!(Two::maps(PAGES), 0);
    // The mappings are dropped together with the peer, too.
    let (_shared, registered) = two.share((PAGES as usize - 1) * 4096, Access::ANY);
    let (_, key) = registered.unwrap();
    assert_eq!(two.put(key, 0, &[1]), Ok(Some(0)));
    assert_eq!(Two::maps(PAGES), 2);
    let to_right = two.to_right;
    two.left.del_peer(to_right);
    assert_eq!(Two::maps(PAGES), 1);
    assert_eq!(two.put(key, 0, &[2]), Err(NativeError::Unreachable));
}

/// Started by the next test, in a process of its own: the limit applies to all threads of a process.
#[test]
#[ignore = "started by another test"]
fn as_a_process_with_a_file_size_limit() {
    let mut two = Two::new();
    let limit = Rlimit { current: Some(1 << 16), ..getrlimit(Resource::Fsize) };
    setrlimit(Resource::Fsize, limit).unwrap();
    assert!(two.right.share(1 << 16).is_err());
    two.right.share(1 << 12).unwrap();
}

/// A file that grows beyond the limit of file sizes ends the process by a signal.
#[test]
fn memory_longer_than_the_file_size_limit_is_not_shared() {
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--ignored", "--exact", "as_a_process_with_a_file_size_limit"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}
