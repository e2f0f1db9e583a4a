//! Puts, gets and atomics on registered memory of a window.

use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_window::command::{KEY, KeyPlace, Remote};

use super::*;

/// Where the registered memory of each window is, and how long it is.
const SHARED: u64 = 1 << 16;
const BYTES: u64 = 40_000;
/// Where keys are: that of the own memory, and that of the other one.
const KEYS: [u64; 2] = [SHARED - 256, SHARED - 256 + KEY as u64];
const ALL: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
const ADD: Atomic = Atomic::Op(AtomicOp::Add, 1);
/// Bytes in a frame before those of a put. Lengths around the limit of a frame are around this.
const HEAD: usize = 40;

fn place(at: u64) -> KeyPlace {
    KeyPlace { region: 0, at: buffers() + at }
}

fn shared() -> Body {
    Body { region: 0, at: buffers() + SHARED, bytes: BYTES }
}

/// Memory of the other node, by the key of its window.
fn remote(me: usize, offset: u64) -> Remote {
    Remote { peer: 1 - me as u32, offset, key: place(KEYS[1]) }
}

fn atomic(me: usize, offset: u64, atomic: Atomic) -> Command {
    Command::Atomic { at: remote(me, offset), atomic, flags: AtomicFlags::empty() }
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + seed) as u8).collect()
}

impl Pair<'_> {
    fn register(&mut self, me: usize, access: Access, only: u32) -> Result<u32, Failure> {
        let command = Command::Register { access, only, memory: shared(), key: place(KEYS[0]) };
        self.call(me, command).map(|done| done.value)
    }

    /// Gives the key of a node to the other one, as their hosts do.
    fn pass_key(&mut self, from: usize) {
        let mut key = [0; KEY];
        self.nodes[from].memory.read(place(KEYS[0]).at, &mut key).unwrap();
        self.nodes[1 - from].memory.write(place(KEYS[1]).at, &key).unwrap();
    }

    /// Changes a byte of the key that a node has of the other one.
    fn change_key(&mut self, me: usize, at: u64) {
        let mut byte = [0];
        self.nodes[me].memory.read(place(KEYS[1]).at + at, &mut byte).unwrap();
        self.nodes[me].memory.write(place(KEYS[1]).at + at, &[byte[0] ^ 2]).unwrap();
    }

    fn shared_bytes(&self, me: usize) -> Vec<u8> {
        let mut bytes = vec![0; BYTES as usize];
        self.nodes[me].memory.read(shared().at, &mut bytes).unwrap();
        bytes
    }

    /// Executes a command of a node while the host of the other one does nothing.
    fn call_alone(&mut self, me: usize, command: Command) -> Result<Done, Failure> {
        let cookie = self.begin(me, command);
        for _ in 0..1000 {
            self.now += 1000;
            for node in &mut self.nodes {
                node.server.poll(Instant::from_nanos(self.now));
            }
            if let Some(completion) = self.nodes[me].host.take().unwrap() {
                assert_eq!(completion.cookie, cookie);
                return completion.result;
            }
        }
        panic!("{command:?} does not complete");
    }
}

