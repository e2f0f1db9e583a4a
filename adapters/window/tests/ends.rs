//! Both ends of a window in one process.

use core::ptr::NonNull;

use proptest::prelude::*;
use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_window::atomics::Ordering;
use towline_window::command::{BadCommand, Body, Command, KeyPlace, Mode, Remote};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::device::{About, Device, StartError};
use towline_window::doorbell::Doorbell;
use towline_window::fault::{self, Exception, Fault};
use towline_window::header::{HEADER, at};
use towline_window::host::{AttachError, Attaching, Card, DeviceError, Host};
use towline_window::layout::{BadLayout, Layout};
use towline_window::memory::{Memory, OutOfBounds};
use towline_window::ring::{Pushed, START, Violation};

const BYTES: usize = 4096;
const ABOUT: About<'_> = About { boot: 7, operations: 9, one_sided: 5, description: "test", doorbell: Doorbell::None };
const SESSION: u32 = 11;

#[repr(align(64))]
struct Lines([u8; BYTES]);

/// Memory for a window, which lasts as long as the program.
fn memory() -> Memory<'static> {
    let lines = Box::leak(Box::new(Lines([0; BYTES])));
    // SAFETY: nothing else refers to the leaked memory.
    unsafe { Memory::new(NonNull::from(&mut lines.0).cast(), BYTES) }.unwrap()
}

fn layout() -> Layout {
    Layout::plan(BYTES, 8, 4).unwrap()
}

fn attached(memory: Memory<'static>) -> (Device<'static>, Host<'static>) {
    let mut device = Device::start(memory, layout(), &ABOUT).unwrap();
    let mut attaching = Attaching::new(memory, SESSION).unwrap();
    device.serve(SESSION).unwrap();
    (device, attaching.poll().unwrap())
}

fn completion(cookie: u64) -> Completion {
    Completion::new(cookie, Ok(Done { value: 3, ..Done::default() }))
}

#[test]
fn commands_and_completions_pass_in_order_for_many_laps() {
    let (mut device, mut host) = attached(memory());
    for cookie in 0..1000 {
        let command = Command::Cancel { cookie: cookie * 3 };
        assert_eq!(host.command(cookie, &command), Ok(Pushed::Done));
        assert_eq!(device.take(), Some((cookie, Ok(command))));
        assert_eq!(device.take(), None);
        assert_eq!(device.complete(&completion(cookie)), Ok(Pushed::Done));
        assert_eq!(host.take(), Ok(Some(completion(cookie))));
        assert_eq!(host.take(), Ok(None));
    }
}

#[test]
fn a_full_ring_refuses_an_entry_until_its_reader_has_read() {
    let (mut device, mut host) = attached(memory());
    let command = Command::DeletePeer { peer: 1 };
    for cookie in 0..8 {
        assert_eq!(host.command(cookie, &command), Ok(Pushed::Done));
    }
    assert_eq!(host.command(8, &command), Ok(Pushed::Full));
    assert_eq!(device.take(), Some((0, Ok(command))));
    assert_eq!(device.take(), Some((1, Ok(command))));
    // The reader has stored its position after a quarter of the ring.
    assert_eq!(host.command(8, &command), Ok(Pushed::Done));
    for cookie in 2..9 {
        assert_eq!(device.take(), Some((cookie, Ok(command))));
    }
    for cookie in 0..4 {
        assert_eq!(device.complete(&completion(cookie)), Ok(Pushed::Done));
    }
    assert_eq!(device.complete(&completion(4)), Ok(Pushed::Full));
}

#[test]
fn a_session_begins_with_empty_rings() {
    let memory = memory();
    let (mut device, mut host) = attached(memory);
    host.command(1, &Command::DeletePeer { peer: 1 }).unwrap();
    device.complete(&completion(1)).unwrap();
    host.detach();
    assert_eq!(device.wanted(), Ok(Some(0)));
    device.serve(0).unwrap();
    assert_eq!(device.wanted(), Ok(None));
    let mut attaching = Attaching::new(memory, SESSION + 1).unwrap();
    assert!(attaching.poll().is_none());
    assert_eq!(device.wanted(), Ok(Some(SESSION + 1)));
    device.serve(SESSION + 1).unwrap();
    let mut host = attaching.poll().unwrap();
    assert_eq!((device.take(), host.take()), (None, Ok(None)));
    assert_eq!(host.command(2, &Command::DeletePeer { peer: 2 }), Ok(Pushed::Done));
    assert_eq!(device.take(), Some((2, Ok(Command::DeletePeer { peer: 2 }))));
}

