//! Measures the limits of the machine between two processes, without Towline: how long a cache line takes to the other
//! core and back, alone and with a second line for the way back; how fast bytes go from one process's memory through
//! shared memory into the other's; and how fast plain sockets are.
//!
//! Both processes call the same methods in the same order. Times are those of the first process. Every wait spins, with
//! or without `pause`: callers try both and keep the better value.

use std::fs::{File, OpenOptions};
use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::sockopt::set_tcp_congestion;
use rustix::process::{Resource, getrlimit};

/// Bytes of the ring of one direction. Together with the user's buffers it should fit in the second-level cache.
const RING: usize = 256 << 10;
/// Bytes reserved for a ring with pieces of any size.
const DIRECTION: usize = 2 * RING;
const HEAD: usize = 4096;
/// Offset of the buffer behind both rings.
const RINGS: usize = HEAD + 2 * DIRECTION;
/// Offsets of the words that both processes write. Each has cache lines of its own.
const WORD: usize = 0;
const BARRIER: usize = 256;
const DONE: usize = 512;
const REQUEST: usize = 1024;
const REPLY: usize = 1280;
const CHOICE: usize = 1536;
/// Offset of the words with the process and the address that the kernel copies from; one pair for each process.
const SOURCES: usize = 2048;
/// Time for which a bounce is measured.
const BOUNCE_TIME: Duration = Duration::from_millis(2);
/// Time for which an exchange is measured, about as long as a repetition takes.
const EXCHANGE_TIME: Duration = Duration::from_millis(10);
/// The bit that marks the last round.
const LAST: u64 = 1 << 63;
/// Turns of a spin after which the process yields the processor. The process that it waits for may need it.
const SPINS_BEFORE_YIELD: u32 = 50_000;

/// How often bytes are copied, and by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// The sender copies into a ring, and the receiver out of it. Sockets count as such.
    Twice,
    /// The receiver copies from memory of the sender that it has mapped.
    Once,
    /// The kernel copies from the sender's memory for the receiver.
    OnceByKernel,
}

/// A method of moving bytes.
#[derive(Clone, Copy, Debug)]
pub struct CopyMethod {
    /// How often bytes are copied.
    pub copies: Copies,
    /// Maximum number of bytes of a piece in memory, or of a call with sockets. In memory each piece has a mark of its
    /// own, so that the reader can read it while the next one is being written.
    pub piece: usize,
    /// Whether the spin has a `pause`.
    pub paused: bool,
}

impl CopyMethod {
    /// The methods that are worth trying with sockets. They differ in the bytes of one call.
    pub fn for_sockets(bytes: usize) -> impl Iterator<Item = Self> {
        let pieces = [1 << 30, 1 << 18, 1 << 16, 1 << 15].into_iter();
        pieces.take(if bytes < 1 << 15 { 1 } else { 4 }).map(Self::with_piece)
    }

    /// The methods that are worth trying through memory, for messages of `bytes` bytes.
    pub fn for_memory(bytes: usize) -> impl Iterator<Item = Self> {
        let smallest = bytes.clamp(64, 4 << 10);
        let pieces = [smallest, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
        let useful = pieces.into_iter().filter(move |piece| *piece == smallest || *piece < 2 * bytes);
        let twice = useful.flat_map(|piece| [false, true].map(|paused| Self { paused, ..Self::with_piece(piece) }));
        // A single copy begins only when the receiver sees the message, so it is slow for short ones.
        let once = [Copies::Once, Copies::OnceByKernel].into_iter().filter(move |_| bytes >= 1 << 10);
        twice.chain(once.map(|copies| Self { copies, ..Self::with_piece(1 << 30) }))
    }

    /// Two copies, in pieces of this size.
    pub fn with_piece(piece: usize) -> Self {
        Self { copies: Copies::Twice, piece, paused: false }
    }
}

/// One of two processes that share a page, a ring in each direction, and a TCP connection.
pub struct Baseline {
    first: bool,
    memory: *mut u8,
    /// Bytes of the buffer behind the rings.
    room: usize,
    socket: TcpStream,
}

impl Baseline {
    /// Makes memory that the other process can open through this one's descriptor, with a buffer of `room` bytes behind
    /// the rings.
    pub fn memory(room: usize) -> io::Result<File> {
        let bytes = (RINGS + room) as u64;
        // The kernel ends a process with a signal that makes a file longer than its limit.
        if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes) {
            let why =
                format!("the limit of memory needs a file of {bytes} bytes: raise the limit of file sizes (ulimit -f)");
            return Err(io::Error::other(why));
        }
        let file = memfd_create("towline-limit", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, bytes)?;
        Ok(file.into())
    }