/// Calls `work` with two nodes whose memory is registered with all rights, and that have each other's keys.
fn with_shared(work: impl FnOnce(&mut Pair<'_>, [u32; 2])) {
    with_pair(|pair, _| {
        let numbers = [0, 1].map(|me| pair.register(me, ALL, ANY).unwrap());
        (0..2).for_each(|me| pair.pass_key(me));
        work(pair, numbers);
    });
}

#[test]
fn a_device_serves_puts_gets_and_atomics_while_its_host_does_nothing() {
    with_shared(|pair, _| {
        // The words of the window that the other host writes or reads.
        let words = |node: &Node<'_>| {
            [at::COMMANDS_TAKEN, at::COMPLETIONS_TAKEN].map(|at| node.memory.word(at).unwrap().load(Ordering::Acquire))
        };
        let before = words(&pair.nodes[1]);
        let frame = FRAME as usize - HEAD;
        for length in [0, 1, 7, 8, 63, 64, 65, frame - 1, frame, frame + 1, 2 * frame, 2 * frame + 1, 5000, 39_000] {
            let (bytes, offset) = (pattern(length, length), 1 + length as u64 % 900);
            let from = pair.message(0, &bytes);
            let before = pair.shared_bytes(1);
            assert_eq!(pair.call_alone(0, Command::Put { to: remote(0, offset), body: from }), Ok(Done::default()));
            let mut expected = before;
            expected[offset as usize..][..length].copy_from_slice(&bytes);
            assert!(pair.shared_bytes(1) == expected, "{length} bytes were put");
            let into = sink(length);
            pair.nodes[0].memory.write(into.at, &vec![0xa5; length + 8]).unwrap();
            assert_eq!(pair.call_alone(0, Command::Get { from: remote(0, offset), body: into }), Ok(Done::default()));
            let mut got = bytes;
            got.extend([0xa5; 8]);
            assert!(pair.received(0, length + 8) == got, "{length} bytes were got");
        }
        let at = BYTES - 8;
        let mut model = u64::from_le_bytes(*pair.shared_bytes(1).last_chunk().unwrap());
        let all = AtomicOp::ALL.map(|operation| Atomic::Op(operation, 0x1_0000_0003));
        for operation in all.into_iter().chain([Atomic::CompareSwap(1, 2), Atomic::CompareSwap(0x1_0000_0003, 9)]) {
            let old = pair.call_alone(0, atomic(0, at, operation)).unwrap();
            assert_eq!(old, Done { word: model, ..Done::default() }, "{operation:?}");
            model = match operation {
                Atomic::Op(operation, operand) => of_word(operation, model, operand),
                Atomic::CompareSwap(is, becomes) => {
                    if model == is {
                        becomes
                    } else {
                        model
                    }
                }
            };
            assert_eq!(pair.shared_bytes(1).last_chunk(), Some(&model.to_le_bytes()), "{operation:?}");
        }
        let flags = AtomicFlags::BITS_32;
        let half = Command::Atomic { at: remote(0, at + 4), atomic: Atomic::Op(AtomicOp::Swap, 0xabcd), flags };
        assert_eq!(pair.call_alone(0, half), Ok(Done { word: model >> 32, ..Done::default() }));
        assert_eq!(pair.shared_bytes(1)[BYTES as usize - 4..], 0xabcd_u32.to_le_bytes());

        let node = &mut pair.nodes[1];
        assert_eq!(words(node), before, "a command was taken, or a completion");
        assert_eq!(node.host.take(), Ok(None));
        let counters = node.server.transport().counters();
        assert_eq!(counters.expected + counters.unexpected, 0, "no message was needed");
    });
}

fn of_word(operation: AtomicOp, word: u64, operand: u64) -> u64 {
    let (signed, other) = (word.cast_signed(), operand.cast_signed());
    match operation {
        AtomicOp::Add => word.wrapping_add(operand),
        AtomicOp::And => word & operand,
        AtomicOp::Or => word | operand,
        AtomicOp::Xor => word ^ operand,
        AtomicOp::LogicalAnd => u64::from(word != 0 && operand != 0),
        AtomicOp::LogicalOr => u64::from(word != 0 || operand != 0),
        AtomicOp::LogicalXor => u64::from((word != 0) != (operand != 0)),
        AtomicOp::Swap => operand,
        AtomicOp::Min => signed.min(other).cast_unsigned(),
        AtomicOp::Max => signed.max(other).cast_unsigned(),
    }
}

