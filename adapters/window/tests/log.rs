//! The log of a window, and what either side may write there.

use core::ptr::NonNull;

use proptest::prelude::*;
use towline_window::atomics::Ordering;
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::header::{HEADER, at};
use towline_window::host::AttachError;
use towline_window::host_log::HostLog;
use towline_window::layout::{BadLayout, Layout};
use towline_window::log::Taken;
use towline_window::memory::Memory;
use towline_window::placed_log::DeviceLog;
use towline_window::ring::START;

const BYTES: usize = 2048;
const LOG: u32 = 128;
const ABOUT: About<'_> = About { boot: 7, operations: 9, one_sided: 5, description: "test", doorbell: Doorbell::None };

#[repr(align(64))]
struct Lines([u8; BYTES]);

/// Memory for a window, which lasts as long as the program.
fn memory() -> Memory<'static> {
    let lines = Box::leak(Box::new(Lines([0; BYTES])));
    // SAFETY: nothing else refers to the leaked memory.
    unsafe { Memory::new(NonNull::from(&mut lines.0).cast(), BYTES) }.unwrap()
}

fn layout() -> Layout {
    Layout::plan(BYTES, 4, 4).unwrap().with_log(LOG).unwrap()
}

fn started(memory: Memory<'static>, boot: u32) -> (Device<'static>, DeviceLog<'static>) {
    let mut device = Device::start(memory, layout(), &About { boot, ..ABOUT }).unwrap();
    let log = device.take_log().unwrap();
    (device, log)
}