#[test]
fn a_second_host_is_refused() {
    let memory = memory();
    let _both = attached(memory);
    assert_eq!(Attaching::new(memory, 1).unwrap_err(), AttachError::Busy);
}

#[test]
fn a_device_that_is_not_ready_is_refused_with_the_reason() {
    let memory = memory();
    assert_eq!(Card::read(&memory), Err(AttachError::NotReady));
    let device = Device::start(memory, layout(), &ABOUT).unwrap();
    assert_eq!(Card::read(&memory).map(|card| card.boot), Ok(7));
    assert_eq!(Attaching::new(memory, 0).unwrap_err(), AttachError::Session);
    memory.write(at::VERSION, &(2_u32 << 16 | 1).to_le_bytes()).unwrap();
    let refused = Card::read(&memory).unwrap_err();
    assert_eq!(refused, AttachError::Version(2 << 16 | 1));
    assert!(refused.to_string().contains("version 2.1, and this host knows 1.5"));
    memory.write(at::VERSION, &(1_u32 << 16 | 9).to_le_bytes()).unwrap();
    assert!(Card::read(&memory).is_ok(), "a minor version may differ");
    memory.write(at::COMPLETIONS, &(HEADER as u64).to_le_bytes()).unwrap();
    assert_eq!(Card::read(&memory), Err(AttachError::Layout(BadLayout)));
    device.fail(5).unwrap();
    assert_eq!(Card::read(&memory), Err(AttachError::Failed(Fault::of(5))));
}

#[test]
fn a_host_learns_what_happened_to_its_device() {
    let memory = memory();
    let (mut device, host) = attached(memory);
    assert_eq!(host.check(), Ok(0));
    device.beat().unwrap();
    assert_eq!(host.check(), Ok(1));
    device.serve(0).unwrap();
    assert_eq!(host.check(), Err(DeviceError::Ended));
    let device = Device::start(memory, layout(), &About { boot: 8, ..ABOUT }).unwrap();
    assert_eq!(host.check(), Err(DeviceError::Restarted));
    device.fail(9).unwrap();
    assert_eq!(host.check(), Err(DeviceError::Failed(Fault::of(9))));
    let exception = Exception { cause: 1 << 40, instruction: 2, address: 3 };
    let crash = Fault { number: 102, exception: Some(exception) };
    fault::report(&memory, &crash).unwrap();
    let said = host.check().unwrap_err();
    assert_eq!(said, DeviceError::Failed(crash));
    let text = "status 102, by exception 0x10000000000 of the instruction at 0x2, address 0x3";
    assert!(said.to_string().ends_with(text), "{said}");
}

#[test]
fn a_fault_is_reported_to_a_window_only() {
    let memory = memory();
    fault::report(&memory, &Fault::of(9)).unwrap();
    let mut bytes = [0; HEADER];
    memory.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; HEADER]);
}

#[test]
fn a_session_that_the_device_has_ended_does_not_begin_again() {
    let memory = memory();
    let (mut device, host) = attached(memory);
    device.serve(0).unwrap();
    assert_eq!(device.wanted(), Ok(None));
    assert_eq!(host.check(), Err(DeviceError::Ended));
    host.detach();
    let mut attaching = Attaching::new(memory, SESSION + 1).unwrap();
    assert_eq!(device.wanted(), Ok(Some(SESSION + 1)));
    device.serve(SESSION + 1).unwrap();
    assert!(attaching.poll().is_some());
}

#[test]
fn a_device_that_starts_again_waits_for_a_new_session() {
    let memory = memory();
    let (_, host) = attached(memory);
    let mut device = Device::start(memory, layout(), &About { boot: 8, ..ABOUT }).unwrap();
    assert_eq!(device.wanted(), Ok(None));
    host.detach();
    let mut attaching = Attaching::new(memory, 5).unwrap();
    device.serve(5).unwrap();
    assert!(attaching.poll().unwrap().check().is_ok());
}

