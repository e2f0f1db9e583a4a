//! Shared memory that a hostile process writes to. The victim is a live rail. The hostile peer may at any time write any
//! value to any word of the segments that it shares with the victim. A third rail is an honest peer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use towline_core::convertor::Span;
use towline_core::rail::{
    Cookie, Endpoint, Event, FastPath, Frame, Lane, Lost, Peer, REMOTE_BUFFER_BYTES, Rail as _, RemoteBuffer,
    SendError, Shape, SingleCopy,
};
use towline_core::time::{Duration, Instant};
use towline_sm::ring::{SLOT, START};
use towline_sm::{Config, Rail};

/// Ring size and frame limit in bytes. These are the smallest possible rings: 2 KiB and 1 KiB.
const EAGER: (u32, u32) = (2048, 120);
const BULK: (u32, u32) = (1024, 184);
/// Bytes before a ring's slots.
const HEAD: u64 = 4096;
const VICTIM: u32 = 0;
const HOSTILE: u32 = 1;
const HONEST: u32 = 2;
const TAG: u8 = 0x80;

/// Runs one input. Whatever the segments contain, the victim accesses no memory outside of them, and frames of the honest
/// peer arrive unchanged.
pub fn run(data: &[u8]) {
    for entry in std::fs::read_dir(directory()).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
    let mut data = Unstructured::new(data);
    let mut scenario = Scenario::new(data.arbitrary().unwrap_or(false));
    while !data.is_empty() {
        if scenario.step(&mut data).is_err() {
            break;
        }
    }
    scenario.finish();
}

/// A directory in memory that only this process uses.
fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let path = PathBuf::from(format!("/dev/shm/towline-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory in memory");
        path
    })
}

fn open(rank: u32, single_copy: bool) -> Rail {
    let mut config = Config::new(0xF0, rank, 3);
    config.directory.clone_from(directory());
    (config.eager_ring_bytes, config.eager_limit_bytes) = EAGER;
    (config.bulk_ring_bytes, config.bulk_limit_bytes) = BULK;
    (config.single_copy_bytes, config.single_copy_limit_bytes) = (if single_copy { 64 } else { 0 }, 4096);
    config.frames_kept = 3;
    Rail::open(config).expect("only this process uses the directory")
}

/// One direction between the victim and the honest peer: frames with consecutive numbers.
#[derive(Default)]
struct Numbered {
    sent: u64,
    received: u64,
}

struct Scenario {
    victim: Rail,
    hostile: Rail,
    honest: Rail,
    /// Endpoints, in this order: the victim's for the hostile peer and for the honest peer, the hostile peer's for the
    /// victim, and the honest peer's for the victim.
    endpoints: [Endpoint; 4],
    /// Segments that the hostile peer has opened, with their paths.
    files: Vec<(PathBuf, File)>,
    held: Vec<Frame>,
    to_honest: Numbered,
    from_honest: Numbered,
    lost: Option<Lost>,
    /// The victim and the honest peer have lost each other: the hostile peer marked one of them as closed.
    disconnected: bool,
    /// The hostile peer wrote to a control segment. It may have cleared a doorbell that its owner had not read.
    doorbell_lost: bool,
    now: Instant,
}

impl Scenario {
    fn new(single_copy: bool) -> Self {
        let [mut victim, mut hostile, mut honest] = [VICTIM, HOSTILE, HONEST].map(|rank| open(rank, single_copy));
        let add = |to: &mut Rail, peer, card: &Rail| to.add_peer(Peer(peer), card.card()).expect("all rails exist");
        let endpoints = [
            add(&mut victim, HOSTILE, &hostile),
            add(&mut victim, HONEST, &honest),
            add(&mut hostile, VICTIM, &victim),
            add(&mut honest, VICTIM, &victim),
        ];
        Self {
            victim,
            hostile,
            honest,
            endpoints,
            files: Vec::new(),
            held: Vec::new(),
            to_honest: Numbered::default(),
            from_honest: Numbered::default(),
            lost: None,
            disconnected: false,
            doorbell_lost: false,
            now: Instant::ZERO,
        }
    }