fn opened(memory: Memory<'static>) -> HostLog<'static> {
    HostLog::open(memory).unwrap().unwrap()
}

/// Writes a frame, in two pieces.
fn log(device: &mut DeviceLog<'_>, frame: &[u8]) -> bool {
    let (first, rest) = frame.split_at(frame.len() / 2);
    device.append(first);
    device.append(rest);
    device.end()
}

/// All that the log has.
fn read(host: &mut HostLog<'_>) -> Vec<u8> {
    let (mut all, mut into) = (Vec::new(), [0; 50]);
    loop {
        match host.read(&mut into) {
            Some(Taken::Bytes(0)) => return all,
            Some(Taken::Bytes(count)) => all.extend_from_slice(&into[..count]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_host_that_never_reads_loses_the_newest_lines_only() {
    let memory = memory();
    let (_device, mut device) = started(memory, 7);
    assert!(log(&mut device, &[1; 100]));
    assert!(!log(&mut device, &[2; 29]), "it does not fit");
    assert!(log(&mut device, &[3; 28]), "a shorter one does");
    assert!(!log(&mut device, &[4]));
    let mut host = opened(memory);
    assert_eq!(host.lost(), 2);
    assert_eq!(read(&mut host), [[1; 100].as_slice(), &[3; 28]].concat());
    assert!(log(&mut device, &[5; 128]), "the host has given the room back");
    assert_eq!(read(&mut host), [5; 128]);
    assert!(!log(&mut device, &[6; 129]), "longer than the log");
    assert_eq!((read(&mut host).len(), host.lost()), (0, 3));
}

#[test]
fn a_frame_is_not_seen_before_its_end() {
    let memory = memory();
    let (_device, mut device) = started(memory, 7);
    let mut host = opened(memory);
    device.append(&[1; 5]);
    assert!(read(&mut host).is_empty());
    assert!(device.end());
    assert_eq!(read(&mut host), [1; 5]);
}

#[test]
fn the_next_reader_goes_on_where_the_last_one_has_ended() {
    let memory = memory();
    let (_device, mut device) = started(memory, 7);
    assert!(log(&mut device, &[1; 5]));
    assert_eq!(opened(memory).read(&mut [0; 3]), Some(Taken::Bytes(3)));
    assert_eq!(read(&mut opened(memory)), [1; 2]);
}

#[test]
fn the_log_of_a_firmware_that_has_failed_can_be_read() {
    let memory = memory();
    let (device, mut device_log) = started(memory, 7);
    assert!(log(&mut device_log, b"last words"));
    let mut host = opened(memory);
    assert!(!host.has_failed());
    device.fail(5).unwrap();
    assert!(host.has_failed());
    assert_eq!(read(&mut host), b"last words");
    let mut late = opened(memory);
    assert!(late.has_failed() && read(&mut late).is_empty());
}

#[test]
fn a_reader_learns_that_the_firmware_has_started_again() {
    let memory = memory();
    let (_device, mut device) = started(memory, 7);
    assert!(log(&mut device, &[1; 5]));
    let mut host = opened(memory);
    let (_device, mut device) = started(memory, 8);
    assert!(log(&mut device, &[2; 5]));
    assert_eq!(host.read(&mut [0; 5]), None);
    assert_eq!(read(&mut opened(memory)), [2; 5]);
    memory.word(at::STATE).unwrap().store(0, Ordering::Release);
    assert_eq!(host.read(&mut [0; 5]), None);
    assert_eq!(HostLog::open(memory).unwrap_err(), AttachError::NotReady);
}

/// The device takes the log for full, and does not write over bytes that it has promised to the host. A reader repairs the position.
#[test]
fn a_position_that_the_host_cannot_have_leaves_no_room() {
    let memory = memory();
    for wrong in [START.wrapping_sub(1 << 16), START.wrapping_add(200)] {
        let (_device, mut device) = started(memory, 7);
        assert!(log(&mut device, &[1; 100]));
        memory.word(at::LOG_TAKEN).unwrap().store(wrong.to_le(), Ordering::Release);
        assert!(!log(&mut device, &[2; 29]), "{wrong:#x}");
        let mut host = opened(memory);
        assert_eq!(host.read(&mut [0; 8]), Some(Taken::Skipped));
        assert!(log(&mut device, &[3; 128]));
        assert_eq!(read(&mut host), [3; 128]);
    }
}

#[test]
fn a_position_that_the_device_cannot_have_is_skipped() {
    let memory = memory();
    let (_device, mut device) = started(memory, 7);
    let mut host = opened(memory);
    memory.word(at::LOG_WRITTEN).unwrap().store(START.wrapping_add(129).to_le(), Ordering::Release);
    assert_eq!(host.read(&mut [0; 8]), Some(Taken::Skipped));
    assert_eq!(host.read(&mut [0; 8]), Some(Taken::Bytes(0)));
    // The device has its own position, and stores it again with the next frame.
    assert!(log(&mut device, &[1; 128]));
    assert_eq!(host.read(&mut [0; 8]), Some(Taken::Skipped));
    assert!(log(&mut device, &[2; 128]));
    assert_eq!(read(&mut host), [2; 128]);
}

#[test]
fn a_window_without_a_log_and_one_of_an_older_version_have_none() {
    let memory = memory();
    let mut device = Device::start(memory, Layout::plan(BYTES, 4, 4).unwrap(), &ABOUT).unwrap();
    assert!(device.take_log().is_none());
    assert!(HostLog::open(memory).unwrap().is_none());
    let (mut device, _) = started(memory, 8);
    assert!(device.take_log().is_none(), "there is one end");
    memory.write(at::VERSION, &(1_u32 << 16 | 2).to_le_bytes()).unwrap();
    assert!(HostLog::open(memory).unwrap().is_none(), "the words were reserved");
    memory.write(at::VERSION, &(2_u32 << 16).to_le_bytes()).unwrap();
    assert_eq!(HostLog::open(memory).unwrap_err(), AttachError::Version(2 << 16));
}

#[test]
fn layouts_with_a_log_that_is_not_allowed_are_refused() {
    let good = layout();
    assert_eq!(good.check(BYTES), Ok(()));
    for bad in [
        Layout { log_bytes: 100, ..good },
        Layout { log_bytes: 32, ..good },
        Layout { log_bytes: 1 << 31, ..good },
        Layout { log_bytes: 256, ..good },
        Layout { log: good.completions, ..good },
        Layout { log: good.log + 4, ..good },
        Layout { log: HEADER as u64 - 64, ..good },
        Layout { log: u64::MAX - 63, ..good },
    ] {
        assert_eq!(bad.check(BYTES), Err(BadLayout), "{bad:?}");
    }
    assert_eq!(Layout::plan(BYTES, 4, 4).unwrap().with_log(96), Err(BadLayout));
    assert_eq!(Layout::plan(BYTES, 4, 4).unwrap().with_log(4096), Err(BadLayout));
}

proptest! {
    /// The bytes of all frames that were not lost arrive once and in order, whatever the lengths of frames and reads are.
    #[test]
    fn bytes_arrive_once_and_in_order(steps in prop::collection::vec((any::<bool>(), 0_usize..140), 0..200)) {
        let memory = memory();
        let (_device, mut device) = started(memory, 7);
        let mut host = opened(memory);
        let (mut sent, mut received, mut next, mut lost) = (Vec::new(), Vec::new(), 0_u8, 0);
        for (writes, length) in steps {
            if writes {
                let frame: Vec<u8> = (0..length).map(|at| next.wrapping_add(at as u8)).collect();
                next = next.wrapping_add(31);
                let fits = sent.len() - received.len() + length <= LOG as usize;
                prop_assert_eq!(log(&mut device, &frame), fits);
                if fits { sent.extend(frame) } else { lost += 1 }
            } else {
                let mut into = vec![0; length];
                let Some(Taken::Bytes(count)) = host.read(&mut into) else { panic!("no position is wrong") };
                received.extend_from_slice(&into[..count]);
            }
        }
        received.extend(read(&mut host));
        prop_assert_eq!(received, sent);
        prop_assert_eq!(host.lost(), lost);
    }
}
