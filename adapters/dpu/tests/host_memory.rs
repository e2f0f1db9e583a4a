//! Devices that read and write the memory of their hosts: messages of any length, memory that is not mapped, and memory that does not
//! belong to an operation any more.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::messages::{acquaint, pass_in_every_mode, pattern, sink};
use common::{Devices, WINDOW, start, start_blind};
use offload::host_memory::{BadMemory, HostMemory, HostTables, NoBody};
use processes::Processes;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use towline_core::arena::Arena;
use towline_core::convertor::{Layout, Span};
use towline_core::pml::Mode as EngineMode;
use towline_core::pml::offload::{DeviceFailure, Offload, Operation};
use towline_dpu::{Comm, Failure, Lost, Matching, Mode, Options, Refusal, Source, Status, Tag, Transport};
use towline_window::completion;
use towline_window::header::at;

const BAD: Failure = Failure::Operation(completion::Failure::BadMemory);
const ABORTED: Failure = Failure::Operation(completion::Failure::Aborted);
const PAGE: usize = 4096;

fn pair(devices: &Devices) -> ([Transport; 2], [Comm; 2]) {
    acquaint([devices.open_direct(0), devices.open_direct(1)])
}

/// Memory of which only the first pages are accessible.
struct Guarded {
    base: *mut u8,
    pages: usize,
}

impl Guarded {
    fn new(pages: usize, accessible: usize) -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this maps new memory.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), pages * PAGE, rights, MapFlags::PRIVATE) }.unwrap();
        let base: *mut u8 = base.cast();
        // SAFETY: these are pages of that memory, which nobody uses.
        unsafe {
            let rest = base.add(accessible * PAGE).cast();
            mprotect(rest, (pages - accessible) * PAGE, MprotectFlags::empty()).unwrap();
        }
        Self { base, pages }
    }

    fn span(&self) -> Span {
        Span::contiguous(self.base, self.pages * PAGE)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped, and is not used any more.
        unsafe { munmap(self.base.cast(), self.pages * PAGE) }.unwrap();
    }
}

/// One message from each host to the other.
fn exchange([a, b]: [&mut Transport; 2], comms: [Comm; 2], length: usize) {
    let bytes = pattern(length, length as u32);
    let (mut at_a, mut at_b) = (vec![0; length], vec![0; length]);
    // SAFETY: the vectors outlive the operations.
    let (sent, received) = unsafe {
        let received = [
            a.irecv(comms[0], Source::Rank(1), Tag::Is(77), sink(&mut at_a)).unwrap(),
            b.irecv(comms[1], Source::Rank(0), Tag::Is(77), sink(&mut at_b)).unwrap(),
        ];
        let sent = [
            a.isend(comms[0], 1, 77, Mode::Standard, Span::of(&bytes)).unwrap(),
            b.isend(comms[1], 0, 77, Mode::Standard, Span::of(&bytes)).unwrap(),
        ];
        (sent, received)
    };
    assert_eq!(a.wait(received[0]).map(|status| status.delivered), Ok(length as u64));
    assert_eq!(b.wait(received[1]).map(|status| status.delivered), Ok(length as u64));
    assert!(a.wait(sent[0]).is_ok() && b.wait(sent[1]).is_ok());
    assert!(at_a == bytes && at_b == bytes, "{length} bytes were changed");
}

#[test]
fn messages_of_any_length_and_mode_are_not_copied_by_the_host() {
    let devices = start();
    let (hosts, comms) = pair(&devices);
    pass_in_every_mode(hosts, comms, &[0, 1, 64, 513, 10_000, 400_000, 3 * WINDOW]);
}