    fn step(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        match u8::arbitrary(data)? % 12 {
            0..=3 => self.write(data)?,
            4 => {
                let (lane, len) = (lane(data)?, u32::from(u8::arbitrary(data)?));
                let _ = send(&mut self.hostile, self.endpoints[2], lane, len, 0);
            }
            5 => {
                if send(&mut self.honest, self.endpoints[3], Lane::Eager, 8, self.from_honest.sent).is_ok() {
                    self.from_honest.sent += 1;
                }
            }
            6 => self.victim_sends(data)?,
            7 => self.poll(),
            8 => {
                if bool::arbitrary(data)? {
                    self.poll_copied();
                }
                self.poll();
            }
            9 => self.consume(data)?,
            10 => match u8::arbitrary(data)? % 4 {
                0 => drop(self.victim.arm()),
                1 => drop(self.hostile.poll(self.now)),
                2 => self.now = self.now + Duration::from_millis(300),
                _ => self.read_exposed(data)?,
            },
            _ => self.poll_honest(),
        }
        Ok(())
    }

    /// The hostile process writes to a segment that it shares with the victim.
    fn write(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        for entry in std::fs::read_dir(directory()).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // All ranks can write to control segments. The hostile rank can write to its own rings only.
            let is_writable =
                !name.contains(&format!("{VICTIM}-{HONEST}")) && !name.contains(&format!("{HONEST}-{VICTIM}"));
            if is_writable
                && !self.files.iter().any(|(known, _)| *known == path)
                && let Ok(file) = File::options().write(true).open(&path)
            {
                self.files.push((path, file));
            }
        }
        if self.files.is_empty() {
            return Ok(());
        }
        let (path, file) = &self.files[usize::from(u8::arbitrary(data)?) % self.files.len()];
        let word = match u8::arbitrary(data)? % 4 {
            // Values that a correct peer could have written reach most of the code.
            0 => START.wrapping_add_signed(i8::arbitrary(data)?.into()).into(),
            1 => {
                let position = START.wrapping_add(u8::arbitrary(data)?.into());
                u64::from(u32::arbitrary(data)?) << 32 | u64::from(position << 1 | 1)
            }
            2 => u64::from(u8::arbitrary(data)?),
            _ => u64::arbitrary(data)?,
        };
        let at = match u8::arbitrary(data)? {
            slot @ ..128 => HEAD + u64::from(slot % 32) * SLOT as u64,
            word => u64::from(word - 128) * 8,
        };
        // Only within the file. No rank maps bytes that are added behind its end.
        let len = file.metadata().map_or(0, |about| about.len());
        if at + 8 <= len {
            // The name of a ring's file contains two ranks, with a hyphen between them.
            self.doorbell_lost |= !path.file_name().is_some_and(|name| name.to_string_lossy().contains('-'));
            let _ = file.write_all_at(&word.to_ne_bytes(), at);
        }
        Ok(())
    }

    fn victim_sends(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        if bool::arbitrary(data)? {
            if send(&mut self.victim, self.endpoints[1], Lane::Eager, 8, self.to_honest.sent).is_ok() {
                self.to_honest.sent += 1;
            }
            return Ok(());
        }
        let (lane, len) = (lane(data)?, u32::from(u8::arbitrary(data)?));
        let sent = send(&mut self.victim, self.endpoints[0], lane, len, 0);
        if self.lost.is_some() {
            assert!(sent.is_err(), "a frame was sent to a peer that is lost");
        }
        Ok(())
    }

    fn poll(&mut self) {
        if let Some(short) = self.victim.poll_short(TAG).or_else(|| self.victim.poll_eager(TAG)) {
            assert!(short.from != Peer(HOSTILE) || self.lost.is_none(), "a frame arrived from a peer that is lost");
            if short.from == Peer(HONEST) {
                panic!("the honest peer sends no frame of this kind");
            }
            // One that lies in several slots is held from here on.
            let again = self.victim.poll_again().expect("nobody writes meanwhile");
            assert_eq!((again.from, again.len as usize), (short.from, 24 + short.body.len()));
            self.held.extend(Some(again).filter(|frame| !frame.is_whole()));
            return;
        }
        match self.victim.poll(self.now) {
            Some(Event::Frame(frame)) if frame.from == Peer(HONEST) => {
                assert_eq!((frame.tag, frame.head()), (TAG, &self.from_honest.received.to_le_bytes()[..]));
                self.from_honest.received += 1;
                self.victim.release(frame.id);
            }
            Some(Event::Frame(frame)) => {
                assert!(self.lost.is_none(), "a frame arrived from a peer that is lost");
                let limit = if frame.is_whole() { towline_core::rail::HEAD as u32 } else { EAGER.1.max(BULK.1) };
                assert!(frame.len <= limit.max(EAGER.1.max(BULK.1)), "{frame:?}");
                if !frame.is_whole() {
                    self.held.push(frame);
                }
            }
            Some(Event::Lost(Peer(HOSTILE), why)) => {
                assert_eq!(self.lost.replace(why), None, "the peer was reported as lost twice");
                self.held.clear();
                self.victim.del_peer(self.endpoints[0]);
            }
            Some(Event::Lost(..)) => self.disconnected = true,
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }

    /// Polls as a caller that wants copies. The honest peer's frames, which are counted, come by `poll`.
    fn poll_copied(&mut self) {
        let mut bytes = [0; EAGER.1 as usize];
        if let Some(copied) = self.victim.poll_copied(TAG, &mut bytes) {
            assert!(copied.from == Peer(HOSTILE) && self.lost.is_none(), "a frame arrived from a peer that is lost");
            assert!(copied.tag != TAG && copied.len as usize <= bytes.len(), "{copied:?}");
        }
    }

    /// Reads, delivers or releases a frame that the victim holds.
    fn consume(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let (at, how, skip) = (usize::arbitrary(data)?, u8::arbitrary(data)?, u8::arbitrary(data)?);
        if self.held.is_empty() {
            return Ok(());
        }
        let frame = self.held[at % self.held.len()];
        let mut into = vec![0; usize::from(how)];
        match how % 3 {
            0 => {
                let read = self.victim.read(frame.id, skip.into(), &mut into);
                assert!(read <= (frame.len as usize).saturating_sub(skip.into()).min(into.len()));
                return Ok(());
            }
            1 => {
                let sink = Span::contiguous(into.as_mut_ptr(), into.len());
                // SAFETY: the sink belongs to this function, and this rail completes a delivery before it returns.
                unsafe { self.victim.deliver(frame.id, skip.into(), sink, Cookie(0)) };
            }
            _ => self.victim.release(frame.id),
        }
        self.held.retain(|held| held.id != frame.id);
        Ok(())
    }

    /// The victim reads an exposed buffer whose description the hostile peer forged.
    fn read_exposed(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let remote = RemoteBuffer(<[u8; REMOTE_BUFFER_BYTES]>::arbitrary(data)?);
        let mut into = vec![0; usize::from(u8::arbitrary(data)?)];
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        // SAFETY: the sink belongs to this function, and the rail does not use it after this call.
        unsafe { self.victim.read_exposed(self.endpoints[0], &remote, sink) };
        Ok(())
    }

    fn poll_honest(&mut self) {
        match self.honest.poll(self.now) {
            Some(Event::Frame(frame)) => {
                assert_eq!((frame.from, frame.head()), (Peer(VICTIM), &self.to_honest.received.to_le_bytes()[..]));
                self.to_honest.received += 1;
                self.honest.release(frame.id);
            }
            Some(_) => self.disconnected = true,
            None => {}
        }
    }

    /// Checks that all frames between the victim and the honest peer arrive once the hostile peer has stopped writing.
    fn finish(mut self) {
        for frame in std::mem::take(&mut self.held) {
            self.victim.release(frame.id);
        }
        for _ in 0..1000 {
            self.poll();
            self.poll_honest();
            for frame in std::mem::take(&mut self.held) {
                self.victim.release(frame.id);
            }
        }
        for Numbered { sent, received } in [self.to_honest, self.from_honest] {
            assert!(received <= sent, "received {received}, sent {sent}");
            let may_be_missing = self.disconnected || self.doorbell_lost;
            assert!(received == sent || may_be_missing, "received {received}, sent {sent}");
        }
    }
}

fn lane(data: &mut Unstructured<'_>) -> Result<Lane> {
    Ok(match u8::arbitrary(data)? % 3 {
        0 => Lane::Eager,
        1 => Lane::Bulk,
        _ => Lane::Control,
    })
}

/// Sends a frame of `len` bytes that begins with a number.
fn send(rail: &mut Rail, to: Endpoint, lane: Lane, len: u32, number: u64) -> std::result::Result<(), SendError> {
    let mut grant = rail.reserve(to, Shape { tag: TAG, lane, header: 0, len })?;
    grant.write(0, &number.to_le_bytes()[..(len as usize).min(8)]);
    let ticket = grant.finish();
    rail.commit(ticket);
    Ok(())
}
