//! Shared memory that a hostile process writes to: a live rail, one peer that writes any value to any word of the segments
//! that the two share, at any time, and one peer that is honest.

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

/// The smallest rings that can be: 2 KiB and 1 KiB.
const EAGER: (u32, u32) = (2048, 120);
const BULK: (u32, u32) = (1024, 184);
/// Bytes before a ring's slots.
const HEAD: u64 = 4096;
const VICTIM: u32 = 0;
const HOSTILE: u32 = 1;
const HONEST: u32 = 2;
const TAG: u8 = 0x80;

/// Plays one input: whatever stands in the segments, nothing is touched outside of them, and what the honest peer says is
/// heard as it was said.
pub fn run(data: &[u8]) {
    for entry in std::fs::read_dir(directory()).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
    let mut data = Unstructured::new(data);
    let mut stage = Stage::new(data.arbitrary().unwrap_or(false));
    while !data.is_empty() {
        if stage.step(&mut data).is_err() {
            break;
        }
    }
    stage.end();
}

/// A directory of this process's own, in memory.
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
    Rail::open(config).expect("the directory is this process's own")
}

/// What was said between the victim and the honest peer: numbers, one after another.
#[derive(Default)]
struct Told {
    said: u64,
    heard: u64,
}

struct Stage {
    victim: Rail,
    hostile: Rail,
    honest: Rail,
    /// The victim's way to the hostile peer, and to the honest one; those two's way to the victim.
    ways: [Endpoint; 4],
    /// Segments that the hostile peer has seen, by their names.
    files: Vec<(PathBuf, File)>,
    held: Vec<Frame>,
    to_honest: Told,
    from_honest: Told,
    lost: Option<Lost>,
    /// The hostile peer made the victim look closed to the honest one, or the honest one to the victim.
    parted: bool,
    /// It wrote to a board, where it may put out the bell of whoever has yet to look.
    unheard: bool,
    now: Instant,
}

impl Stage {
    fn new(single_copy: bool) -> Self {
        let [mut victim, mut hostile, mut honest] = [VICTIM, HOSTILE, HONEST].map(|rank| open(rank, single_copy));
        let add = |to: &mut Rail, peer, card: &Rail| to.add_peer(Peer(peer), card.card()).expect("all are there");
        let ways = [
            add(&mut victim, HOSTILE, &hostile),
            add(&mut victim, HONEST, &honest),
            add(&mut hostile, VICTIM, &victim),
            add(&mut honest, VICTIM, &victim),
        ];
        Self {
            victim,
            hostile,
            honest,
            ways,
            files: Vec::new(),
            held: Vec::new(),
            to_honest: Told::default(),
            from_honest: Told::default(),
            lost: None,
            parted: false,
            unheard: false,
            now: Instant::ZERO,
        }
    }

    fn step(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        match u8::arbitrary(data)? % 12 {
            0..=3 => self.write(data)?,
            4 => {
                let (lane, len) = (lane(data)?, u32::from(u8::arbitrary(data)?));
                let _ = say(&mut self.hostile, self.ways[2], lane, len, 0);
            }
            5 => {
                if say(&mut self.honest, self.ways[3], Lane::Eager, 8, self.from_honest.said).is_ok() {
                    self.from_honest.said += 1;
                }
            }
            6 => self.victim_sends(data)?,
            7..=8 => self.poll(),
            9 => self.consume(data)?,
            10 => match u8::arbitrary(data)? % 4 {
                0 => drop(self.victim.arm()),
                1 => drop(self.hostile.poll(self.now)),
                2 => self.now = self.now + Duration::from_millis(300),
                _ => self.read_exposed(data)?,
            },
            _ => self.hear_honest(),
        }
        Ok(())
    }

    /// The hostile process writes to a segment that it has in common with the victim.
    fn write(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        for entry in std::fs::read_dir(directory()).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // Boards are everybody's; of rings, those of the hostile rank.
            let its = !name.contains(&format!("{VICTIM}-{HONEST}")) && !name.contains(&format!("{HONEST}-{VICTIM}"));
            if its
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
            // What a correct peer could have written there shows most.
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
        // Within what there is: a file that is made longer is of no use to anybody.
        let len = file.metadata().map_or(0, |about| about.len());
        if at + 8 <= len {
            // Rings are from one rank to another.
            self.unheard |= !path.file_name().is_some_and(|name| name.to_string_lossy().contains('-'));
            let _ = file.write_all_at(&word.to_ne_bytes(), at);
        }
        Ok(())
    }

