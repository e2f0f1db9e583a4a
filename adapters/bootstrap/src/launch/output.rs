//! What ranks print: whole lines, each with its rank before it, and no byte lost.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use serde::{Deserialize, Serialize};

/// A longer piece without a line's end is passed on as if it ended there, so that memory stays bounded.
const LINE_MAX: usize = 1 << 20;

/// Where a rank printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

/// Takes what ranks print. May block: the ranks then wait, too.
pub(super) trait Sink: Send + Sync {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]);
    /// The rank will print nothing more there.
    fn end(&self, rank: u32, source: Source);
}

/// Prints what ranks print, on the launcher's own standard output and error.
pub(super) struct Printer<O, E> {
    lines: Mutex<Lines>,
    out: Mutex<O>,
    err: Mutex<E>,
    broken: Box<dyn Fn() + Send + Sync>,
}

impl<O: Write + Send, E: Write + Send> Printer<O, E> {
    /// Calls `broken` whenever nobody reads the output any more.
    pub(super) fn new(prefix: bool, out: O, err: E, broken: impl Fn() + Send + Sync + 'static) -> Self {
        let lines = Mutex::new(Lines { prefix, partial: HashMap::new() });
        Self { lines, out: Mutex::new(out), err: Mutex::new(err), broken: Box::new(broken) }
    }

    fn print(&self, source: Source, text: &[u8]) {
        let written = match source {
            Source::Stdout => write(&self.out, text),
            Source::Stderr => write(&self.err, text),
        };
        if written.is_err() {
            (self.broken)();
        }
    }
}

fn write(to: &Mutex<impl Write>, text: &[u8]) -> io::Result<()> {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    to.write_all(text)?;
    to.flush()
}

impl<O: Write + Send, E: Write + Send> Sink for Printer<O, E> {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]) {
        // Held while printing, so that the pieces of one rank stay in order.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = lines.take(rank, source, bytes);
        if !text.is_empty() {
            self.print(source, &text);
        }
    }

    fn end(&self, rank: u32, source: Source) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = lines.end(rank, source);
        if !text.is_empty() {
            self.print(source, &text);
        }
    }
}

/// Gathers lines from pieces.
struct Lines {
    prefix: bool,
    partial: HashMap<(u32, Source), Vec<u8>>,
}

impl Lines {
    /// The lines that are whole now, as they are to be printed.
    fn take(&mut self, rank: u32, source: Source, bytes: &[u8]) -> Vec<u8> {
        let partial = self.partial.entry((rank, source)).or_default();
        partial.extend_from_slice(bytes);
        let whole = match partial.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if partial.len() >= LINE_MAX => partial.len(),
            None => return Vec::new(),
        };
        let rest = partial.split_off(whole);
        let whole = std::mem::replace(partial, rest);
        self.dress(rank, whole)
    }

    fn end(&mut self, rank: u32, source: Source) -> Vec<u8> {
        let rest = self.partial.remove(&(rank, source)).unwrap_or_default();
        self.dress(rank, rest)
    }

    fn dress(&self, rank: u32, text: Vec<u8>) -> Vec<u8> {
        if !self.prefix {
            return text;
        }
        let mut dressed = Vec::with_capacity(text.len() + 64);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            dressed.extend_from_slice(format!("[{rank}] ").as_bytes());
            dressed.extend_from_slice(line);
        }
        if dressed.last().is_some_and(|last| *last != b'\n') {
            dressed.push(b'\n');
        }
        dressed
    }
}

/// Reads the ranks' pipes in a thread of its own, until there are no more.
pub(super) struct Pump {
    orders: mpsc::Sender<Order>,
    /// The next pipe's token.
    next: AtomicU64,
    set: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    ended: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    /// To be read under this token.
    Take(u64, Pipe),
    /// There are no more pipes than those that were given.
    Last,
    /// Take what is in the pipes now, and end.
    Stop,
}

struct Pipe {
    rank: u32,
    source: Source,
    from: OwnedFd,
}

/// The token of the bell that is rung for orders that must not wait; pipes have others.
const BELL: u64 = u64::MAX;

impl Pump {
    pub(super) fn start(sink: Arc<dyn Sink>) -> io::Result<Self> {
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&set, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        let (orders, received) = mpsc::channel();
        let (tell, ended) = mpsc::channel();
        let pumping = Pumping {
            orders: received,
            set: Arc::clone(&set),
            bell: Arc::clone(&bell),
            sink,
            pipes: HashMap::new(),
            last: false,
            stop: false,
        };
        let thread = std::thread::Builder::new().name("towline-output".into()).spawn(move || {
            pumping.run();
            // Nobody listens where the launcher has given up waiting.
            let _ = tell.send(());
        })?;
        Ok(Self { orders, next: AtomicU64::new(0), set, bell, ended, thread: Some(thread) })
    }