    /// Opens the memory that another process has made.
    pub fn memory_of(process: u32, descriptor: i32) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}"))
    }

    /// The first or second process, over the shared memory and connection.
    pub fn new(first: bool, memory: impl AsFd, room: usize, socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        // The transport uses the same setting within a host. If the kernel refuses it, its default stays.
        let _ = set_tcp_congestion(&socket, "reno");
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this makes a new mapping at an address that the kernel chooses.
        let memory = unsafe { mmap(std::ptr::null_mut(), RINGS + room, access, MapFlags::SHARED, memory, 0) }?.cast();
        Ok(Self { first, memory, room, socket })
    }

    /// Nanoseconds for moving a cache line from the other core after a write there: half a round trip, by the better of
    /// the two spins.
    pub fn bounce(&self) -> f64 {
        self.bounce_by(false).min(self.bounce_by(true))
    }

    /// Half a round trip in nanoseconds of one byte over plain sockets, for processes without common memory.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn socket_bounce(&self) -> io::Result<f64> {
        const LAST_BYTE: u8 = 1;
        let method = CopyMethod::with_piece(1);
        let mut byte = [0];
        if !self.first {
            while byte != [LAST_BYTE] {
                self.read(method, &mut byte)?;
                self.write(method, &byte)?;
            }
            return Ok(0.0);
        }
        let mut round = |which: u8| self.write(method, &[which]).and_then(|()| self.read(method, &mut byte));
        (0..8).try_for_each(|_| round(0))?;
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < BOUNCE_TIME || count < 8 {
            round(0)?;
            count += 1;
        }
        let nanos = nanos_since(start) / (2 * count) as f64;
        round(LAST_BYTE)?;
        Ok(nanos)
    }

    fn bounce_by(&self, paused: bool) -> f64 {
        const BATCH: u64 = 512;
        let word = self.word(WORD);
        if !self.first {
            loop {
                let value = spin_until(paused, || Some(word.load(Ordering::Acquire)).filter(|value| value & 1 == 1));
                word.store((value & !LAST) + 1, Ordering::Release);
                if value & LAST != 0 {
                    return 0.0;
                }
            }
        }
        let mut value = word.load(Ordering::Acquire);
        let mut rounds = |count: u64, last: u64| {
            for round in 1..=count {
                word.store((value + 1) | if round == count { last } else { 0 }, Ordering::Release);
                value += 2;
                spin_until(paused, || (word.load(Ordering::Acquire) == value).then_some(()));
            }
        };
        rounds(BATCH, 0);
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < BOUNCE_TIME {
            rounds(BATCH, 0);
            count += BATCH;
        }
        let nanos = nanos_since(start) / (2 * count) as f64;
        rounds(1, LAST);
        nanos
    }

    /// Half a round trip in nanoseconds with one cache line for each direction. The reply is in another line than the
    /// request, as in rings, so each line is written by one core and read by the other.
    ///
    /// [`bounce`](Self::bounce) is the better of two short measurements, so it finds the machine's limit even while
    /// the machine has other work. This value is the mean over the time that a repetition takes: other work makes it longer,
    /// just as it does a message.
    pub fn exchange(&self) -> f64 {
        let [tight, paused] = [false, true].map(|paused| self.exchange_by(paused, BOUNCE_TIME / 2));
        if self.first {
            self.word(CHOICE).store((paused < tight).into(), Ordering::Relaxed);
        }
        self.barrier();
        let paused = self.word(CHOICE).load(Ordering::Relaxed) != 0;
        self.exchange_by(paused, EXCHANGE_TIME)
    }

    fn exchange_by(&self, paused: bool, watch: Duration) -> f64 {
        const BATCH: u64 = 512;
        let (there, back) = (self.word(REQUEST), self.word(REPLY));
        // Each process resets the line that it reads. The other one writes it only after the barrier.
        (if self.first { back } else { there }).store(0, Ordering::Relaxed);
        self.barrier();
        let mut round = 0;
        if !self.first {
            loop {
                round += 1;
                let asked = || Some(there.load(Ordering::Acquire)).filter(|value| value & !LAST == round);
                let value = spin_until(paused, asked);
                back.store(round, Ordering::Release);
                if value & LAST != 0 {
                    return 0.0;
                }
            }
        }
        let mut rounds = |count: u64, last: u64| {
            for left in (0..count).rev() {
                round += 1;
                there.store(round | if left == 0 { last } else { 0 }, Ordering::Release);
                spin_until(paused, || (back.load(Ordering::Acquire) == round).then_some(()));
            }
        };
        rounds(BATCH, 0);
        let (start, mut count) = (Instant::now(), 0);
        while start.elapsed() < watch {
            rounds(BATCH, 0);
            count += BATCH;
        }
        let nanos = nanos_since(start) / (2 * count) as f64;
        rounds(1, LAST);
        nanos
    }

    /// Half a round trip in nanoseconds of messages of `out.len()` bytes, from one process's memory through shared
    /// memory into the other's.
    pub fn copy_latency(&self, method: CopyMethod, count: u64, out: &[u8], into: &mut [u8]) -> f64 {
        if method.copies != Copies::Twice {
            return self.copy_once_latency(method.copies, count, out, into);
        }
        let mut rings = self.rings(method, out.len());
        let warm_up = count / 8 + 1;
        let mut start = Instant::now();
        for round in 0..warm_up + count {
            if round == warm_up {
                start = Instant::now();
            }
            if self.first {
                rings.send(out);
            }
            rings.receive(into);
            // The reply means that the other process has read everything that was sent.
            rings.credit = rings.sent;
            if !self.first {
                rings.send(out);
            }
        }
        nanos_since(start) / (2 * count) as f64
    }

    /// Nanoseconds for a stream of `count` messages of `bytes` bytes. They come from the places in `out` in turn, and go
    /// to the same places of `into`. A buffer for one message is used for all of them.
    pub fn copy_stream(&self, method: CopyMethod, count: u64, bytes: usize, out: &[u8], into: &mut [u8]) -> f64 {
        if method.copies != Copies::Twice {
            return self.copy_once_stream(method.copies, count, bytes, out, into);
        }
        let mut rings = self.rings(method, bytes);
        let places = (out.len() / bytes) as u64;
        let start = Instant::now();
        for round in (0..count).step_by(places as usize) {
            let places = places.min(count - round) as usize;
            if self.first {
                out.chunks_exact(bytes).take(places).for_each(|message| rings.send(message));
            } else {
                into.chunks_exact_mut(bytes).take(places).for_each(|message| rings.receive(message));
            }
        }
        if self.first {
            rings.wait_for(rings.sent);
        } else {
            rings.send_credit();
        }
        nanos_since(start)
    }

    /// As [`copy_latency`](Self::copy_latency), with one copy by the receiver. Infinite if the kernel does not permit it.
    fn copy_once_latency(&self, copies: Copies, count: u64, out: &[u8], into: &mut [u8]) -> f64 {
        let (mine, theirs) = self.begin_copies(copies, out);
        let warm_up = count / 8 + 1;
        let mut start = Instant::now();
        for round in 0..warm_up + count {
            if round == warm_up {
                start = Instant::now();
            }
            if self.first {
                mine.store(round + 1, Ordering::Release);
            }
            let ready = spin_until(false, || Some(theirs.load(Ordering::Acquire)).filter(|ready| *ready > round));
            if ready == LAST || !self.copy_once(copies, 0, into) {
                mine.store(LAST, Ordering::Release);
                return f64::INFINITY;
            }
            if !self.first {
                mine.store(round + 1, Ordering::Release);
            }
        }
        nanos_since(start) / (2 * count) as f64
    }

    /// As [`copy_stream`](Self::copy_stream), with one copy by the receiver. The sender gives the address of each message
    /// when its place is free.
    fn copy_once_stream(&self, copies: Copies, count: u64, bytes: usize, out: &[u8], into: &mut [u8]) -> f64 {
        let (mine, theirs) = self.begin_copies(copies, out);
        let places = (out.len() / bytes) as u64;
        let start = Instant::now();
        for number in 0..count {
            if self.first {
                let free = number.saturating_sub(places - 1);
                spin_until(false, || (theirs.load(Ordering::Acquire) >= free).then_some(()));
                mine.store(number + 1, Ordering::Release);
            } else {
                spin_until(false, || (theirs.load(Ordering::Acquire) > number).then_some(()));
                let at = (number % places) as usize * bytes;
                if !self.copy_once(copies, at, &mut into[at..at + bytes]) {
                    mine.store(LAST, Ordering::Release);
                    return f64::INFINITY;
                }
                mine.store(number + 1, Ordering::Release);
            }
        }
        if self.first
            && spin_until(false, || Some(theirs.load(Ordering::Acquire)).filter(|done| *done >= count)) >= LAST
        {
            return f64::INFINITY;
        }
        nanos_since(start)
    }

    /// Prepares single copies from `out`: into the other process from the buffer behind the rings, or by the kernel from
    /// `out` itself. Returns the counters of this process and of the other one. Waits for the other process.
    fn begin_copies(&self, copies: Copies, out: &[u8]) -> (&AtomicU64, &AtomicU64) {
        if copies == Copies::Once && self.first {
            assert!(out.len() <= self.room, "there is room for all");
            // SAFETY: the range is within the mapping, and the other process reads it only after the barrier.
            unsafe { out.as_ptr().copy_to_nonoverlapping(self.memory.add(RINGS), out.len()) };
        }
        let own = SOURCES + usize::from(!self.first) * 256;
        self.word(own).store(std::process::id().into(), Ordering::Relaxed);
        self.word(own + 64).store(out.as_ptr() as u64, Ordering::Relaxed);
        let (mine, theirs) = (usize::from(self.first), usize::from(!self.first));
        // The other process may still be reading or writing its words for the previous measurement.
        self.barrier();
        self.word(DONE + theirs * 256).store(0, Ordering::Relaxed);
        self.barrier();
        (self.word(DONE + mine * 256), self.word(DONE + theirs * 256))
    }

    /// Copies a message at `at` of the other process's buffer. `false` if the kernel does not permit it.
    fn copy_once(&self, copies: Copies, at: usize, into: &mut [u8]) -> bool {
        if copies == Copies::Once {
            // SAFETY: the range is within the mapping, since its length was checked against the room; nobody writes to it.
            unsafe { self.memory.add(RINGS + at).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
            return true;
        }
        let other = SOURCES + usize::from(self.first) * 256;
        let (process, address) =
            (self.word(other).load(Ordering::Relaxed), self.word(other + 64).load(Ordering::Relaxed));
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: (address as usize + at) as *mut _, iov_len: into.len() };
        // SAFETY: the kernel writes only to `into`, which is alive. It checks the remote range.
        let copied = unsafe { libc::process_vm_readv(process as i32, &raw const local, 1, &raw const remote, 1, 0) };
        copied == into.len() as isize
    }

    /// Half a round trip in nanoseconds over plain sockets. A message has at least one byte.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn socket_latency(&self, method: CopyMethod, count: u64, out: &[u8], into: &mut [u8]) -> io::Result<f64> {
        let out = if out.is_empty() { &[0][..] } else { out };
        let mut one = [0];
        let into = if into.is_empty() { &mut one[..] } else { into };
        let warm_up = count / 8 + 1;
        let mut start = Instant::now();
        for round in 0..warm_up + count {
            if round == warm_up {
                start = Instant::now();
            }
            if self.first {
                self.write(method, out)?;
            }
            self.read(method, into)?;
            if !self.first {
                self.write(method, out)?;
            }
        }
        Ok(nanos_since(start) / (2 * count) as f64)
    }

    /// Nanoseconds for a stream of messages over plain sockets: `count` times as many messages as `into` has places. They
    /// come from the places in `out` in turn. There is one system call for each message that is sent; a receiving call
    /// takes as many bytes as there are.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn socket_stream(
        &self,
        method: CopyMethod,
        count: u64,
        bytes: usize,
        out: &[u8],
        into: &mut [u8],
    ) -> io::Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            if self.first {
                let messages = out.chunks_exact(bytes).cycle().take(into.len() / bytes);
                messages.into_iter().try_for_each(|message| self.write(method, message))?;
            } else {
                self.read(method, into)?;
            }
        }
        if self.first {
            self.read(method, &mut [0])?;
        } else {
            self.write(method, &[0])?;
        }
        Ok(nanos_since(start))
    }

    /// Nanoseconds for copying all pieces of `bytes` bytes to the shared memory (`puts`) or from it, `count` times.
    /// Each copy is complete before the next one begins. Only the first process copies.
    pub fn copy_to_or_from(&self, puts: bool, count: u64, bytes: usize, local: &mut [u8]) -> f64 {
        assert!(local.len() <= self.room, "there is room for all");
        let start = Instant::now();
        for _ in 0..if self.first { count } else { 0 } {
            for (piece, at) in local.chunks_exact_mut(bytes).zip((RINGS..).step_by(bytes)) {
                // SAFETY: the range is within the mapping, which does not overlap the local memory.
                unsafe {
                    let there = self.memory.add(at);
                    if puts {
                        there.copy_from_nonoverlapping(piece.as_ptr(), bytes);
                    } else {
                        there.copy_to_nonoverlapping(piece.as_mut_ptr(), bytes);
                    }
                }
                fence(Ordering::SeqCst);
            }
        }
        nanos_since(start)
    }

    /// Nanoseconds for adding to a shared word, `count` times. Only the first process does it.
    pub fn add(&self, count: u64) -> f64 {
        let start = Instant::now();
        for _ in 0..if self.first { count } else { 0 } {
            self.word(WORD).fetch_add(2, Ordering::AcqRel); // an even number, as the bounce needs
        }
        nanos_since(start)
    }

    /// Nanoseconds for `count` requests of `there.len()` bytes and replies of `back.len()` bytes over plain sockets.
    ///
    /// # Errors
    /// If the connection breaks.
    pub fn socket_round_trips(&self, count: u64, there: &mut [u8], back: &mut [u8]) -> io::Result<f64> {
        let method = CopyMethod::with_piece(1 << 30);
        let start = Instant::now();
        for _ in 0..count {
            if self.first {
                self.write(method, there)?;
                self.read(method, back)?;
            } else {
                self.read(method, there)?;
                self.write(method, back)?;
            }
        }
        Ok(nanos_since(start))
    }

    fn write(&self, method: CopyMethod, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = &bytes[..bytes.len().min(method.piece)];
            let written = socket_call(|| (&self.socket).write(piece))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    fn read(&self, method: CopyMethod, into: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < into.len() {
            let end = into.len().min(at.saturating_add(method.piece));
            at += socket_call(|| (&self.socket).read(&mut into[at..end]))?;
        }
        Ok(())
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the word is within the mapping, aligned, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.memory.add(at).cast()) }
    }

    /// Empty rings for messages of `bytes` bytes. Waits for the other process.
    fn rings(&self, method: CopyMethod, bytes: usize) -> Rings<'_> {
        // The other process may still be reading or writing its words for the previous measurement.
        self.barrier();
        let piece = bytes.min(method.piece);
        // A short piece begins in the cache line of its mark. A long piece is faster if it begins at a line.
        let skip = if piece <= 4 << 10 { 8 } else { 64 };
        let stride = (skip + piece).next_multiple_of(64);
        let slots = (RING / stride).max(4) as u64;
        let me = usize::from(!self.first);
        let (out, into) = (HEAD + me * DIRECTION, HEAD + (1 - me) * DIRECTION);
        for slot in 0..slots as usize {
            self.word(into + slot * stride).store(0, Ordering::Relaxed);
        }
        self.word(DONE + me * 256).store(0, Ordering::Relaxed);
        self.barrier();
        Rings {
            baseline: self,
            piece,
            paused: method.paused,
            skip,
            stride,
            slots,
            out,
            into,
            sent: 0,
            credit: 0,
            got: 0,
            credited: 0,
        }
    }

    /// Waits until the other process has called this as well.
    fn barrier(&self) {
        let word = self.word(BARRIER);
        let arrived = word.fetch_add(1, Ordering::AcqRel) / 2;
        spin_until(true, || (word.load(Ordering::Acquire) / 2 > arrived).then_some(()));
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped in `new`, and nothing refers to it any more.
        let _ = unsafe { munmap(self.memory.cast(), RINGS + self.room) };
    }
}

