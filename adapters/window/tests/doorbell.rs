//! When a side of a window has to wake the other one.

use core::ptr::NonNull;

use towline_window::atomics::Ordering;
use towline_window::command::Command;
use towline_window::completion::{Completion, Done};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::header::at;
use towline_window::host::{Attaching, Card, Host};
use towline_window::layout::Layout;
use towline_window::memory::Memory;

const BYTES: usize = 2048;
const ABOUT: About<'_> = About { boot: 7, operations: 9, one_sided: 5, description: "test", doorbell: Doorbell::Pipes };
const COMMAND: Command = Command::DeletePeer { peer: 1 };

#[repr(align(64))]
struct Lines([u8; BYTES]);

/// Memory for a window, which lasts as long as the program.
fn memory() -> Memory<'static> {
    let lines = Box::leak(Box::new(Lines([0; BYTES])));
    // SAFETY: nothing else refers to the leaked memory.
    unsafe { Memory::new(NonNull::from(&mut lines.0).cast(), BYTES) }.unwrap()
}

fn attach(memory: Memory<'static>, device: &mut Device<'_>, session: u32) -> Host<'static> {
    let mut attaching = Attaching::with_doorbell(memory, session).unwrap();
    device.serve(session).unwrap();
    attaching.poll().unwrap()
}

fn both(memory: Memory<'static>) -> (Device<'static>, Host<'static>) {
    let mut device = Device::start(memory, Layout::plan(BYTES, 8, 4).unwrap(), &ABOUT).unwrap();
    let host = attach(memory, &mut device, 5);
    (device, host)
}

fn completion() -> Completion {
    Completion::new(1, Ok(Done::default()))
}

#[test]
fn a_host_rings_once_for_each_sleep_and_only_after_it_has_written() {
    let (mut device, mut host) = both(memory());
    host.command(1, &COMMAND).unwrap();
    assert!(!host.must_ring(), "the device does not sleep");
    for _ in 0..3 {
        device.announce_sleep();
        assert!(!host.must_ring(), "nothing was written");
        host.command(1, &COMMAND).unwrap();
        assert!(host.must_ring());
        host.command(1, &COMMAND).unwrap();
        assert!(!host.must_ring(), "it has rung for this sleep");
        device.awake();
        while device.take().is_some() {}
    }
    host.command(1, &COMMAND).unwrap();
    assert!(!host.must_ring(), "the device does not sleep any more");
}

#[test]
fn a_host_that_gives_slots_back_rings() {
    let (mut device, mut host) = both(memory());
    for _ in 0..4 {
        device.complete(&completion()).unwrap();
    }
    device.announce_sleep();
    assert!(host.take().unwrap().is_some());
    assert!(host.must_ring(), "a quarter of four slots is one");
}

#[test]
fn a_device_rings_for_completions_of_a_host_that_sleeps() {
    let (mut device, mut host) = both(memory());
    device.complete(&completion()).unwrap();
    assert!(!device.must_ring(), "the host does not sleep");
    assert!(!host.announce_sleep(), "there is a completion");
    assert!(host.awake() && !host.awake());
    assert!(host.take().unwrap().is_some());
    for _ in 0..2 {
        assert!(host.announce_sleep());
        assert!(!device.must_ring(), "nothing was written");
        device.complete(&completion()).unwrap();
        assert!(device.must_ring() && !device.must_ring());
        assert!(host.awake());
        assert!(host.take().unwrap().is_some());
    }
}

/// Its sleeps have the numbers of those of the host before.
#[test]
fn a_device_rings_for_the_next_host_too() {
    let memory = memory();
    let (mut device, host) = both(memory);
    let sleep = |device: &mut Device<'_>, mut host: Host<'static>| {
        assert!(host.announce_sleep());
        device.complete(&completion()).unwrap();
        assert!(device.must_ring());
        host.detach();
    };
    sleep(&mut device, host);
    let host = attach(memory, &mut device, 6);
    sleep(&mut device, host);
}

#[test]
fn a_device_is_rung_by_the_host_that_says_so() {
    let memory = memory();
    let (mut device, host) = both(memory);
    assert!(device.is_rung());
    host.detach();
    device.serve(0).unwrap();
    assert!(device.is_rung(), "there is no host");
    // A host that does not ring, as that of an older version, which does not know the word.
    let _host = Attaching::new(memory, 6).unwrap();
    device.serve(6).unwrap();
    assert!(!device.is_rung());
    memory.word(at::RINGS).unwrap().store(5, Ordering::Relaxed);
    assert!(!device.is_rung(), "the word is that of an earlier host");
}

#[test]
fn a_doorbell_that_the_host_does_not_know_is_none() {
    let memory = memory();
    let _device = Device::start(memory, Layout::plan(BYTES, 8, 4).unwrap(), &ABOUT).unwrap();
    let doorbell = || Card::read(&memory).unwrap().doorbell;
    assert_eq!(doorbell(), Doorbell::Pipes);
    memory.write(at::DOORBELL, &9_u32.to_le_bytes()).unwrap();
    assert_eq!(doorbell(), Doorbell::None);
    memory.write(at::DOORBELL, &1_u32.to_le_bytes()).unwrap();
    memory.write(at::VERSION, &(1_u32 << 16 | 2).to_le_bytes()).unwrap();
    assert_eq!(doorbell(), Doorbell::None, "the word was reserved");
}
