//! The thread that reads the input and writes it to the receivers.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::OFlags;

use super::backlog::{Backlog, Receiver};

/// Maximum number of bytes that the fastest receiver may be ahead of the slowest one.
const HELD_MAX: usize = 64 << 20;
/// Bytes of one read or write.
const PIECE: usize = 16 << 10;
/// Bytes that may be on their way to another host. They fit in the pipe to the remote shell, so the launcher's main
/// thread, which writes them, does not wait.
const ON_WAY_MAX: usize = 2 * PIECE;

/// Bytes for the ranks on another host.
pub(crate) struct Piece {
    pub(crate) host: usize,
    /// Empty at the end of the input.
    pub(crate) bytes: Vec<u8>,
}

/// Where the input comes from.
pub(crate) enum Origin {
    /// A file of this process.
    File(OwnedFd),
    /// Calls of [`Feeder::add`]. The function gets the numbers of bytes that all ranks here have got.
    Orders(Box<dyn Fn(usize) + Send>),
}

/// Distributes the input. The thread ends with this value.
pub(crate) struct Feeder {
    orders: Option<mpsc::Sender<Order>>,
    wake: Arc<OwnedFd>,
}

enum Order {
    Pipe(u32, OwnedFd),
    Ready(usize),
    Leave(Receiver),
    Taken(usize, usize),
    Add(Vec<u8>),
}