#[test]
fn messages_to_itself_and_messages_that_were_probed_go_there_too() {
    let devices = start();
    let ([mut a, _b], comms) = acquaint([devices.open_direct(0), devices.open_direct(1)]);
    let card = a.card().unwrap();
    a.add_peer(0, &card).unwrap();
    a.del_comm(comms[0]).unwrap();
    let comm = a.add_comm(2, &[0, 1], 0).unwrap();
    let (bytes, mut into) = (pattern(2 * WINDOW, 1), vec![0; 2 * WINDOW]);
    // SAFETY: the vectors outlive the operations.
    let sent = unsafe { a.isend(comm, 0, 4, Mode::Standard, Span::of(&bytes)) }.unwrap();
    let message = loop {
        if let Some((message, status)) = a.improbe(comm, Source::Any, Tag::Any).unwrap() {
            assert_eq!((status.tag, status.received), (4, bytes.len() as u64));
            break message;
        }
    };
    // SAFETY: as above.
    let received = unsafe { a.imrecv(message, sink(&mut into)) }.map_err(|(why, _)| why).unwrap();
    assert_eq!(a.wait(received).map(|status| status.delivered), Ok(bytes.len() as u64));
    assert!(a.wait(sent).is_ok());
    assert!(into == bytes);
}

#[test]
fn memory_of_several_pieces_is_copied_and_a_shorter_receive_gets_the_first_bytes() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let every_other = Layout::vector(5000, 1, 2).unwrap();
    let (mut from, mut into) = (pattern(10_000, 3), vec![0; 5001]);
    // SAFETY: the vectors and the layout outlive the operations.
    let (sent, received) = unsafe {
        let data = Span::laid_out(from.as_mut_ptr(), &every_other);
        let received = b.irecv(comms[1], Source::Any, Tag::Any, sink(&mut into[..3000])).unwrap();
        (a.isend(comms[0], 1, 5, Mode::Standard, data).unwrap(), received)
    };
    assert_eq!(b.wait(received), Ok(Status { rank: 0, tag: 5, received: 5000, delivered: 3000 }));
    assert!(a.wait(sent).is_ok());
    assert!(into[..3000].iter().zip(from.iter().step_by(2)).all(|(to, from)| to == from));
    assert!(into[3000..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_send_of_memory_that_cannot_be_read_ends_at_both_sides_and_no_wrong_byte_arrives() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    for (tag, accessible) in [(1, 0), (2, 1), (3, 3)] {
        let memory = Guarded::new(4, accessible);
        let mut into = vec![0xee; 4 * PAGE];
        // SAFETY: the memory outlives the operations. That a part of it is not readable is the subject of the test.
        let (sent, received) = unsafe {
            let received = b.irecv(comms[1], Source::Any, Tag::Is(tag), sink(&mut into)).unwrap();
            (a.isend(comms[0], 1, tag, Mode::Standard, memory.span()).unwrap(), received)
        };
        assert_eq!(a.wait(sent), Err(BAD), "{accessible} pages");
        assert_eq!(b.wait(received), Err(ABORTED), "{accessible} pages");
        // The accessible bytes are zeros.
        let (readable, rest) = into.split_at(accessible * PAGE);
        assert!(readable.iter().all(|byte| [0, 0xee].contains(byte)), "{accessible} pages");
        assert!(rest.iter().all(|byte| *byte == 0xee), "{accessible} pages: bytes that were not read have arrived");
        exchange([&mut a, &mut b], comms, 20_000);
    }
}

#[test]
fn a_receive_into_memory_that_cannot_be_written_ends_and_its_message_is_gone() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let memory = Guarded::new(4, 2);
    for length in [4 * PAGE, 300] {
        let into =
            if length == 300 { Span::contiguous(memory.base.wrapping_add(3 * PAGE), length) } else { memory.span() };
        let bytes = pattern(length, 9);
        // SAFETY: the memory outlives the operations. That a part of it is not writable is the subject of the test.
        let (sent, received) = unsafe {
            let received = b.irecv(comms[1], Source::Any, Tag::Any, into).unwrap();
            (a.isend(comms[0], 1, 1, Mode::Synchronous, Span::of(&bytes)).unwrap(), received)
        };
        assert_eq!(b.wait(received), Err(BAD));
        assert!(a.wait(sent).is_ok(), "the sender has done its part");
        assert!(b.iprobe(comms[1], Source::Any, Tag::Any).unwrap().is_none());
        exchange([&mut a, &mut b], comms, 20_000);
    }
}