    fn victim_sends(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        if bool::arbitrary(data)? {
            if say(&mut self.victim, self.ways[1], Lane::Eager, 8, self.to_honest.said).is_ok() {
                self.to_honest.said += 1;
            }
            return Ok(());
        }
        let (lane, len) = (lane(data)?, u32::from(u8::arbitrary(data)?));
        let sent = say(&mut self.victim, self.ways[0], lane, len, 0);
        if self.lost.is_some() {
            assert!(sent.is_err(), "a peer that was lost is not sent to");
        }
        Ok(())
    }

    fn poll(&mut self) {
        if let Some(short) = self.victim.poll_short(TAG) {
            assert!(short.from != Peer(HOSTILE) || self.lost.is_none(), "heard of a peer that was lost");
            if short.from == Peer(HONEST) {
                panic!("the honest peer sends nothing so long");
            }
            return;
        }
        match self.victim.poll(self.now) {
            Some(Event::Frame(frame)) if frame.from == Peer(HONEST) => {
                assert_eq!((frame.tag, frame.head()), (TAG, &self.from_honest.heard.to_le_bytes()[..]));
                self.from_honest.heard += 1;
                self.victim.release(frame.id);
            }
            Some(Event::Frame(frame)) => {
                assert!(self.lost.is_none(), "heard of a peer that was lost");
                let limit = if frame.is_whole() { towline_core::rail::HEAD as u32 } else { EAGER.1.max(BULK.1) };
                assert!(frame.len <= limit.max(EAGER.1.max(BULK.1)), "{frame:?}");
                if !frame.is_whole() {
                    self.held.push(frame);
                }
            }
            Some(Event::Lost(Peer(HOSTILE), why)) => {
                assert_eq!(self.lost.replace(why), None, "lost twice");
                self.held.clear();
                self.victim.del_peer(self.ways[0]);
            }
            Some(Event::Lost(..)) => self.parted = true,
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }

    /// Something becomes of a frame that the victim holds.
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
                // SAFETY: the sink is ours, and this rail delivers at once.
                unsafe { self.victim.deliver(frame.id, skip.into(), sink, Cookie(0)) };
            }
            _ => self.victim.release(frame.id),
        }
        self.held.retain(|held| held.id != frame.id);
        Ok(())
    }

    /// A loan that the hostile peer made up.
    fn read_exposed(&mut self, data: &mut Unstructured<'_>) -> Result<()> {
        let loan = RemoteBuffer(<[u8; REMOTE_BUFFER_BYTES]>::arbitrary(data)?);
        let mut into = vec![0; usize::from(u8::arbitrary(data)?)];
        let sink = Span::contiguous(into.as_mut_ptr(), into.len());
        // SAFETY: the sink is ours, and nobody uses it when this comes back.
        unsafe { self.victim.read_exposed(self.ways[0], &loan, sink) };
        Ok(())
    }

    fn hear_honest(&mut self) {
        match self.honest.poll(self.now) {
            Some(Event::Frame(frame)) => {
                assert_eq!((frame.from, frame.head()), (Peer(VICTIM), &self.to_honest.heard.to_le_bytes()[..]));
                self.to_honest.heard += 1;
                self.honest.release(frame.id);
            }
            Some(_) => self.parted = true,
            None => {}
        }
    }

    /// What the honest peer said can still be heard, once the hostile one writes no more.
    fn end(mut self) {
        for frame in std::mem::take(&mut self.held) {
            self.victim.release(frame.id);
        }
        for _ in 0..1000 {
            self.poll();
            self.hear_honest();
            for frame in std::mem::take(&mut self.held) {
                self.victim.release(frame.id);
            }
        }
        for Told { said, heard } in [self.to_honest, self.from_honest] {
            assert!(heard <= said, "heard {heard}, said {said}");
            assert!(heard == said || self.parted || self.unheard, "heard {heard}, said {said}");
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
fn say(rail: &mut Rail, to: Endpoint, lane: Lane, len: u32, number: u64) -> std::result::Result<(), SendError> {
    let mut grant = rail.reserve(to, Shape { tag: TAG, lane, header: 0, len })?;
    grant.write(0, &number.to_le_bytes()[..(len as usize).min(8)]);
    let ticket = grant.finish();
    rail.commit(ticket);
    Ok(())
}
