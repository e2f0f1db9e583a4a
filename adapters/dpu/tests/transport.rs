//! Transports of two hosts, over devices that a thread of this process runs.

mod common;

use std::fs::{self, File};
use std::thread;
use std::time::Duration;

use common::messages::{acquaint, pass_in_every_mode, pattern};
use common::{Devices, ENGINE, SILENT, SLOTS, WINDOW, start};
use towline_core::convertor::{Layout, Span};
use towline_dpu::mapping::Mapping;
use towline_dpu::{Comm, Failure, Lost, Mode, OpenError, Options, Refusal, Source, Status, Tag, Transport};
use towline_window::command::Command;
use towline_window::completion;
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::host::DeviceError;
use towline_window::layout;

/// Two hosts that know each other, and a communicator of both.
fn pair(devices: &Devices) -> ([Transport; 2], [Comm; 2]) {
    acquaint([devices.open(0), devices.open(1)])
}

#[test]
fn messages_in_ordinary_memory_arrive() {
    let devices = start();
    let (hosts, comms) = pair(&devices);
    pass_in_every_mode(hosts, comms, &[0, 1, 64, 65, 512, 513, 10_000, 400_000]);
}

#[test]
fn messages_in_buffers_of_the_device_are_not_copied_by_the_host() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let bytes = pattern(100_000, 7);
    let (from, to) = (a.buffer(100_000).unwrap(), b.buffer(100_000).unwrap());
    assert!(a.fill(&from, 0, &bytes));
    assert!(!a.fill(&from, 1, &bytes), "more than fits");
    let received = b.irecv_buffer(comms[1], Source::Any, Tag::Any, &to).unwrap();
    let sent = a.isend_buffer(comms[0], 1, 3, Mode::Standard, &from, 90_000).unwrap();
    assert_eq!(b.wait(received), Ok(Status { rank: 0, tag: 3, received: 90_000, delivered: 90_000 }));
    assert!(a.wait(sent).is_ok());
    let mut into = vec![0; 90_000];
    assert!(b.copy(&to, 0, &mut into));
    assert!(into == bytes[..90_000]);
    assert_eq!(
        a.irecv_buffer(comms[0], Source::Any, Tag::Any, &to),
        Err(Refusal::Invalid),
        "it is of another transport"
    );
    a.free(from);
    b.free(to);
    // Nearly as much as the window has, or too much.
    for bytes in [WINDOW as u64, WINDOW as u64 - 20_000, 990_000] {
        assert_eq!(a.buffer(bytes).unwrap_err(), Refusal::TooLong);
    }
}

#[test]
fn strided_memory_is_packed_and_unpacked() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let layout = Layout::vector(2, 4, 8).unwrap();
    let (mut from, mut to) = (*b"abcd....efgh", [b'-'; 12]);
    // SAFETY: layout and arrays outlive the operations.
    let (sent, received) = unsafe {
        let (data, sink) = (Span::laid_out(from.as_mut_ptr(), &layout), Span::laid_out(to.as_mut_ptr(), &layout));
        let received = b.irecv(comms[1], Source::Rank(0), Tag::Is(1), sink).unwrap();
        (a.isend(comms[0], 1, 1, Mode::Standard, data).unwrap(), received)
    };
    assert_eq!(b.wait(received).map(|status| status.delivered), Ok(8));
    assert!(a.wait(sent).is_ok());
    assert_eq!(&to, b"abcd----efgh");
}

#[test]
fn a_message_that_is_too_long_for_its_memory_is_delivered_in_part() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let mut into = [0; 8];
    // SAFETY: the arrays outlive the operations.
    let (sent, received) = unsafe {
        let received = b.irecv(comms[1], Source::Any, Tag::Any, Span::contiguous(into.as_mut_ptr(), 4)).unwrap();
        (a.isend(comms[0], 1, 5, Mode::Standard, Span::of(b"too long")).unwrap(), received)
    };
    assert_eq!(b.wait(received), Ok(Status { rank: 0, tag: 5, received: 8, delivered: 4 }));
    assert!(a.wait(sent).is_ok());
    assert_eq!(&into, b"too \0\0\0\0");
}

#[test]
fn probed_messages_are_received_by_their_probe_alone() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    // SAFETY: the bytes are static.
    let sent = unsafe { a.isend(comms[0], 1, 6, Mode::Standard, Span::of(b"probed")).unwrap() };
    assert!(a.wait(sent).is_ok());
    let found = loop {
        if let Some(found) = b.iprobe(comms[1], Source::Any, Tag::Is(6)).unwrap() {
            break found;
        }
    };
    assert_eq!(found, Status { rank: 0, tag: 6, received: 6, delivered: 0 });
    let (message, status) = b.improbe(comms[1], Source::Rank(0), Tag::Any).unwrap().unwrap();
    assert_eq!(status, found);
    assert_eq!(b.iprobe(comms[1], Source::Any, Tag::Any), Ok(None));
    let mut into = [0; 6];
    // SAFETY: the array outlives the operation.
    let received = unsafe { b.imrecv(message, Span::contiguous(into.as_mut_ptr(), 6)).unwrap() };
    assert_eq!(b.wait(received), Ok(Status { delivered: 6, ..found }));
    assert_eq!(&into, b"probed");
}