/// A ring in each direction. A slot holds a mark, which is the number of the piece from 1, and the piece. The writer
/// learns the reader's position once per quarter of the ring.
struct Rings<'b> {
    baseline: &'b Baseline,
    piece: usize,
    paused: bool,
    skip: usize,
    stride: usize,
    slots: u64,
    out: usize,
    into: usize,
    sent: u64,
    /// Number of pieces that the other process is known to have read.
    credit: u64,
    got: u64,
    credited: u64,
}

impl Rings<'_> {
    #[inline]
    fn send(&mut self, message: &[u8]) {
        let mut rest = message;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(self.piece));
            if self.sent - self.credit == self.slots {
                self.wait_for(self.sent - self.slots + 1);
            }
            let slot = self.out + (self.sent % self.slots) as usize * self.stride;
            self.sent += 1;
            // SAFETY: the slot with its piece is within the mapping, and its reader has finished with it.
            unsafe { piece.as_ptr().copy_to_nonoverlapping(self.baseline.memory.add(slot + self.skip), piece.len()) };
            self.baseline.word(slot).store(self.sent, Ordering::Release);
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) {
        let mut at = 0;
        loop {
            let len = (message.len() - at).min(self.piece);
            let slot = self.into + (self.got % self.slots) as usize * self.stride;
            self.got += 1;
            let mark = self.baseline.word(slot);
            spin_until(self.paused, || (mark.load(Ordering::Acquire) == self.got).then_some(()));
            // SAFETY: the slot with its piece is within the mapping, and its writer waits until it has been read.
            unsafe {
                self.baseline.memory.add(slot + self.skip).copy_to_nonoverlapping(message.as_mut_ptr().add(at), len)
            };
            if self.got - self.credited >= self.slots / 4 {
                self.send_credit();
            }
            at += len;
            if at == message.len() {
                return;
            }
        }
    }

    /// Tells the writer how many pieces have been read.
    fn send_credit(&mut self) {
        self.credited = self.got;
        self.baseline.word(DONE + usize::from(self.baseline.first) * 256).store(self.got, Ordering::Release);
    }

    fn wait_for(&mut self, taken: u64) {
        let done = self.baseline.word(DONE + usize::from(!self.baseline.first) * 256);
        self.credit = spin_until(self.paused, || Some(done.load(Ordering::Acquire)).filter(|done| *done >= taken));
    }
}