#[test]
fn the_engine_learns_whose_memory_was_bad() {
    let devices = start();
    let mut hosts = [0, 1].map(|node| Matching::new(devices.open_direct(node)));
    let cards = hosts.each_mut().map(|host| host.transport().card().unwrap());
    hosts.iter_mut().for_each(|host| (0..).zip(&cards).for_each(|(peer, card)| host.add_peer(peer, card).unwrap()));
    let members = [0, 1].map(towline_core::rail::Peer);
    let mut rank = 0;
    let comms = hosts.each_mut().map(|host| {
        rank += 1;
        host.add_comm(1, &mut members.into_iter(), rank - 1, false).unwrap().unwrap()
    });
    let [mut a, mut b] = hosts;
    let (memory, mut into) = (Guarded::new(4, 0), vec![0; 4 * PAGE]);
    let request = |number: u64| towline_core::pml::Request::from_bits(1 << 32 | number);
    let operation = |request, comm, rank| Operation { request, comm, rank, peer: rank, tag: 1 };
    // SAFETY: the memory outlives the operations.
    unsafe {
        b.irecv(&operation(request(1), comms[1], u32::MAX), sink(&mut into)).unwrap();
        let _ = a.isend(&operation(request(2), comms[0], 1), EngineMode::Standard, memory.span()).unwrap();
    }
    let mut end_of = |host: usize| loop {
        if let Some(ended) = [&mut a, &mut b][host].next_ended() {
            break ended.outcome;
        }
    };
    assert_eq!(end_of(0), Err(DeviceFailure::BadMemory));
    assert_eq!(end_of(1), Err(DeviceFailure::Aborted(0)));
}

#[test]
fn memory_of_a_cancelled_receive_is_not_written() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let (mut cancelled, mut into, bytes) = (vec![0; 50_000], vec![0; 50_000], pattern(50_000, 2));
    // SAFETY: the vectors outlive the operations.
    unsafe {
        let first = b.irecv(comms[1], Source::Any, Tag::Any, sink(&mut cancelled)).unwrap();
        assert_eq!(b.cancel(first), Ok(true));
        let sent = a.isend(comms[0], 1, 1, Mode::Standard, Span::of(&bytes)).unwrap();
        let second = b.irecv(comms[1], Source::Any, Tag::Any, sink(&mut into)).unwrap();
        assert!(b.wait(second).is_ok() && a.wait(sent).is_ok());
        assert_eq!(b.wait(first), Err(Failure::Operation(completion::Failure::Cancelled)));
    }
    assert!(cancelled.iter().all(|byte| *byte == 0) && into == bytes);
}

#[test]
fn no_memory_is_written_after_the_end_of_its_transport() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let (mut into, bytes) = (vec![0; 50_000], pattern(50_000, 2));
    // SAFETY: the vectors outlive the operations.
    unsafe {
        let _posted = b.irecv(comms[1], Source::Any, Tag::Any, sink(&mut into)).unwrap();
        let _sent = a.isend(comms[0], 1, 1, Mode::Synchronous, Span::of(&bytes)).unwrap();
        drop(b); // the device may have received a part of the message by now
        let before = into.clone();
        devices.open_direct(1); // the next session
        assert!(into == before);
    }
}