#[test]
fn a_receive_can_be_cancelled() {
    let devices = start();
    let ([_, mut b], comms) = pair(&devices);
    let mut into = [0; 6];
    // SAFETY: the array outlives the operation.
    let posted = unsafe { b.irecv(comms[1], Source::Any, Tag::Any, Span::contiguous(into.as_mut_ptr(), 6)).unwrap() };
    assert_eq!(b.cancel(posted), Ok(true));
    assert_eq!(b.wait(posted), Err(Failure::Operation(completion::Failure::Cancelled)));
    assert_eq!(b.cancel(posted), Ok(false));
}

#[test]
fn a_full_device_refuses_operations_and_accepts_them_later() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let mut into = [0; 8];
    let sink = Span::contiguous(into.as_mut_ptr(), 8);
    // SAFETY: the arrays outlive the operations, and are only compared with nothing.
    unsafe {
        let posted: Vec<_> =
            (0..ENGINE.requests).map(|tag| b.irecv(comms[1], Source::Any, Tag::Is(tag), sink).unwrap()).collect();
        assert_eq!(b.irecv(comms[1], Source::Any, Tag::Is(50), sink), Err(Refusal::Busy));
        for (tag, posted) in (0..).zip(posted) {
            let sent = a.isend(comms[0], 1, tag, Mode::Standard, Span::of(b"12345678")).unwrap();
            assert!(b.wait(posted).is_ok() && a.wait(sent).is_ok());
        }
        let posted = b.irecv(comms[1], Source::Any, Tag::Is(50), sink).unwrap();
        assert_eq!(b.cancel(posted), Ok(true));
    }
    // The buffers, too: a message as long as all of them waits for the others.
    let most = WINDOW as u64 * 3 / 4;
    let first = a.buffer(most).unwrap();
    assert_eq!(a.buffer(most).unwrap_err(), Refusal::Busy);
    a.free(first);
    let second = a.buffer(most).unwrap();
    a.free(second);
}

#[test]
fn wrong_arguments_are_refused_by_the_device() {
    let devices = start();
    let ([mut a, _], comms) = pair(&devices);
    assert_eq!(a.add_peer(1, b"no card"), Err(Refusal::Device(completion::Failure::Malformed)));
    assert_eq!(a.add_comm(1, &[0, 1], 0), Err(Refusal::Device(completion::Failure::Malformed)), "the context exists");
    // SAFETY: the bytes are static.
    let sent = unsafe { a.isend(comms[0], 7, 0, Mode::Standard, Span::of(b"to nobody")).unwrap() };
    assert_eq!(a.wait(sent), Err(Failure::Operation(completion::Failure::NoSuchThing)));
    a.del_comm(comms[0]).unwrap();
    assert_eq!(a.del_comm(comms[0]), Err(Refusal::Device(completion::Failure::NoSuchThing)));
}

#[test]
fn ranks_and_tags_that_no_message_has_are_refused() {
    let devices = start();
    let ([mut a, _b], comms) = pair(&devices);
    // SAFETY: nothing is begun.
    unsafe {
        assert_eq!(a.irecv(comms[0], Source::Rank(u32::MAX), Tag::Any, Span::of(&[])), Err(Refusal::Invalid));
        assert_eq!(a.irecv(comms[0], Source::Any, Tag::Is(u32::MAX), Span::of(&[])), Err(Refusal::Invalid));
        assert_eq!(a.isend(comms[0], 1, u32::MAX, Mode::Standard, Span::of(&[])), Err(Refusal::Invalid));
    }
    assert_eq!(a.iprobe(comms[0], Source::Rank(u32::MAX), Tag::Any), Err(Refusal::Invalid));
}

