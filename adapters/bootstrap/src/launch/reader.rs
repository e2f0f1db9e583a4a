//! The thread that reads what ranks print.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::output::{Sink, Source};

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
