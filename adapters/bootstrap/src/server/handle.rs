//! The handle of a running server.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::pipe::PipeFlags;

use super::config::{Config, Event};
use super::event_loop::{EventLoop, Order, Orders};
use super::listener::Listener;
use crate::{Address, RANKS_MAX};

/// Connections that the kernel queues until the server accepts them.
const BACKLOG: i32 = 4096;

/// A running server. Dropping it stops the server. All methods may be called from any thread.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    orders: mpsc::Sender<Order>,
    stop: Arc<AtomicBool>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server in a thread of its own. That thread also calls `on_event`.
    ///
    /// # Errors
    /// The system's error if an address cannot be bound, and `InvalidInput` for more than [`RANKS_MAX`] ranks.
    pub fn start(config: Config, on_event: impl FnMut(Event) + Send + 'static) -> io::Result<Self> {
        if config.size > RANKS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the job has more ranks than a job can have"));
        }
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        if let Some(name) = &config.name {
            let socket = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())?;
            listeners.push(Listener::Unix(UnixListener::bind_addr(&socket)?));
            addresses.push(Address::Abstract(name.clone()));
        }
        if let Some(listen) = config.listen {
            let listener = TcpListener::bind(listen)?;
            // The standard library sets a backlog of 128 connections. The kernel would drop further connections of a
            // large job that starts up, or of a flood, and those ranks would try again a second later.
            rustix::net::listen(&listener, BACKLOG)?;
            addresses.push(Address::Tcp(listener.local_addr()?.to_string()));
            listeners.push(Listener::Tcp(listener));
        }
        for listener in &listeners {
            listener.set_nonblocking()?;
        }
        // Neither side of the pipe waits: a full pipe wakes the thread as well.
        let (wake_receiver, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (orders, received) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let event_loop = EventLoop::new(
            config,
            listeners,
            Orders { received, stop: Arc::clone(&stop) },
            wake_receiver,
            Box::new(on_event),
        );
        let thread = std::thread::Builder::new().name("towline-server".into()).spawn(move || event_loop.run())?;
        Ok(Self { addresses, orders, stop, wake, thread: Some(thread) })
    }

    /// The server's addresses, in the form for `TOWLINE_ROOT`.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Reports that the process of `rank` has ended. Ranks that wait for it learn of this at once.
    pub fn rank_ended(&self, rank: u32) {
        self.order(Order::Ended(rank));
    }

    /// Reports that the process of `rank` has ended and that a new one is about to be started. Ranks that wait for it
    /// go on waiting, and ranks that ask for [ends](crate::Job::ask_for_ends) learn of this one. When the new process
    /// has joined, its publications replace the earlier ones at all ranks.
    pub fn rank_restarts(&self, rank: u32) {
        self.order(Order::Restarts(rank));
    }

    /// Asks all ranks that are connected and have not finished for their reports, which arrive as
    /// [`Event::Reported`]. `question` is the number of the question, which must rise from one to the next.
    pub fn ask_for_reports(&self, question: u32) {
        self.order(Order::AskForReports(question));
    }

    fn order(&self, order: Order) {
        // Fails only if the thread has ended, and then the order is not needed.
        let _ = self.orders.send(order);
        self.wake_thread();
    }

    fn wake_thread(&self) {
        // Also fails if the pipe is full. Then the thread has yet to wake up.
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wake_thread();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