#[test]
fn a_transport_that_has_lost_its_device_does_not_disturb_the_next_one() {
    let mut devices = start();
    let ([a, _b], _) = pair(&devices);
    devices.stop();
    let mapping = Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the device ends before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    let about = About { boot: 77, operations: 1, one_sided: 0, description: "test 2", doorbell: Doorbell::None };
    let mut device = Device::start(memory, layout::Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
    drop(a);
    let thread = thread::spawn({
        let path = devices.files[0].clone();
        move || Transport::open(&path, Options::default()).unwrap()
    });
    let session = loop {
        if let Some(session) = device.wanted().unwrap() {
            break session;
        }
    };
    device.serve(session).unwrap();
    let next = thread.join().unwrap();
    assert_eq!(device.wanted(), Ok(None));
    drop(next);
    assert_eq!(device.wanted(), Ok(Some(0)));
}

#[test]
fn a_device_that_runs_and_does_not_answer_has_failed() {
    let mut devices = start();
    devices.stop();
    let mapping = Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the device ends before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    let about = About { boot: 77, operations: 1, one_sided: 0, description: "test 2", doorbell: Doorbell::None };
    let mut device = Device::start(memory, layout::Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
    let thread = thread::spawn({
        let path = devices.files[0].clone();
        // Long enough for a heartbeat on a busy machine, so it is the answer that is missed.
        let options = Options { silent_for: SILENT, ..Options::default() };
        move || Transport::open(&path, options).unwrap().card()
    });
    while !thread.is_finished() {
        if let Some(session) = device.wanted().unwrap() {
            device.serve(session).unwrap();
        }
        device.beat().unwrap();
    }
    assert_eq!(thread.join().unwrap(), Err(Refusal::Lost(Lost::Silent)));
}

#[test]
fn a_device_that_says_that_it_has_written_too_much_has_failed() {
    let mut devices = start();
    devices.stop();
    let mapping = Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the device ends before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    let about = About { boot: 77, operations: 1, one_sided: 0, description: "test 2", doorbell: Doorbell::None };
    let mut device = Device::start(memory, layout::Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
    let thread = thread::spawn({
        let path = devices.files[0].clone();
        move || {
            let mut host = Transport::open(&path, Options::default()).unwrap();
            let comm = host.add_comm(1, &[0], 0).unwrap();
            let mut into = [0; 8];
            let sink = Span::contiguous(into.as_mut_ptr(), 4);
            // SAFETY: the array outlives the operation.
            let posted = unsafe { host.irecv(comm, Source::Any, Tag::Any, sink).unwrap() };
            (host.wait(posted), into)
        }
    });
    while device.session() == 0 {
        if let Some(session) = device.wanted().unwrap() {
            device.serve(session).unwrap();
        }
    }
    for _ in 0..2 {
        let (cookie, command) = loop {
            if let Some((cookie, command)) = device.take() {
                break (cookie, command.unwrap());
            }
        };
        let written = if matches!(command, Command::Receive { .. }) { 8 } else { 0 };
        let done = completion::Done { received: written, delivered: written, ..completion::Done::default() };
        device.complete(&completion::Completion::new(cookie, Ok(done))).unwrap();
    }
    let (outcome, into) = thread.join().unwrap();
    assert_eq!(outcome, Err(Failure::Device(Lost::Device(DeviceError::Violation))));
    assert_eq!(into, [0; 8]);
}

#[test]
fn operations_end_if_their_device_stops() {
    let mut devices = start();
    let ([mut a, _], comms) = pair(&devices);
    let mut into = [0; 8];
    // SAFETY: the array outlives the operation.
    let posted = unsafe { a.irecv(comms[0], Source::Any, Tag::Any, Span::contiguous(into.as_mut_ptr(), 8)).unwrap() };
    devices.stop();
    assert_eq!(a.wait(posted), Err(Failure::Device(Lost::Silent)));
    assert_eq!(a.del_peer(1), Err(Refusal::Lost(Lost::Silent)));
    // SAFETY: the array outlives the operation.
    let refused = unsafe { a.irecv(comms[0], Source::Any, Tag::Any, Span::contiguous(into.as_mut_ptr(), 8)) };
    assert_eq!(refused, Err(Refusal::Lost(Lost::Silent)));
}

#[test]
fn operations_end_if_their_device_starts_again() {
    let mut devices = start();
    let ([mut a, _], comms) = pair(&devices);
    let mut into = [0; 8];
    // SAFETY: the array outlives the operation.
    let posted = unsafe { a.irecv(comms[0], Source::Any, Tag::Any, Span::contiguous(into.as_mut_ptr(), 8)).unwrap() };
    devices.stop();
    let mapping = Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the device ends before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    let about = About { boot: 77, operations: 1, one_sided: 0, description: "test 2", doorbell: Doorbell::None };
    let _device = Device::start(memory, layout::Layout::plan(WINDOW, SLOTS, SLOTS).unwrap(), &about).unwrap();
    assert_eq!(a.wait(posted), Err(Failure::Device(Lost::Device(DeviceError::Restarted))));
}

#[test]
fn a_dropped_transport_leaves_its_device_to_the_next_one() {
    let devices = start();
    let first = pair(&devices);
    let refused = Transport::open(&devices.files[0], Options::default()).unwrap_err();
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    drop(first);
    let ([mut a, _b], comms) = pair(&devices);
    assert!(!a.card().unwrap().is_empty());
    assert_eq!(a.iprobe(comms[0], Source::Any, Tag::Any), Ok(None));
}

#[test]
fn what_is_no_window_is_refused_with_the_reason() {
    let path = std::env::temp_dir().join(format!("towline-no-window-{}", std::process::id()));
    let options = Options { open_within: Duration::from_millis(20), ..Options::default() };
    assert!(matches!(Transport::open(&path, options), Err(OpenError::File(..))));
    File::create(&path).unwrap().set_len(100).unwrap();
    assert!(matches!(Transport::open(&path, options), Err(OpenError::NoWindow(..))));
    File::create(&path).unwrap().set_len(4096).unwrap();
    let refused = Transport::open(&path, options).unwrap_err();
    assert!(refused.to_string().contains("is not ready"), "{refused}");
    fs::remove_file(path).unwrap();
}