#[test]
fn a_host_that_detaches_has_left_and_one_that_died_has_not() {
    let memory = memory();
    let (mut device, host) = attached(memory);
    assert!(!device.host_has_left());
    host.detach();
    assert_eq!(device.wanted(), Ok(Some(0)));
    assert!(device.host_has_left());
    device.serve(0).unwrap();
    assert!(!device.host_has_left(), "there is no host");
    let mut attaching = Attaching::new(memory, 6).unwrap();
    device.serve(6).unwrap();
    let host = attaching.poll().unwrap();
    // Its driver takes the session back. What the host does after that has no effect.
    memory.word(at::WANTED).unwrap().store(0, Ordering::Release);
    host.detach();
    assert_eq!(device.wanted(), Ok(Some(0)));
    assert!(!device.host_has_left());
}

#[test]
fn ring_positions_that_the_other_side_cannot_have_are_violations() {
    let (mut device, mut host) = attached(memory());
    let command = Command::DeletePeer { peer: 1 };
    for cookie in 0..8 {
        host.command(cookie, &command).unwrap();
    }
    for wrong in [START.wrapping_sub(1), START.wrapping_add(9)] {
        host.memory().word(at::COMMANDS_TAKEN).unwrap().store(wrong, Ordering::Relaxed);
        assert_eq!(host.command(8, &command), Err(DeviceError::Violation), "{wrong:#x}");
    }
    for cookie in 0..4 {
        device.complete(&completion(cookie)).unwrap();
    }
    device.memory().word(at::COMPLETIONS_TAKEN).unwrap().store(0x1234, Ordering::Relaxed);
    assert_eq!(device.complete(&completion(4)), Err(Violation));
}

#[test]
fn a_wrong_completion_is_a_violation() {
    let (_device, mut host) = attached(memory());
    let at = layout().completions;
    host.memory().write(at, &(START << 1 | 1).to_le_bytes()).unwrap();
    host.memory().write(at + 4, &256_u32.to_le_bytes()).unwrap();
    assert_eq!(host.take(), Err(DeviceError::Violation));
}

#[test]
fn failures_of_newer_firmware_are_failures() {
    let mut entry = Completion::new(3, Err(Failure::Full)).encode();
    entry[0] = 200;
    assert_eq!(Completion::decode(&entry), Ok(Completion::new(3, Err(Failure::Other))));
}

#[test]
fn a_host_that_has_lost_its_session_does_not_end_the_next_one() {
    let memory = memory();
    let (_, old) = attached(memory);
    let mut device = Device::start(memory, layout(), &About { boot: 8, ..ABOUT }).unwrap();
    let mut attaching = Attaching::new(memory, 5).unwrap();
    old.detach();
    assert_eq!(device.wanted(), Ok(Some(5)));
    device.serve(5).unwrap();
    assert!(attaching.poll().is_some());
}

#[test]
fn a_host_that_waits_no_longer_takes_its_wish_back() {
    let memory = memory();
    let mut device = Device::start(memory, layout(), &ABOUT).unwrap();
    drop(Attaching::new(memory, SESSION).unwrap());
    assert_eq!(device.wanted(), Ok(None));
    assert!(Attaching::new(memory, SESSION).is_ok());
}

#[test]
fn a_host_does_not_begin_with_the_layout_of_an_earlier_start() {
    let memory = memory();
    let _ = Device::start(memory, layout(), &ABOUT).unwrap();
    let mut attaching = Attaching::new(memory, SESSION).unwrap();
    let mut device = Device::start(memory, Layout::plan(BYTES, 4, 4).unwrap(), &About { boot: 8, ..ABOUT }).unwrap();
    device.serve(SESSION).unwrap();
    assert!(attaching.poll().is_none());
}

