//! Both ends of the window of a device, while the other side writes any word of it at any time.

use std::ptr::NonNull;

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_window::atomics::Ordering;
use towline_window::command::Command;
use towline_window::completion::Completion;
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::header::at;
use towline_window::host::{Attaching, Card, Host};
use towline_window::host_log::HostLog;
use towline_window::layout::Layout;
use towline_window::log::Taken;
use towline_window::memory::Memory;
use towline_window::placed_log::DeviceLog;
use towline_window::ring::START;

/// Bytes of the window: header, rings of 8 and 4 slots, a log, and 256 bytes of buffers.
pub(crate) const BYTES: usize = 512 + 12 * 64 + LOG as usize + 256;
/// Bytes of the log.
const LOG: u32 = 64;

/// The layout of the window.
pub(crate) fn layout() -> Layout {
    Layout::plan(BYTES, 8, 4).unwrap().with_log(LOG).unwrap()
}

/// Memory of a window.
#[repr(align(64))]
pub(crate) struct Lines(pub [u8; BYTES]);

/// Words that a hostile side changes most often.
const WORDS: [u64; 23] = [
    at::BOOT,
    at::COMMAND_SLOTS,
    at::COMPLETION_SLOTS,
    at::COMMANDS,
    at::COMPLETIONS,
    at::BUFFERS,
    at::STATE,
    at::SESSION,
    at::HEARTBEAT,
    at::WANTED,
    at::LEFT,
    at::COMMANDS_TAKEN,
    at::COMPLETIONS_TAKEN,
    at::ONE_SIDED,
    at::LOG,
    at::LOG_BYTES,
    at::DOORBELL,
    at::LOG_WRITTEN,
    at::LOG_LOST,
    at::DEVICE_SLEEPS,
    at::LOG_TAKEN,
    at::RINGS,
    at::HOST_SLEEPS,
];

/// Writes a word of the window: a ring position or sequence number that might be right, or any value.
pub(crate) fn scribble(memory: &Memory<'_>, data: &mut Unstructured<'_>) -> Result<()> {
    let choice = u8::arbitrary(data)?;
    let at = match WORDS.get(usize::from(choice)) {
        Some(at) => *at,
        None => u64::from(u16::arbitrary(data)?) % (BYTES as u64 / 4) * 4,
    };
    let value = match u8::arbitrary(data)? % 4 {
        0 => START.wrapping_add(u8::arbitrary(data)?.into()),
        1 => START.wrapping_add(u8::arbitrary(data)?.into()) << 1 | 1,
        2 => u8::arbitrary(data)?.into(),
        _ => u32::arbitrary(data)?,
    };
    memory.word(at).unwrap().store(value, Ordering::Relaxed);
    Ok(())
}

/// Runs one input. What an end accepts is encoded to the same words, and all accesses are inside the window.
pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let mut lines = Lines([0; BYTES]);
    // SAFETY: the memory is used by its address only while the window exists.
    let memory = unsafe { Memory::new(NonNull::from(&mut lines.0).cast(), BYTES) }.unwrap();
    let about = About { boot: 1, operations: 6, one_sided: 2, description: "fuzz", doorbell: Doorbell::Pipes };
    let mut device = Device::start(memory, layout(), &about).unwrap();
    let mut logs = Logs { device: device.take_log().unwrap(), host: HostLog::open(memory).unwrap() };
    let mut attaching = Attaching::new(memory, 1).ok();
    device.serve(1).unwrap();
    let mut host = attaching.as_mut().and_then(Attaching::poll);
    while !data.is_empty() {
        if step(&memory, &mut device, &mut attaching, &mut host, &mut logs, &mut data).is_err() {
            break;
        }
    }
}

/// Both ends of the log.
struct Logs<'w> {
    device: DeviceLog<'w>,
    host: Option<HostLog<'w>>,
}

/// Writes or reads the log.
fn log<'w>(memory: &Memory<'w>, logs: &mut Logs<'w>, data: &mut Unstructured<'_>) -> Result<()> {
    let mut bytes = [7; 80];
    let choice = u8::arbitrary(data)?;
    let some = &mut bytes[..usize::from(choice) % 80];
    match choice {
        0..160 => {
            logs.device.append(some);
            if choice & 1 == 0 {
                logs.device.end();
            }
        }
        160..240 => match logs.host.as_mut().map(|host| host.read(some)) {
            Some(Some(Taken::Bytes(count))) => assert!(count <= some.len() && count <= LOG as usize),
            Some(Some(Taken::Skipped)) | None => {}
            Some(None) => logs.host = None,
        },
        _ => logs.host = HostLog::open(*memory).ok().flatten(),
    }
    Ok(())
}

fn step<'w>(
    memory: &Memory<'w>,
    device: &mut Device<'w>,
    attaching: &mut Option<Attaching<'w>>,
    host: &mut Option<Host<'w>>,
    logs: &mut Logs<'w>,
    data: &mut Unstructured<'_>,
) -> Result<()> {
    match u8::arbitrary(data)? % 10 {
        0 | 1 => scribble(memory, data)?,
        2 => {
            if let Some((cookie, Ok(command))) = device.take() {
                assert_eq!(Command::decode(&command.encode(cookie)), (cookie, Ok(command)));
            }
        }
        3 => {
            let words = <[u32; 15]>::arbitrary(data)?;
            if let Ok(completion) = Completion::decode(&words) {
                let _ = device.complete(&completion);
            }
        }
        4 => {
            let words = <[u32; 15]>::arbitrary(data)?;
            if let (cookie, Ok(command), Some(host)) = {
                let (c, r) = Command::decode(&words);
                (c, r, host.as_mut())
            } {
                let _ = host.command(cookie, &command);
            }
        }
        5 => {
            if let Some(host) = host {
                if let Ok(Some(completion)) = host.take() {
                    assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
                }
                let _ = host.check();
                let _ = (host.must_ring(), host.awake());
            }
        }
        6 => {
            if let Ok(Some(session)) = device.wanted() {
                device.serve(session).unwrap();
            }
            let _ = device.beat();
        }
        7 => log(memory, logs, data)?,
        8 => {
            device.announce_sleep();
            let _ = (device.must_ring(), device.is_rung());
            device.awake();
            host.as_mut().map(Host::announce_sleep);
        }
        _ => {
            if let Ok(card) = Card::read(memory) {
                assert!(card.layout.check(BYTES).is_ok());
                let _ = card.description();
            }
            if let Some(host) = host.take() {
                host.detach();
            }
            *attaching = Attaching::with_doorbell(*memory, u32::from(u8::arbitrary(data)?)).ok();
            *host = attaching.as_mut().and_then(Attaching::poll);
        }
    }
    Ok(())
}