#[inline]
fn spin_until<T>(paused: bool, mut look: impl FnMut() -> Option<T>) -> T {
    let mut turns = 0;
    loop {
        if let Some(found) = look() {
            return found;
        }
        if paused {
            spin_loop();
        }
        turns += 1;
        if turns == SPINS_BEFORE_YIELD {
            turns = 0;
            std::thread::yield_now();
        }
    }
}

/// Repeats a call until it moves bytes.
fn socket_call(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    let moved = spin_until(false, || match call() {
        Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
        moved => Some(moved),
    })?;
    if moved == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(moved) }
}

fn nanos_since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const ROOM: usize = 2 << 20;

    /// Runs both sides, each in a thread.
    fn both<T: Send>(run: impl Fn(Baseline) -> T + Sync) -> (T, T) {
        let memory = Baseline::memory(ROOM).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            let second =
                scope.spawn(|| run(Baseline::new(false, &memory, ROOM, TcpStream::connect(address).unwrap()).unwrap()));
            let first = run(Baseline::new(true, &memory, ROOM, listener.accept().unwrap().0).unwrap());
            (first, second.join().unwrap())
        })
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_arrive_through_memory_and_sockets_by_all_methods() {
        for bytes in [0, 1, 8, 57, 4096, 5000, 100_000] {
            let (_, got) = both(|baseline| {
                let (out, mut into) = (pattern(bytes), vec![0; bytes]);
                for method in CopyMethod::for_memory(bytes) {
                    into.fill(0);
                    baseline.copy_latency(method, 2, &out, &mut into);
                    assert_eq!(into, out, "{method:?}");
                }
                into.fill(0);
                let method = CopyMethod::for_sockets(bytes).last().unwrap();
                baseline.socket_latency(method, 2, &out, &mut into).unwrap();
                into
            });
            assert_eq!(got, pattern(bytes));
        }
    }

    #[test]
    fn streams_longer_than_the_ring_arrive() {
        for bytes in [8, 3000, 300_000] {
            let (_, got) = both(|baseline| {
                let (out, mut into) = (pattern(4 * bytes), vec![0; 4 * bytes]);
                for method in CopyMethod::for_memory(bytes) {
                    into.fill(0);
                    // Not a multiple of the four places.
                    baseline.copy_stream(method, 2001 / bytes as u64 + 5, bytes, &out, &mut into);
                    assert!(baseline.first || into == out, "{method:?}");
                    let mut one = vec![0; bytes];
                    baseline.copy_stream(method, 7, bytes, &out[..bytes], &mut one);
                    assert!(baseline.first || one == out[..bytes], "{method:?}");
                }
                let through_memory = into.clone();
                into.fill(0);
                CopyMethod::for_sockets(bytes).for_each(|method| {
                    baseline.socket_stream(method, 3, bytes, &out, &mut into).unwrap();
                });
                [through_memory, into]
            });
            assert_eq!(got, [pattern(4 * bytes), pattern(4 * bytes)]);
        }
    }

    #[test]
    fn a_bounce_can_be_measured_repeatedly() {
        let (first, _) =
            both(|baseline| [baseline.bounce(), baseline.exchange(), baseline.bounce(), baseline.exchange()]);
        assert!(first.iter().all(|nanos| nanos.is_finite() && *nanos > 0.0), "{first:?}");
    }

    #[test]
    fn copied_bytes_can_be_read_back() {
        let (first, _) = both(|baseline| {
            let (mut out, mut into) = (pattern(8192), vec![0; 8192]);
            baseline.copy_to_or_from(true, 2, 100, &mut out[..8100]);
            baseline.copy_to_or_from(false, 1, 4050, &mut into[..8100]);
            baseline.add(3);
            let (mut there, mut back) = ([1; 300], [2; 20]);
            baseline.socket_round_trips(3, &mut there, &mut back).unwrap();
            (out[..8100] == into[..8100], baseline.word(WORD).load(Ordering::Relaxed), baseline.bounce())
        });
        assert!(first.0 && first.1 == 6 && first.2 > 0.0, "{first:?}");
    }

    #[test]
    fn a_closed_connection_is_an_error() {
        let (first, _) = both(|baseline| {
            if baseline.first {
                baseline.read(CopyMethod::with_piece(1), &mut [0]).map_err(|why| why.kind())
            } else {
                Ok(())
            }
        });
        assert_eq!(first, Err(ErrorKind::UnexpectedEof));
    }
}