#[test]
fn each_mistake_is_a_failure_that_names_who_has_to_act() {
    with_shared(|pair, _| {
        let put = |to, bytes| Command::Put { to, body: sink(bytes) };
        // The place: inside the buffers, for bytes and keys.
        let outside = Body { bytes: WINDOW as u64, ..sink(1) };
        assert_eq!(pair.call(0, Command::Put { to: remote(0, 0), body: outside }), Err(Failure::OutOfBounds));
        assert_eq!(pair.call(0, Command::Get { from: remote(0, 0), body: outside }), Err(Failure::OutOfBounds));
        for key in [
            KeyPlace { region: 1, at: buffers() },
            KeyPlace { region: 0, at: buffers() - 8 },
            KeyPlace { region: 0, at: WINDOW as u64 - 63 },
            KeyPlace { region: 0, at: u64::MAX },
        ] {
            let to = Remote { key, ..remote(0, 0) };
            assert_eq!(pair.call(0, put(to, 8)), Err(Failure::OutOfBounds), "{key:?}");
            let register = Command::Register { access: ALL, only: ANY, memory: shared(), key };
            assert_eq!(pair.call(0, register), Err(Failure::OutOfBounds), "{key:?}");
        }
        let memory = Body { bytes: 0, ..shared() };
        let register = |memory, only| Command::Register { access: ALL, only, memory, key: place(KEYS[0]) };
        assert_eq!(pair.call(0, register(memory, ANY)), Err(Failure::Malformed));
        assert_eq!(pair.call(0, register(outside, ANY)), Err(Failure::OutOfBounds));
        assert_eq!(pair.call(0, register(shared(), 7)), Err(Failure::NoSuchThing), "the peer was not added");
        // The peer, and its memory.
        assert_eq!(pair.call(0, put(Remote { peer: 7, ..remote(0, 0) }, 8)), Err(Failure::NoSuchThing));
        for (offset, bytes) in [(BYTES - 7, 8), (BYTES, 1), (u64::MAX, 1), (0, BYTES as usize + 1)] {
            assert_eq!(pair.call(0, put(remote(0, offset), bytes)), Err(Failure::OutOfMemory), "{offset} {bytes}");
        }
        assert_eq!(pair.call(0, atomic(0, BYTES, ADD)), Err(Failure::OutOfMemory));
        assert_eq!(pair.call(0, atomic(0, 4, ADD)), Err(Failure::NotAvailable), "64 bits at a multiple of 4");
        let flags = AtomicFlags::FLOAT;
        let float = Command::Atomic { at: remote(0, 0), atomic: Atomic::Op(AtomicOp::Xor, 1), flags };
        assert_eq!(pair.call(0, float), Err(Failure::NotAvailable));
        assert_eq!(pair.shared_bytes(1), vec![0; BYTES as usize]);
        // The key: a changed one, and that of another device.
        for byte in 0..KEY as u64 {
            pair.change_key(0, byte);
            assert_eq!(pair.call(0, atomic(0, 0, ADD)), Err(Failure::BadKey), "byte {byte}");
            pair.change_key(0, byte);
        }
        let own = Remote { key: place(KEYS[0]), ..remote(0, 0) };
        assert_eq!(pair.call(0, put(own, 8)), Err(Failure::BadKey), "the own key is not the peer's");
        assert_eq!(pair.call(0, atomic(0, 0, ADD)), Ok(Done::default()));
    });
}

#[test]
fn a_missing_right_refuses_its_operations() {
    with_pair(|pair, _| {
        let (to, body) = (remote(0, 0), sink(8));
        for (missing, command) in [
            (Access::REMOTE_WRITE, Command::Put { to, body }),
            (Access::REMOTE_READ, Command::Get { from: to, body }),
            (Access::REMOTE_ATOMIC, atomic(0, 0, ADD)),
        ] {
            let number = pair.register(1, ALL - missing, 0).unwrap();
            pair.pass_key(1);
            assert_eq!(pair.call(0, command), Err(Failure::NoRight), "{missing:?}");
            pair.call(1, Command::Deregister { registration: number }).unwrap();
            assert_eq!(pair.call(0, command), Err(Failure::StaleKey));
            let number = pair.register(1, missing, 0).unwrap();
            pair.pass_key(1);
            assert!(pair.call(0, command).is_ok(), "{missing:?}");
            pair.call(1, Command::Deregister { registration: number }).unwrap();
        }
        // Memory for another peer: the device itself.
        let card = pair.card(1);
        pair.add_peer(1, 1, &card).unwrap();
        pair.register(1, ALL, 1).unwrap();
        pair.pass_key(1);
        assert_eq!(pair.call(0, atomic(0, 0, ADD)), Err(Failure::NoRight));
        let own = Remote { peer: 1, offset: 0, key: place(KEYS[0]) };
        let add = Command::Atomic { at: own, atomic: ADD, flags: AtomicFlags::empty() };
        // The device of the memory is a peer of itself. The right to atomics was tested by one.
        for word in 1..4 {
            assert_eq!(pair.call(1, add), Ok(Done { word, ..Done::default() }));
        }
    });
}