    /// Reads a rank's pipe from now on.
    pub(super) fn take(&self, rank: u32, source: Source, from: OwnedFd) -> io::Result<()> {
        // Never the same twice: what an earlier process of the rank printed may not be read yet.
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        epoll::add(&self.set, &from, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        // The thread asks for it as soon as the pipe stirs.
        let _ = self.orders.send(Order::Take(token, Pipe { rank, source, from }));
        Ok(())
    }

    /// Waits until all pipes have ended, of which there will be no more; false where some have not within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        self.order(Order::Last);
        !matches!(self.ended.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Timeout))
    }

    /// Takes what is in the pipes now, and ends.
    pub(super) fn stop(mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn order(&self, order: Order) {
        // Both fail only where the thread has ended, which takes no orders any more, or where the bell rings already.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }
}

/// The launcher's own words on its standard error. A thread of its own writes them: whoever decides must not wait for a
/// reader.
pub(super) struct Voice {
    words: mpsc::Sender<String>,
    thread: JoinHandle<()>,
}

impl Voice {
    pub(super) fn start(mut to: impl Write + Send + 'static) -> io::Result<Self> {
        let (words, said) = mpsc::channel::<String>();
        let thread = std::thread::Builder::new().name("towline-voice".into()).spawn(move || {
            for what in said {
                // Standard error may be gone, which changes nothing.
                let _ = to.write_all(format!("towline: {what}\n").as_bytes());
            }
        })?;
        Ok(Self { words, thread })
    }

    pub(super) fn say(&self, what: impl Into<String>) {
        let _ = self.words.send(what.into());
    }

    /// Waits until all is said.
    pub(super) fn finish(self) {
        drop(self.words);
        let _ = self.thread.join();
    }
}

/// A stream whose reader is waited for, until there is a hurry: then one that takes nothing for a second gets no more.
pub(super) struct Patient<T> {
    to: T,
    hurry: Arc<AtomicBool>,
    given_up: bool,
}

impl<T: AsFd> Patient<T> {
    pub(super) fn new(to: T, hurry: Arc<AtomicBool>) -> Self {
        Self { to, hurry, given_up: false }
    }
}

impl<T: AsFd> Write for Patient<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        /// A pipe that takes anything takes so much without waiting.
        const PIECE: usize = 4096;
        let mut looks = 0;
        while !self.given_up {
            match poll(&mut [PollFd::new(&self.to, PollFlags::OUT)], Some(&LOOK)) {
                Ok(0) => {
                    looks += u32::from(self.hurry.load(Ordering::Relaxed));
                    self.given_up = looks == 10;
                    continue;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(why) => return Err(why.into()),
            }
            match rustix::io::write(&self.to, &bytes[..bytes.len().min(PIECE)]) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                written => return Ok(written?),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The pump's thread.
struct Pumping {
    orders: mpsc::Receiver<Order>,
    set: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    sink: Arc<dyn Sink>,
    pipes: HashMap<u64, Pipe>,
    last: bool,
    stop: bool,
}

impl Pumping {
    fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        let mut bytes = vec![0; 1 << 16];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        while !(self.last && self.pipes.is_empty()) {
            events.clear();
            let timeout = self.stop.then_some(&at_once);
            match epoll::wait(&*self.set, rustix::buffer::spare_capacity(&mut events), timeout) {
                // Told to stop, and nothing was there to be read.
                Ok(0) if self.stop => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            for event in &events {
                match event.data.u64() {
                    BELL => self.obey(),
                    token => self.read(token, &mut bytes),
                }
            }
        }
        for Pipe { rank, source, .. } in self.pipes.into_values() {
            self.sink.end(rank, source);
        }
    }

    fn obey(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        while let Ok(order) = self.orders.try_recv() {
            self.follow(order);
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Take(token, pipe) => drop(self.pipes.insert(token, pipe)),
            Order::Last => self.last = true,
            Order::Stop => (self.last, self.stop) = (true, true),
        }
    }

    fn read(&mut self, token: u64, bytes: &mut [u8]) {
        // One that stirs before its order came is on its way.
        while !self.pipes.contains_key(&token)
            && let Ok(order) = self.orders.recv()
        {
            self.follow(order);
        }
        let Some(pipe) = self.pipes.get(&token) else { return };
        match rustix::io::read(&pipe.from, &mut *bytes) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(count) if count > 0 => self.sink.output(pipe.rank, pipe.source, &bytes[..count]),
            Ok(_) | Err(_) => {
                // Closing alone would not do where a process that is being started still has it.
                let _ = epoll::delete(&self.set, &pipe.from);
                self.sink.end(pipe.rank, pipe.source);
                self.pipes.remove(&token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(prefix: bool) -> Lines {
        Lines { prefix, partial: HashMap::new() }
    }

    #[test]
    fn each_line_has_its_rank_and_partial_ones_wait_for_their_end() {
        let mut lines = lines(true);
        assert_eq!(lines.take(3, Source::Stdout, b"one\ntw"), b"[3] one\n");
        assert_eq!(lines.take(4, Source::Stdout, b"other\n"), b"[4] other\n");
        assert_eq!(lines.take(3, Source::Stderr, b"err"), b"");
        assert_eq!(lines.take(3, Source::Stdout, b"o\n\n\xff\xfe\n"), b"[3] two\n[3] \n[3] \xff\xfe\n");
        assert_eq!(lines.end(3, Source::Stderr), b"[3] err\n");
        assert_eq!(lines.end(3, Source::Stdout), b"");
        assert_eq!(lines.end(9, Source::Stdout), b"");
    }

    #[test]
    fn without_prefix_not_a_byte_is_added() {
        let mut lines = lines(false);
        assert_eq!(lines.take(0, Source::Stdout, b"a\r\nb"), b"a\r\n");
        assert_eq!(lines.end(0, Source::Stdout), b"b");
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_pieces() {
        let mut lines = lines(true);
        let half = vec![b'x'; LINE_MAX / 2];
        assert_eq!(lines.take(0, Source::Stdout, &half), b"");
        assert_eq!(lines.take(0, Source::Stdout, &half).len(), LINE_MAX + 5);
        assert_eq!(lines.end(0, Source::Stdout), b"");
    }

    #[test]
    fn a_reader_that_went_away_is_reported() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (tell, told) = mpsc::channel();
        let printer = Printer::new(true, Broken, Vec::new(), move || tell.send(()).unwrap());
        printer.output(0, Source::Stderr, b"fine\n");
        assert!(told.try_recv().is_err());
        printer.output(0, Source::Stdout, b"lost\n");
        assert!(told.try_recv().is_ok());
        assert_eq!(*printer.err.lock().unwrap(), b"[0] fine\n");
    }
}