impl Feeder {
    /// Starts the thread. The input waits until every receiver has begun to take it. `send` passes a piece to another
    /// host. With `holds`, input is kept for ranks that are restarted, and otherwise it is dropped when all ranks have
    /// closed theirs.
    pub(crate) fn start(
        from: Origin,
        receivers: impl IntoIterator<Item = Receiver>,
        holds: bool,
        send: impl Fn(Piece) + Send + 'static,
    ) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, received) = mpsc::channel();
        let thread = Thread {
            from,
            on_way: BTreeMap::new(),
            backlog: Backlog::new(HELD_MAX, receivers),
            pipes: BTreeMap::new(),
            holds,
            orders: received,
            wake: Arc::clone(&wake),
            send: Box::new(send),
        };
        std::thread::Builder::new().name("towline-input".into()).spawn(move || thread.run())?;
        Ok(Self { orders: Some(orders), wake })
    }

    /// Makes a pipe for a rank on this host. Returns the end that the rank reads.
    pub(crate) fn pipe(&self, rank: u32) -> io::Result<OwnedFd> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&write, OFlags::WRONLY | OFlags::NONBLOCK)?;
        self.order(Order::Pipe(rank, write));
        Ok(read)
    }

    /// Another host is ready to take input.
    pub(crate) fn ready(&self, host: usize) {
        self.order(Order::Ready(host));
    }

    /// Another host has taken bytes that were sent to it.
    pub(crate) fn taken(&self, host: usize, count: usize) {
        self.order(Order::Taken(host, count));
    }

    /// Another host takes nothing any more.
    pub(crate) fn leave(&self, host: usize) {
        self.order(Order::Leave(Receiver::Host(host)));
    }

    /// Adds input. None is the end of it.
    pub(crate) fn add(&self, bytes: Vec<u8>) {
        self.order(Order::Add(bytes));
    }

    fn order(&self, order: Order) {
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.orders = None;
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

struct Thread {
    from: Origin,
    backlog: Backlog,
    pipes: BTreeMap<u32, OwnedFd>,
    /// Bytes on their way to each other host that is ready. `None` after the end has been sent.
    on_way: BTreeMap<usize, Option<usize>>,
    holds: bool,
    orders: mpsc::Receiver<Order>,
    wake: Arc<OwnedFd>,
    send: Box<dyn Fn(Piece) + Send>,
}

impl Thread {
    fn run(mut self) {
        loop {
            loop {
                match self.orders.try_recv() {
                    Ok(order) => self.run_order(order),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.send_to_hosts();
            self.close_finished_pipes();
            let Ok((wake, source, ready)) = self.wait() else { return };
            if wake {
                let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
            }
            if source {
                self.read();
            }
            ready.into_iter().for_each(|rank| self.write(rank));
        }
    }

    fn run_order(&mut self, order: Order) {
        match order {
            Order::Pipe(rank, pipe) => {
                self.backlog.join(Receiver::Rank(rank));
                self.pipes.insert(rank, pipe);
            }
            Order::Ready(host) => drop(self.on_way.insert(host, Some(0))),
            Order::Leave(receiver) => {
                let released = self.backlog.leave(receiver);
                self.tell(released);
            }
            Order::Taken(host, count) => {
                if let Some(Some(on_way)) = self.on_way.get_mut(&host) {
                    *on_way = on_way.saturating_sub(count);
                }
            }
            Order::Add(bytes) if bytes.is_empty() => self.backlog.end(),
            Order::Add(bytes) => {
                self.backlog.add(&bytes);
                self.discard_unneeded();
            }
        }
    }

    /// Waits for an order, for input, and for pipes that can take some. Returns which of them there are.
    fn wait(&self) -> io::Result<(bool, bool, Vec<u32>)> {
        let from = match &self.from {
            Origin::File(file) if self.backlog.has_receivers() && self.backlog.room() != 0 => Some(file.as_fd()),
            _ => None,
        };
        let nothing: BorrowedFd = self.wake.as_fd();
        let mut fds = vec![
            PollFd::new(&*self.wake, PollFlags::IN),
            PollFd::from_borrowed_fd(
                from.unwrap_or(nothing),
                if from.is_some() { PollFlags::IN } else { PollFlags::empty() },
            ),
        ];
        fds.extend(self.pipes.iter().map(|(rank, pipe)| {
            // A pipe whose reader has closed it is reported in any case.
            let waits = !self.backlog.next(Receiver::Rank(*rank), 1).is_empty();
            PollFd::new(pipe, if waits { PollFlags::OUT } else { PollFlags::empty() })
        }));
        loop {
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(why.into()),
                Ok(_) => break,
            }
        }
        let ready = |fd: &PollFd| !fd.revents().is_empty();
        let pipes = self.pipes.keys().zip(&fds[2..]).filter(|(_, fd)| ready(fd)).map(|(rank, _)| *rank);
        Ok((ready(&fds[0]), from.is_some() && ready(&fds[1]), pipes.collect()))
    }

    fn read(&mut self) {
        let Origin::File(file) = &self.from else { return };
        let mut bytes = [0; PIECE];
        let most = self.backlog.room().min(PIECE);
        match rustix::io::read(file, &mut bytes[..most]) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(count) if count > 0 => self.backlog.add(&bytes[..count]),
            Ok(_) | Err(_) => self.backlog.end(),
        }
    }

    fn write(&mut self, rank: u32) {
        let (receiver, Some(pipe)) = (Receiver::Rank(rank), self.pipes.get(&rank)) else { return };
        let next = self.backlog.next(receiver, PIECE);
        // If nothing is to be written, the pipe is here because its reader has closed it.
        let written = if next.is_empty() { Err(rustix::io::Errno::PIPE) } else { rustix::io::write(pipe, next) };
        match written {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(count) => {
                let released = self.backlog.advance(receiver, count);
                self.tell(released);
            }
            Err(_) => {
                self.pipes.remove(&rank);
                let released = self.backlog.leave(receiver);
                self.tell(released);
                self.discard_unneeded();
            }
        }
    }

    fn send_to_hosts(&mut self) {
        for (host, on_way) in &mut self.on_way {
            let receiver = Receiver::Host(*host);
            while let Some(count) = on_way.filter(|count| *count < ON_WAY_MAX) {
                let next = self.backlog.next(receiver, PIECE.min(ON_WAY_MAX - count)).to_vec();
                let ended = next.is_empty() && self.backlog.is_done(receiver);
                if next.is_empty() && !ended {
                    break;
                }
                *on_way = if ended { None } else { Some(count + next.len()) };
                self.backlog.advance(receiver, next.len());
                (self.send)(Piece { host: *host, bytes: next });
            }
        }
    }

    fn close_finished_pipes(&mut self) {
        self.pipes.retain(|rank, _| !self.backlog.is_done(Receiver::Rank(*rank)));
    }

    /// Drops input that no rank takes any more, so that the sender does not wait.
    fn discard_unneeded(&mut self) {
        if !self.backlog.has_receivers() && !self.holds {
            let count = self.backlog.discard();
            self.tell(count);
        }
    }

    fn tell(&self, released: usize) {
        if let (Origin::Orders(tell), true) = (&self.from, released != 0) {
            tell(released);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::File;
    use std::io::{Read, Write};

    fn none(_: Piece) {}

    #[test]
    fn ranks_get_all_bytes_at_their_own_speed() {
        let (source, input) = rustix::pipe::pipe().unwrap();
        let ranks = [Receiver::Rank(0), Receiver::Rank(1), Receiver::Rank(2)];
        let feeder = Feeder::start(Origin::File(source), ranks, false, none).unwrap();
        let mut first = File::from(feeder.pipe(0).unwrap());
        let closed = feeder.pipe(2).unwrap();
        drop(closed);
        let text: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
        let sent = text.clone();
        let writer = std::thread::spawn(move || File::from(input).write_all(&sent).unwrap());
        let mut got = vec![0; 500_000];
        first.read_exact(&mut got).unwrap();
        // This rank starts later, and gets the input from its beginning.
        let mut second = Vec::new();
        let from = feeder.pipe(1).unwrap();
        let reader = std::thread::spawn(move || {
            File::from(from).read_to_end(&mut second).unwrap();
            second
        });
        first.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == text && reader.join().unwrap() == text);
    }

    #[test]
    fn another_host_has_only_some_bytes_on_their_way() {
        let (source, input) = rustix::pipe::pipe().unwrap();
        let (tell, told) = mpsc::channel();
        let send = move |piece: Piece| tell.send(piece.bytes).unwrap();
        let feeder = Feeder::start(Origin::File(source), [Receiver::Host(4)], false, send).unwrap();
        let writer = std::thread::spawn(move || File::from(input).write_all(&[7; 100_000]).unwrap());
        assert!(told.try_recv().is_err(), "the host is not ready");
        feeder.ready(4);
        let mut count = 0;
        loop {
            let bytes = told.recv().unwrap();
            if bytes.is_empty() {
                break;
            }
            count += bytes.len();
            assert!(bytes.len() <= PIECE);
            feeder.taken(4, bytes.len());
        }
        assert_eq!(count, 100_000);
        writer.join().unwrap();
    }

    #[test]
    fn input_that_nobody_takes_is_dropped_and_reported_as_taken() {
        let (tell, told) = mpsc::channel();
        let tell = Box::new(move |count| tell.send(count).unwrap());
        let feeder = Feeder::start(Origin::Orders(tell), [Receiver::Rank(3)], false, none).unwrap();
        let mut rank = File::from(feeder.pipe(3).unwrap());
        feeder.add(b"abc".to_vec());
        let mut got = [0; 3];
        rank.read_exact(&mut got).unwrap();
        assert_eq!((&got, told.recv().unwrap()), (b"abc", 3));
        drop(rank);
        feeder.add(b"defg".to_vec());
        let mut dropped = 0;
        while dropped < 4 {
            dropped += told.recv().unwrap();
        }
        assert_eq!(dropped, 4);
    }
}