#[test]
fn registrations_are_numbered_and_limited() {
    with_pair(|pair, _| {
        let numbers: Vec<_> = (0..ONE_SIDED.regions).map(|_| pair.register(0, ALL, ANY).unwrap()).collect();
        assert_eq!(pair.register(0, ALL, ANY), Err(Failure::Full));
        let end = |number| Command::Deregister { registration: number };
        assert_eq!(pair.call(0, end(numbers[1])), Ok(Done::default()));
        assert_eq!(pair.call(0, end(numbers[1])), Err(Failure::NoSuchThing));
        assert_eq!(pair.call(0, end(99)), Err(Failure::NoSuchThing));
        let next = pair.register(0, ALL, ANY).unwrap();
        assert!(!numbers.contains(&next), "the number of a registration that has ended is not used again");
        assert_eq!(pair.call(0, end(numbers[1])), Err(Failure::NoSuchThing));
    });
}

#[test]
fn as_many_operations_begin_as_the_device_says() {
    with_shared(|pair, _| {
        assert_eq!(pair.nodes[0].host.card().one_sided, ONE_SIDED.operations);
        let begun: Vec<_> = (0..ONE_SIDED.operations + 1).map(|_| pair.begin(0, atomic(0, 0, ADD))).collect();
        let results: Vec<_> = begun.into_iter().map(|cookie| pair.result(0, cookie).unwrap()).collect();
        let (last, first) = results.split_last().unwrap();
        assert!(first.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(*last, Err(Failure::Full));
        assert_eq!(pair.call(0, atomic(0, 0, ADD)).map(|done| done.word), Ok(ONE_SIDED.operations.into()));
    });
}

#[test]
fn operations_on_memory_of_a_lost_or_deleted_peer_end() {
    for lose in [true, false] {
        with_shared(|pair, _| {
            let body = sink(30_000);
            let begun = [
                pair.begin(0, Command::Put { to: remote(0, 0), body }),
                pair.begin(0, Command::Get { from: remote(0, 0), body: Body { at: buffers() + 4096, ..body } }),
                pair.begin(0, atomic(0, 0, ADD)),
            ];
            let end = if lose { Command::LosePeer { peer: 1 } } else { Command::DeletePeer { peer: 1 } };
            let ended = pair.begin(0, end);
            assert!(pair.result(0, ended).unwrap().is_ok());
            for cookie in begun {
                assert_eq!(pair.result(0, cookie), Some(Err(Failure::PeerFailed)));
            }
            let refused = if lose { Failure::PeerFailed } else { Failure::NoSuchThing };
            assert_eq!(pair.call(0, atomic(0, 0, ADD)), Err(refused));
            assert_eq!(pair.nodes[0].server.in_use().accesses, 0);
            assert_eq!(pair.nodes[0].server.in_use().one_sided[1], 0);
        });
    }
}

#[test]
fn the_end_of_a_session_ends_its_registrations() {
    with_shared(|pair, _| {
        let mut key = [0; KEY];
        pair.nodes[0].memory.read(place(KEYS[1]).at, &mut key).unwrap();
        let node = &mut pair.nodes[1];
        node.memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
        node.host = attach(&mut node.server, node.memory, 555);
        let used = node.server.in_use();
        assert_eq!((used.registrations, used.accesses, used.one_sided), (0, 0, [0; 3]));
        node.completions.clear();
        pair.call(0, Command::DeletePeer { peer: 1 }).unwrap();
        pair.introduce();
        pair.nodes[0].memory.write(place(KEYS[1]).at, &key).unwrap();
        assert_eq!(pair.call(0, atomic(0, 0, ADD)), Err(Failure::StaleKey));
        // The next session registers the same memory, in the same place of the table.
        pair.register(1, ALL, ANY).unwrap();
        assert_eq!(pair.call(0, atomic(0, 0, ADD)), Err(Failure::StaleKey), "the key is that of the session before");
        pair.pass_key(1);
        assert_eq!(pair.call(0, atomic(0, 0, ADD)), Ok(Done::default()));
    });
}

#[test]
fn operations_in_progress_end_with_their_session() {
    with_shared(|pair, _| {
        for me in 0..2 {
            for _ in 0..3 {
                pair.begin(me, Command::Put { to: remote(me, 0), body: sink(30_000) });
            }
        }
        for _ in 0..2 {
            pair.step();
        }
        for me in 0..2 {
            let node = &mut pair.nodes[me];
            node.memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
            node.host = attach(&mut node.server, node.memory, 700 + me as u32);
            let used = node.server.in_use();
            assert_eq!((used.registrations, used.accesses, used.one_sided), (0, 0, [0; 3]));
        }
        pair.settle();
        for node in &mut pair.nodes {
            assert_eq!(node.host.take(), Ok(None), "a completion of the session before");
        }
    });
}
