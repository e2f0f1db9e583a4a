//! A server as its launcher sees it.

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
use super::event_loop::{Order, Orders, Serving};
use super::listener::Listener;
use crate::{Address, RANKS_MAX};

/// Callers that the kernel keeps until they are taken.
const BACKLOG: i32 = 4096;

/// A running server; it stops when dropped.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<Address>,
    orders: mpsc::Sender<Order>,
    stop: Arc<AtomicBool>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves in a thread of its own, which also calls `tell`.
    ///
    /// # Errors
    /// What the system says, where an address cannot be bound; for more than [`RANKS_MAX`] ranks.
    pub fn start(config: Config, tell: impl FnMut(Event) + Send + 'static) -> io::Result<Self> {
        if config.size > RANKS_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a job of more ranks than there can be"));
        }
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        if let Some(name) = &config.name {
            let socket = std::os::unix::net::SocketAddr::from_abstract_name(name.as_bytes())?;
            listeners.push(Listener::Unix(UnixListener::bind_addr(&socket)?));
            addresses.push(Address::Abstract(name.clone()));
        }
        if let Some(listen) = config.listen {
            let listener = TcpListener::bind(listen)?;
            // The standard library has the kernel keep 128 callers; those of a large job that comes up, or of a flood, would be
            // dropped and try again a second later.
            rustix::net::listen(&listener, BACKLOG)?;
            addresses.push(Address::Tcp(listener.local_addr()?.to_string()));
            listeners.push(Listener::Tcp(listener));
        }
        for listener in &listeners {
            listener.set_nonblocking()?;
        }
        // Never waits, and whoever rings does not either: a pipe that is full wakes as well.
        let (woken, wake) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (orders, received) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let serving =
            Serving::new(config, listeners, Orders { received, stop: Arc::clone(&stop) }, woken, Box::new(tell));
        let thread = std::thread::Builder::new().name("towline-server".into()).spawn(move || serving.run())?;
        Ok(Self { addresses, orders, stop, wake, thread: Some(thread) })
    }

    /// Where ranks find it, as `TOWLINE_ROOT` wants it.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// A rank's process is known to have ended: whoever waits for it hears of it at once.
    pub fn gone(&self, rank: u32) {
        self.order(Order::Gone(rank));
    }

    /// A rank's process is known to have ended, and another is about to be started in its place: whoever waits for the rank
    /// goes on waiting, and those who ask for the [ends](crate::Job::ask_for_ends) of others hear of this one. What the rank
    /// publishes when it has joined again replaces what it published before, at all ranks.
    pub fn restarts(&self, rank: u32) {
        self.order(Order::Restarts(rank));
    }

    fn order(&self, order: Order) {
        // Fails only where the thread has ended, which nobody waits for.
        let _ = self.orders.send(order);
        self.ring();
    }

    fn ring(&self) {
        // Fails where the pipe is full, too: then the thread has yet to wake.
        let _ = rustix::io::write(&self.wake, &[0]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