#[test]
fn commands_that_are_unknown_or_malformed_keep_their_cookie() {
    let mut entry = Command::DeletePeer { peer: 1 }.encode(9);
    entry[0] = 200;
    assert_eq!(Command::decode(&entry), (9, Err(BadCommand::Unknown(200))));
    entry[0] = 7 | 1 << 8;
    assert_eq!(Command::decode(&entry), (9, Err(BadCommand::Malformed)));
    entry[0] = 7 | 1 << 31;
    assert_eq!(Command::decode(&entry), (9, Err(BadCommand::Malformed)));
    // No right, a right that no peer has, an operation that no atomic has, and flags where there are none.
    for head in
        [19 | 1 << 8, 20 | 1 << 8, 13, 13 | 1 << 8, 13 | 0x1e << 8, 14 | 1 << 8, 15 | 1 << 8, 16 | 1 << 8, 17 | 2 << 8]
    {
        entry[0] = head;
        assert_eq!(Command::decode(&entry), (9, Err(BadCommand::Malformed)), "{head:#x}");
    }
}

#[test]
fn layouts_that_are_not_allowed_are_refused() {
    for (bytes, commands, completions) in [(HEADER, 1, 1), (BYTES, 3, 4), (BYTES, 4, 0), (1 << 30, 1 << 17, 4)] {
        assert_eq!(Layout::plan(bytes, commands, completions), Err(BadLayout), "{bytes} {commands} {completions}");
    }
    let good = layout();
    for bad in [
        Layout { commands: HEADER as u64 - 64, ..good },
        Layout { commands: HEADER as u64 + 4, ..good },
        Layout { completions: good.commands + 64, ..good },
        Layout { buffers: good.completions, ..good },
        Layout { buffers: u64::MAX - 63, ..good },
        Layout { buffer_bytes: good.buffer_bytes + 1, ..good },
        Layout { buffer_bytes: u64::MAX, ..good },
    ] {
        assert_eq!(bad.check(BYTES), Err(BadLayout), "{bad:?}");
        assert_eq!(Device::start(memory(), bad, &ABOUT).unwrap_err(), StartError::Layout(BadLayout));
    }
}

#[test]
fn memory_is_accessed_inside_the_window_only() {
    let memory = memory();
    let mut bytes = [0; 8];
    let end = BYTES as u64;
    assert_eq!(memory.read(end - 8, &mut bytes), Ok(()));
    assert_eq!(memory.read(end - 7, &mut bytes), Err(OutOfBounds));
    assert_eq!(memory.write(u64::MAX, &bytes), Err(OutOfBounds));
    assert_eq!(memory.word(2).unwrap_err(), OutOfBounds);
    assert_eq!(memory.word(end).unwrap_err(), OutOfBounds);
    assert!(memory.word(end - 4).is_ok());
    let lines = Box::leak(Box::new(Lines([0; BYTES])));
    let base = NonNull::from(&mut lines.0).cast::<u8>();
    // SAFETY: nothing else refers to the leaked memory.
    unsafe {
        assert!(Memory::new(base.add(4), HEADER).is_none());
    }
}

#[test]
fn a_description_is_text_whatever_the_device_writes() {
    let memory = memory();
    let long = "x".repeat(100);
    let about = About { description: &long, ..ABOUT };
    let _device = Device::start(memory, layout(), &about).unwrap();
    assert_eq!(Card::read(&memory).unwrap().description(), "x".repeat(64));
    memory.write(at::DESCRIPTION, b"ab\xff").unwrap();
    assert_eq!(Card::read(&memory).unwrap().description(), "ab");
}

fn body() -> impl Strategy<Value = Body> {
    any::<(u32, u64, u64)>().prop_map(|(region, at, bytes)| Body { region, at, bytes })
}

#[test]
fn a_device_of_an_older_minor_version_has_no_one_sided_operations() {
    let memory = memory();
    let _device = Device::start(memory, layout(), &ABOUT).unwrap();
    assert_eq!(Card::read(&memory).unwrap().one_sided, 5);
    memory.write(at::VERSION, &(1_u32 << 16).to_le_bytes()).unwrap();
    assert_eq!(Card::read(&memory).unwrap().one_sided, 0, "the word was reserved");
    memory.write(at::VERSION, &(1_u32 << 16 | 9).to_le_bytes()).unwrap();
    assert_eq!(Card::read(&memory).unwrap().one_sided, 5, "later minor versions add to this one");
    memory.write(at::VERSION, &(2_u32 << 16).to_le_bytes()).unwrap();
    assert_eq!(Card::read(&memory), Err(AttachError::Version(2 << 16)));
}

fn key_place() -> impl Strategy<Value = KeyPlace> {
    any::<(u32, u64)>().prop_map(|(region, at)| KeyPlace { region, at })
}

