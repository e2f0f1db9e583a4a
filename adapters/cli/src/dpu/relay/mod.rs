//! A relay between DPUs. It forwards each frame to the DPU that it is for, and loses, doubles and reorders frames by seed.
//!
//! One thread does all of it, so frames that are neither held nor lost keep their order. What a seed repeats is the kind of faults and
//! not each single one, since the order in which frames of different DPUs arrive is another one each time.
//!
//! | module | subject |
//! |---|---|
//! | [`faults`] | which frames are lost, doubled and held back |
//! | [`network`] | the sockets: UDP for processes, Ethernet for machines in QEMU |
//! | [`packets`] | UDP, IPv4 and ARP in Ethernet frames |

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

mod faults;
mod network;
mod packets;

pub use faults::{Counts, Cut, Faults, LINKS, Rates};
pub use network::{Network, Protocol, hex};

/// A relay that runs, until this is dropped.
#[derive(Debug)]
pub struct Relay {
    /// Readable when the relay has to end.
    stop: OwnedFd,
    thread: Option<JoinHandle<Counts>>,
}

impl Relay {
    /// Starts it. If `cut` is given, a link fails.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(network: Network, rates: Rates, seed: u64, cut: Option<Cut>) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let of_thread = stop.try_clone()?;
        let thread = std::thread::Builder::new().name("relay".into());
        let thread = thread.spawn(move || forward(&network, Faults::new(rates, seed, cut), &of_thread))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it. Returns what it has done.
    pub fn end(mut self) -> Counts {
        self.stop()
    }

    fn stop(&mut self) -> Counts {
        let Some(thread) = self.thread.take() else { return Counts::default() };
        // The counter of an event takes any number of these.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        thread.join().unwrap_or_default()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Forwards frames until `stop` is readable.
fn forward(network: &Network, mut faults: Faults, stop: &OwnedFd) -> Counts {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let sockets = network.sockets();
        let mut ready: Vec<_> =
            sockets.iter().map(|(_, socket)| PollFd::from_borrowed_fd(*socket, PollFlags::IN)).collect();
        ready.push(PollFd::new(stop, PollFlags::IN));
        let wait = faults.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        let wait = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() });
        if poll(&mut ready, wait.as_ref()).is_err_and(|why| why != rustix::io::Errno::INTR) {
            return faults.counts();
        }
        let is_ready: Vec<_> = ready.iter().map(|socket| !socket.revents().is_empty()).collect();
        let Some((false, are_ready)) = is_ready.split_last() else { return faults.counts() };
        for ((socket, _), _) in sockets.iter().zip(are_ready).filter(|(_, is_ready)| **is_ready) {
            for frame in network.receive(*socket, &mut bytes) {
                faults.pass(Instant::now(), frame).iter().for_each(|frame| network.send(frame));
            }
        }
        faults.due(Instant::now()).iter().for_each(|frame| network.send(frame));
    }
}
