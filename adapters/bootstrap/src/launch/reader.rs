//! The thread that reads the output of ranks.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::lines::Source;
use super::output::Sink;

/// Reads the ranks' pipes in a thread of its own, until all have ended.
pub(super) struct OutputReader {
    orders: mpsc::Sender<Order>,
    /// The token of the next pipe.
    next: AtomicU64,
    set: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    ended: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

enum Order {
    /// Read a pipe under this token.
    Add(u64, Pipe),
    /// No further pipe will be added.
    NoMorePipes,
    /// Read the bytes that are in the pipes now, and end.
    Stop,
}

struct Pipe {
    rank: u32,
    source: Source,
    from: OwnedFd,
}

/// The token of the eventfd that wakes the thread for urgent orders. Pipes have other tokens.
const WAKE_TOKEN: u64 = u64::MAX;

impl OutputReader {
    pub(super) fn start(sink: Arc<dyn Sink>) -> io::Result<Self> {
        let set = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&set, &wake, epoll::EventData::new_u64(WAKE_TOKEN), epoll::EventFlags::IN)?;
        let (orders, received) = mpsc::channel();
        let (tell, ended) = mpsc::channel();
        let reader = ReaderThread {
            orders: received,
            set: Arc::clone(&set),
            wake: Arc::clone(&wake),
            sink,
            pipes: HashMap::new(),
            last: false,
            stop: false,
        };
        let thread = std::thread::Builder::new().name("towline-output".into()).spawn(move || {
            reader.run();
            // Fails only if the launcher has stopped waiting.
            let _ = tell.send(());
        })?;
        Ok(Self { orders, next: AtomicU64::new(0), set, wake, ended, thread: Some(thread) })
    }

    /// Adds a rank's pipe.
    pub(super) fn take(&self, rank: u32, source: Source, from: OwnedFd) -> io::Result<()> {
        // Tokens are never reused, since output of an earlier process of the rank may not have been read yet.
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        epoll::add(&self.set, &from, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        // The thread takes this order as soon as the pipe is readable.
        let _ = self.orders.send(Order::Add(token, Pipe { rank, source, from }));
        Ok(())
    }

    /// Waits until all pipes have ended. No further pipe may be added. `false` if some have not ended within `limit`.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        self.order(Order::NoMorePipes);
        !matches!(self.ended.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Timeout))
    }

    /// Reads the bytes that are in the pipes now, and ends the thread.
    pub(super) fn stop(mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn order(&self, order: Order) {
        // Both calls fail only if the thread has ended or if the eventfd is set already.
        let _ = self.orders.send(order);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// The state of the thread.
struct ReaderThread {
    orders: mpsc::Receiver<Order>,
    set: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
    sink: Arc<dyn Sink>,
    pipes: HashMap<u64, Pipe>,
    last: bool,
    stop: bool,
}

impl ReaderThread {
    fn run(mut self) {
        let mut events = Vec::with_capacity(256);
        let mut bytes = vec![0; 1 << 16];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        while !(self.last && self.pipes.is_empty()) {
            events.clear();
            let timeout = self.stop.then_some(&at_once);
            match epoll::wait(&*self.set, rustix::buffer::spare_capacity(&mut events), timeout) {
                // The order to stop has come, and there is nothing to read.
                Ok(0) if self.stop => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            for event in &events {
                match event.data.u64() {
                    WAKE_TOKEN => self.run_orders(),
                    token => self.read(token, &mut bytes),
                }
            }
        }
        for Pipe { rank, source, .. } in self.pipes.into_values() {
            self.sink.end(rank, source);
        }
    }

    fn run_orders(&mut self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        while let Ok(order) = self.orders.try_recv() {
            self.run_order(order);
        }
    }

    fn run_order(&mut self, order: Order) {
        match order {
            Order::Add(token, pipe) => drop(self.pipes.insert(token, pipe)),
            Order::NoMorePipes => self.last = true,
            Order::Stop => (self.last, self.stop) = (true, true),
        }
    }

    fn read(&mut self, token: u64, bytes: &mut [u8]) {
        // A pipe can become readable before the order that adds it has been handled. That order is on its way.
        while !self.pipes.contains_key(&token)
            && let Ok(order) = self.orders.recv()
        {
            self.run_order(order);
        }
        let Some(pipe) = self.pipes.get(&token) else { return };
        match rustix::io::read(&pipe.from, &mut *bytes) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(count) if count > 0 => self.sink.output(pipe.rank, pipe.source, &bytes[..count]),
            Ok(_) | Err(_) => {
                // Closing alone is not enough: a process that is being started may still hold the descriptor.
                let _ = epoll::delete(&self.set, &pipe.from);
                self.sink.end(pipe.rank, pipe.source);
                self.pipes.remove(&token);
            }
        }
    }
}