fn remote() -> impl Strategy<Value = Remote> {
    (any::<(u32, u64)>(), key_place()).prop_map(|((peer, offset), key)| Remote { peer, offset, key })
}

fn atomic() -> impl Strategy<Value = Atomic> {
    let operation = (0..AtomicOp::ALL.len(), any::<u64>());
    prop_oneof![
        operation.prop_map(|(operation, operand)| Atomic::Op(AtomicOp::ALL[operation], operand)),
        any::<(u64, u64)>().prop_map(|(compare, becomes)| Atomic::CompareSwap(compare, becomes)),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let mode = prop_oneof![Just(Mode::Standard), Just(Mode::Synchronous), Just(Mode::Complete), Just(Mode::Ready)];
    let three = any::<(u32, u32, u32)>();
    prop_oneof![
        (three, mode, body()).prop_map(|((comm, dest, tag), mode, body)| Command::Send { comm, dest, tag, mode, body }),
        (three, body()).prop_map(|((comm, source, tag), body)| Command::Receive { comm, source, tag, body }),
        (three, any::<bool>()).prop_map(|((comm, source, tag), take)| Command::Probe { comm, source, tag, take }),
        (any::<u32>(), body()).prop_map(|(message, body)| Command::ReceiveMatched { message, body }),
        any::<u64>().prop_map(|cookie| Command::Cancel { cookie }),
        (any::<u32>(), body()).prop_map(|(peer, card)| Command::AddPeer { peer, card }),
        any::<u32>().prop_map(|peer| Command::DeletePeer { peer }),
        (three, body()).prop_map(|((context, rank, size), peers)| Command::AddCommunicator {
            context,
            rank,
            size,
            peers
        }),
        any::<u32>().prop_map(|comm| Command::DeleteCommunicator { comm }),
        body().prop_map(|into| Command::Publish { into }),
        any::<u32>().prop_map(|peer| Command::LosePeer { peer }),
        any::<u32>().prop_map(|comm| Command::Acknowledge { comm }),
        (1_u32..8, any::<u32>(), body(), key_place()).prop_map(|(rights, only, memory, key)| Command::Register {
            access: Access::from_bits_retain(rights << 1),
            only,
            memory,
            key
        }),
        any::<u32>().prop_map(|registration| Command::Deregister { registration }),
        (remote(), body()).prop_map(|(to, body)| Command::Put { to, body }),
        (remote(), body()).prop_map(|(from, body)| Command::Get { from, body }),
        (any::<(u32, u32)>(), body()).prop_map(|((peer, tag), body)| Command::SendFrame { peer, tag, body }),
        body().prop_map(|body| Command::ReceiveFrame { body }),
        (remote(), atomic(), 0_u32..4).prop_map(|(at, atomic, flags)| Command::Atomic {
            at,
            atomic,
            flags: AtomicFlags::from_bits_retain(flags)
        }),
    ]
}

proptest! {
    #[test]
    fn a_command_is_decoded_to_what_was_encoded(command in command(), cookie in any::<u64>()) {
        prop_assert_eq!(Command::decode(&command.encode(cookie)), (cookie, Ok(command)));
    }

    #[test]
    fn any_entry_is_a_command_or_refused(entry in any::<[u32; 15]>(), first in 0_u32..0x300) {
        for entry in [entry, { let mut known = entry; known[0] = first; known }] {
            if let (cookie, Ok(command)) = Command::decode(&entry) {
                prop_assert_eq!(Command::decode(&command.encode(cookie)), (cookie, Ok(command)));
            }
            if let Ok(completion) = Completion::decode(&entry) {
                prop_assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
            }
        }
    }

    #[test]
    fn a_completion_is_decoded_to_what_was_encoded(
        words in any::<(u32, u32, u32)>(), longs in any::<(u64, u64, u64, u64)>(), failed in any::<bool>(),
    ) {
        let done = Done { rank: words.0, tag: words.1, value: words.2, received: longs.0, delivered: longs.1, word: longs.3 };
        let result = if failed { Err(Failure::PeerFailed) } else { Ok(done) };
        let completion = Completion::new(longs.2, result);
        prop_assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
    }
}
