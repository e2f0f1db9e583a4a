//! The bytes that `core/WINDOW.md` specifies.

use core::ptr::NonNull;

use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_window::command::{ANY, Body, Command, HostRange, KeyPlace, Mode, Remote};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::header::HEADER;
use towline_window::host::Attaching;
use towline_window::host_log::HostLog;
use towline_window::layout::Layout;
use towline_window::log::Taken;
use towline_window::memory::Memory;

const WINDOW: usize = 1088;

#[repr(align(64))]
struct Lines([u8; WINDOW]);

/// The bytes of a slot as hexadecimal numbers, one word after the other, without the zeros at the end.
fn hex(entry: &[u32]) -> String {
    let used = entry.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    let words = entry[..used].iter().map(|word| word.to_le_bytes().map(|byte| format!("{byte:02x}")).concat());
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn commands_have_the_bytes_of_the_specification() {
    let body = Body { region: 1, at: 0x1122_3344_5566_7788, bytes: 0x0102_0304_0506 };
    let long = "01000000 88776655 44332211 06050403 02010000";
    let key = KeyPlace { region: 2, at: 0x99aa_bbcc_ddee_ff00 };
    let place = "00ffeedd ccbbaa99 02000000";
    let remote = Remote { peer: 5, offset: 0x0809_0a0b_0c0d, key };
    for (command, bytes) in [
        (
            Command::Send { comm: 2, dest: 3, tag: 4, mode: Mode::Synchronous, body },
            format!("01010000 0df0adba fecaefbe 02000000 03000000 04000000 {long}"),
        ),
        (
            Command::Receive { comm: 2, source: ANY, tag: 4, body },
            format!("02000000 0df0adba fecaefbe 02000000 ffffffff 04000000 {long}"),
        ),
        (
            Command::Probe { comm: 2, source: 3, tag: ANY, take: true },
            "03010000 0df0adba fecaefbe 02000000 03000000 ffffffff".into(),
        ),
        (
            Command::ReceiveMatched { message: 9, body },
            format!("04000000 0df0adba fecaefbe 09000000 00000000 00000000 {long}"),
        ),
        (Command::Cancel { cookie: 7 << 32 | 8 }, "05000000 0df0adba fecaefbe 08000000 07000000".into()),
        (
            Command::AddPeer { peer: 5, card: body },
            format!("06000000 0df0adba fecaefbe 05000000 00000000 00000000 {long}"),
        ),
        (Command::DeletePeer { peer: 5 }, "07000000 0df0adba fecaefbe 05000000".into()),
        (
            Command::AddCommunicator { context: 6, rank: 1, size: 4, peers: body },
            format!("08000000 0df0adba fecaefbe 06000000 01000000 04000000 {long}"),
        ),
        (Command::DeleteCommunicator { comm: 2 }, "09000000 0df0adba fecaefbe 02000000".into()),
        (Command::Publish { into: body }, format!("0a000000 0df0adba fecaefbe 00000000 00000000 00000000 {long}")),
        (Command::LosePeer { peer: 5 }, "0b000000 0df0adba fecaefbe 05000000".into()),
        (Command::Acknowledge { comm: 2 }, "0c000000 0df0adba fecaefbe 02000000".into()),
        (
            Command::Register {
                access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
                only: ANY,
                memory: body,
                key,
            },
            format!("0d0e0000 0df0adba fecaefbe ffffffff 00000000 00000000 {long} {place}"),
        ),
        (Command::Deregister { registration: 5 }, "0e000000 0df0adba fecaefbe 05000000".into()),
        (
            Command::Put { to: remote, body },
            format!("0f000000 0df0adba fecaefbe 05000000 0d0c0b0a 09080000 {long} {place}"),
        ),
        (
            Command::Get { from: remote, body },
            format!("10000000 0df0adba fecaefbe 05000000 0d0c0b0a 09080000 {long} {place}"),
        ),
        (
            Command::Atomic { at: remote, atomic: Atomic::Op(AtomicOp::Max, 7 << 32 | 8), flags: AtomicFlags::BITS_32 },
            format!(
                "11610000 0df0adba fecaefbe 05000000 0d0c0b0a 09080000 00000000 08000000 07000000 00000000 00000000 {place}"
            ),
        ),
        (
            Command::Atomic { at: remote, atomic: Atomic::CompareSwap(9, 7), flags: AtomicFlags::empty() },
            format!(
                "11000000 0df0adba fecaefbe 05000000 0d0c0b0a 09080000 00000000 07000000 00000000 09000000 00000000 {place}"
            ),
        ),
        (Command::Count { peer: 5 }, "12000000 0df0adba fecaefbe 05000000".into()),
        (
            Command::SendFrame { peer: 5, tag: 0x80, body },
            format!("13000000 0df0adba fecaefbe 05000000 80000000 00000000 {long}"),
        ),
        (Command::ReceiveFrame { body }, format!("14000000 0df0adba fecaefbe 00000000 00000000 00000000 {long}")),
        (
            Command::RegisterHost {
                memory: HostRange { address: 0x1122_3344_5566_7788, bytes: 0x0102_0304_0506 },
                description: key,
                bytes: 24,
            },
            format!(
                "15000000 0df0adba fecaefbe 18000000 00000000 00000000 00000000 88776655 44332211 06050403 02010000 {place}"
            ),
        ),
        (Command::DeregisterHost { region: 5 }, "16000000 0df0adba fecaefbe 05000000".into()),
        (
            Command::Announce { comm: 5, dest: 6, tag: 7, mode: Mode::Ready, length: 0x0042_0102_0304_0506 },
            "17030000 0df0adba fecaefbe 05000000 06000000 07000000 00000000 00000000 00000000 06050403 02014200".into(),
        ),
        (Command::KeepReady { keep: true }, "18010000 0df0adba fecaefbe".into()),
        (Command::KeepReady { keep: false }, "18000000 0df0adba fecaefbe".into()),
    ] {
        assert_eq!(hex(&command.encode(0xbeef_cafe_baad_f00d)), bytes);
    }
}

#[test]
fn completions_have_the_bytes_of_the_specification() {
    let done = Done { rank: 1, tag: 2, received: 3 << 32 | 4, delivered: 5 << 32 | 6, value: 7, word: 8 << 32 | 9 };
    let completion = Completion::new(0xbeef_cafe_baad_f00d, Ok(done));
    assert_eq!(
        hex(&completion.encode()),
        "00000000 0df0adba fecaefbe 01000000 02000000 04000000 03000000 06000000 05000000 07000000 09000000 08000000"
    );
    for (number, failure) in [
        (1, Failure::NotFound),
        (2, Failure::Cancelled),
        (3, Failure::Full),
        (4, Failure::NoSuchThing),
        (5, Failure::OutOfBounds),
        (6, Failure::Unknown),
        (7, Failure::Malformed),
        (8, Failure::PeerFailed),
        (9, Failure::PeerFinished),
        (10, Failure::Refused),
        (11, Failure::Unreachable),
        (12, Failure::NotReady),
        (13, Failure::BadKey),
        (14, Failure::StaleKey),
        (15, Failure::NoRight),
        (16, Failure::OutOfMemory),
        (17, Failure::NotAvailable),
        (18, Failure::BadMemory),
        (19, Failure::Aborted),
        (20, Failure::NoHostMemory),
    ] {
        let completion = Completion::new(1, Err(failure));
        assert_eq!(hex(&completion.encode()), format!("{number:02x}000000 01000000 00000000 ffffffff"));
        let of_peer = Completion { failed: 3, ..completion };
        assert_eq!(hex(&of_peer.encode()), format!("{number:02x}000000 01000000 00000000 03000000"));
        assert_eq!(Completion::decode(&of_peer.encode()), Ok(of_peer));
    }
}

#[test]
fn a_window_has_the_bytes_of_the_specification() {
    let mut lines = Lines([0; WINDOW]);
    let base = NonNull::new((&raw mut lines.0).cast()).unwrap();
    // SAFETY: the memory is used by its address only while the window exists.
    let memory = unsafe { Memory::new(base, WINDOW) }.unwrap();
    let about = About {
        boot: 0x0a0b_0c0d,
        operations: 0x0101,
        one_sided: 0x0203,
        description: "firmware 1",
        doorbell: Doorbell::Pipes,
    };
    let layout = Layout::plan(WINDOW, 2, 4).unwrap().with_log(64).unwrap();
    let mut device = Device::start(memory, layout, &about).unwrap();
    let mut attaching = Attaching::with_doorbell(memory, 0x0102_0304).unwrap();
    assert_eq!(device.wanted(), Ok(Some(0x0102_0304)));
    device.serve(0x0102_0304).unwrap();
    let mut host = attaching.poll().unwrap();
    host.command(1, &Command::DeletePeer { peer: 5 }).unwrap();
    assert_eq!(device.take(), Some((1, Ok(Command::DeletePeer { peer: 5 }))));
    device.complete(&Completion::new(1, Err(Failure::NoSuchThing))).unwrap();
    device.beat().unwrap();
    let mut log = device.take_log().unwrap();
    log.append(b"fra");
    log.append(b"me\0");
    assert!(log.end());
    log.append(&[b'x'; 60]);
    assert!(!log.end(), "there is no room");
    assert_eq!(HostLog::open(memory).unwrap().unwrap().read(&mut [0; 2]), Some(Taken::Bytes(2)));
    device.announce_sleep();
    assert!(host.must_ring() && !host.must_ring());
    assert!(!host.announce_sleep(), "there is a completion");
    host.awake();
    assert!(host.take().unwrap().is_some());
    assert!(host.announce_sleep());

    let mut bytes = [0; WINDOW];
    memory.read(0, &mut bytes).unwrap();
    let mut expected = [0; WINDOW];
    let mut put = |at: usize, bytes: &[u8]| expected[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"TOWLINEW");
    put(8, &[5, 0, 1, 0, 0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0, 0, 4, 0, 0, 0]);
    put(24, &[0, 2]); // commands at 512
    put(32, &[0x80, 2]); // completions at 640
    put(40, &[0xc0, 3]); // buffers at 960
    put(48, &[0x80]); // 128 bytes of buffers
    put(56, &[1, 1]); // 257 operations
    put(60, &[3, 2]); // 515 puts, gets and atomics
    put(64, b"firmware 1");
    put(128, &[1, 0, 0, 0, 4, 3, 2, 1, 1, 0, 0, 0]);
    put(168, &[0x80, 3]); // log at 896
    put(176, &[64, 0, 0, 0, 1, 0, 0, 0]); // its 64 bytes, and pipes as the doorbell
    put(184, &[0xc6, 0xff, 0xff, 0xff, 1]); // 6 bytes, and a frame that was lost
    put(192, &[4, 3, 2, 1]);
    put(256, &[0xc1, 0xff, 0xff, 0xff, 1]); // a quarter of two slots is one; the first sleep
    put(320, &[0xc1, 0xff, 0xff, 0xff, 0xc2, 0xff, 0xff, 0xff, 4, 3, 2, 1, 3]); // the second sleep
    put(896, b"frame");
    put(HEADER, &[0x81, 0xff, 0xff, 0xff, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    put(640, &[0x81, 0xff, 0xff, 0xff, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(bytes, expected);
}