/// A firmware that hangs, and goes on when its host has given it up and uses the memory for something else.
#[test]
fn a_device_that_was_given_up_writes_no_memory() {
    let devices = start();
    let ([mut a, mut b], comms) = pair(&devices);
    let (mut into, bytes) = (vec![0; 50_000], pattern(50_000, 2));
    // SAFETY: the vectors outlive the operations.
    unsafe {
        let posted = b.irecv(comms[1], Source::Any, Tag::Any, sink(&mut into)).unwrap();
        assert!(b.iprobe(comms[1], Source::Any, Tag::Is(9)).unwrap().is_none()); // the device has the receive
        devices.stop_one(1);
        assert_eq!(b.wait(posted), Err(Failure::Device(Lost::Silent)));
        let _sent = a.isend(comms[0], 1, 1, Mode::Synchronous, Span::of(&bytes)).unwrap();
        devices.resume_one(1);
        drop(b);
        devices.open_direct(1); // the next session
    }
    assert!(into.iter().all(|byte| *byte == 0));
}

/// Tables of a device: the copies of an operation end with its session, its region and itself.
#[test]
fn no_copy_begins_when_its_operation_region_or_session_has_ended() {
    let path = std::env::temp_dir().join(format!("towline-tables-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let memory = Processes::new(&file.metadata().unwrap());
    let bytes = Box::new(*b"some bytes of this host!");
    let address = bytes.as_ptr().expose_provenance() as u64;
    let about = description(std::process::id(), address, *bytes.first_chunk().unwrap());
    let mut block = vec![0; HostTables::bytes(2, 2) + 64];
    let wanted = AtomicU32::new(7_u32.to_le());
    let mut tables = HostTables::new(&mut Arena::new(&mut block), &memory, &wanted, 2, 2).unwrap();
    let region = tables.register(address, 24, &about).unwrap();
    for (at, length) in [(24, 1), (0, 25), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(tables.begin(region, at, length, 7).unwrap_err(), NoBody::OutOfBounds, "{length} bytes at {at}");
    }
    assert_eq!(tables.begin(region + 1, 0, 1, 7).unwrap_err(), NoBody::OutOfBounds);
    assert_eq!(tables.begin(region ^ 1 << 16, 0, 1, 7).unwrap_err(), NoBody::OutOfBounds);
    let read = |span: &Span| {
        let mut into = [0xff; 4];
        // SAFETY: the array has 4 bytes.
        assert_eq!(unsafe { span.pack(into.as_mut_ptr(), 4) }, 4);
        into
    };
    let (span, place) = tables.begin(region, 5, 19, 7).unwrap();
    assert_eq!(&read(&span), b"byte");
    assert_eq!(&read(&span.window(15, 4)), b"ost!");
    assert!(!tables.end(place));
    assert_eq!(read(&span), [0; 4], "the operation has ended");
    let (span, place) = tables.begin(region, 0, 24, 7).unwrap();
    wanted.store(8_u32.to_le(), Ordering::Relaxed);
    assert_eq!(read(&span), [0; 4], "the host wants another session");
    wanted.store(7_u32.to_le(), Ordering::Relaxed);
    assert_eq!(&read(&span), b"some");
    assert!(tables.end(place), "a copy has failed");
    let [(_, first), (span, second)] = [0, 1].map(|_| tables.begin(region, 0, 24, 7).unwrap());
    assert_eq!(tables.begin(region, 0, 24, 7).unwrap_err(), NoBody::Full);
    assert_eq!(tables.count(), [1, 2]);
    assert!(tables.deregister(region) && !tables.deregister(region));
    assert_eq!(read(&span), [0; 4], "the region has ended");
    assert!(!tables.end(first) && tables.end(second));
    let region = tables.register(address, 24, &about).unwrap();
    let (span, _) = tables.begin(region, 0, 24, 7).unwrap();
    tables.clear();
    assert_eq!(read(&span), [0; 4], "the session has ended");
    assert_eq!(tables.count(), [0, 1]);
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_device_that_does_not_reach_the_memory_gets_copies() {
    let devices = start_blind();
    let open = |node: usize| {
        let mut host = Transport::open(&devices.files[node], Options { direct_from: 1, ..Options::default() }).unwrap();
        assert_eq!(host.reach_memory(), Ok(false));
        host
    };
    let ([mut a, mut b], comms) = acquaint([open(0), open(1)]);
    exchange([&mut a, &mut b], comms, 20_000);
    let long = vec![0; 2 * WINDOW];
    // SAFETY: nothing is begun.
    let refused = unsafe { a.isend(comms[0], 1, 1, Mode::Standard, Span::of(&long)) };
    assert_eq!(refused, Err(Refusal::TooLong));
}

#[test]
fn a_device_of_an_earlier_version_is_not_asked() {
    let devices = start();
    // SAFETY: the devices of this process use atomics for the words, and this is a mapping of its own.
    let mapping = towline_dpu::mapping::Mapping::open(&devices.files[0], 0).unwrap();
    // SAFETY: the memory is used while it is mapped.
    unsafe { mapping.memory() }.unwrap().write(at::VERSION, &(1_u32 << 16 | 2).to_le_bytes()).unwrap();
    let mut host = devices.open(0);
    assert_eq!(host.reach_memory(), Ok(false));
    assert!(host.card().is_ok());
}

/// A description as a host writes it.
fn description(process: u32, address: u64, word: [u8; 8]) -> Vec<u8> {
    [&b"PID\0"[..], &process.to_le_bytes(), &address.to_le_bytes(), &word].concat()
}

#[test]
fn only_the_process_that_has_the_window_open_is_reached_and_only_while_it_lives() {
    let path = std::env::temp_dir().join(format!("towline-processes-{}", std::process::id()));
    let mut file = File::create(&path).unwrap();
    file.write_all(&[0; 64]).unwrap();
    let memory = Processes::new(&file.metadata().unwrap());
    let word = Box::new(*b"a secret");
    let address = word.as_ptr().expose_provenance() as u64;
    let own = std::process::id();
    let right = description(own, address, *word);
    assert_eq!(memory.open(&description(own, address, *b"no clue!")), None, "another process with this number");
    assert_eq!(memory.open(&description(own, 8, *word)), None, "not mapped");
    assert_eq!(memory.open(&right[..23]), None);
    assert_eq!(memory.open(&[&right[..], &[0]].concat()), None);
    assert_eq!(memory.open(&[b"DMA\0", &right[4..]].concat()), None);
    for number in [0, u32::MAX, i32::MAX as u32] {
        assert_eq!(memory.open(&description(number, address, *word)), None);
    }
    let opened = memory.open(&right).unwrap();
    let mut into = [0; 8];
    assert_eq!((memory.read(opened, address, &mut into), into), (Ok(()), *b"a secret"));
    assert_eq!(memory.read(opened, 8, &mut into), Err(BadMemory));
    assert_eq!(memory.read(opened, u64::MAX, &mut into), Err(BadMemory));
    memory.close(opened);
    assert_eq!(memory.read(opened, address, &mut into), Err(BadMemory));
    drop(file);
    assert_eq!(memory.open(&right), None, "this process has closed the window");

    // A child with the window as its input. Its program begins with the same bytes as any other one.
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(File::open(&path).unwrap()).spawn().unwrap();
    let program = loop {
        // The child has not begun its program at once.
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let first = maps.lines().find(|line| line.ends_with("/cat"));
        if let Some((begin, _)) = first.and_then(|line| line.split_once('-')) {
            break u64::from_str_radix(begin, 16).unwrap();
        }
        std::thread::yield_now();
    };
    let opened = memory.open(&description(child.id(), program, *b"\x7fELF\x02\x01\x01\0")).unwrap();
    assert_eq!((memory.read(opened, program, &mut into), into), (Ok(()), *b"\x7fELF\x02\x01\x01\0"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(memory.read(opened, program, &mut into), Err(BadMemory));
    fs::remove_file(&path).unwrap();
}
