//! The end of connections, of peers, and of the rail.

use towline_core::rail::Lost;

use super::peer::{ConnState, Connection};
use super::state::Rail;
use crate::bookkeeping::pending_events::PendingEvent;
use crate::device::ReliableQueuePair;
use crate::wire::hello::HelloKind;

/// Longest time that closing waits until all frames are acknowledged. Goodbyes included, closing takes at most twice as long.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);

impl Rail {
    /// Ends the connection to a peer and reports the loss of the peer once, after the frames that came from it.
    pub(super) fn lose(&mut self, endpoint: u32, why: Lost) {
        let link = self.config.link;
        let Some(peer) = self.peers.get_mut(endpoint) else { return };
        if peer.state == ConnState::Lost {
            return;
        }
        peer.state = ConnState::Lost;
        let (peer, rank) = (peer.peer, peer.card.rank);
        if why == Lost::Closed {
            log::debug!("verbs link {link}: rank {rank}: {why}");
        } else {
            log::warn!("verbs link {link}: rank {rank} is lost: {why}");
        }
        self.counters.lost += 1;
        if why != Lost::Closed {
            self.send_last_hello(endpoint, HelloKind::Unknown); // the peer may still run
        }
        self.end_connection(endpoint);
        self.leave_lists(endpoint);
        self.receive.pending.push(PendingEvent::Lost { endpoint, peer, why });
    }

    /// Ends the connection to a peer. Frames that were received through it are still handed to the engine.
    pub(super) fn end_connection(&mut self, endpoint: u32) {
        let Some(connection) = self.peers.get_mut(endpoint).and_then(|peer| peer.connection.take()) else { return };
        let Connection { queue_pair, send_queue, .. } = connection;
        if let Err(why) = queue_pair.set_error() {
            log::debug!("verbs: a connection cannot be moved to its error state: {why}");
        }
        let number = queue_pair.number();
        self.closing.add(queue_pair, number, send_queue, self.now);
        // Completions are assigned to peers by the number of their queue pair, so they are processed before that number is
        // unbound.
        self.process_all_completions();
        self.reclaim_user_memory(number);
        self.receive.pending.connection_ended(endpoint);
        self.peers.unbind_queue_pair(number);
    }

    /// Destroys queue pairs whose resources the device has released. All completions are processed before that, since the
    /// device may drop those of a destroyed queue pair.
    #[cold]
    pub(super) fn destroy_closing(&mut self) {
        self.process_async_events();
        self.process_all_completions();
        self.closing.destroy_ready(self.now, &mut self.send.resources, ReliableQueuePair::destroy);
        self.process_all_completions(); // late ones, while no other queue pair has their numbers
    }

    /// Removes an endpoint from all lists, and drops a grant for it.
    pub(super) fn leave_lists(&mut self, endpoint: u32) {
        self.lists.remove(endpoint);
        if self.send.granted.is_some_and(|(ticket, _)| ticket.endpoint.0 == endpoint) {
            self.send.granted = None;
        }
    }

    /// Removes a peer. With `goodbye`, the peer gets a goodbye, so that it knows that the connection was closed normally.
    pub(super) fn forget(&mut self, endpoint: u32, goodbye: bool) {
        if self.peers.get(endpoint).is_none() {
            return;
        }
        if goodbye {
            self.send_last_hello(endpoint, HelloKind::Goodbye);
        }
        self.end_connection(endpoint);
        self.leave_lists(endpoint);
        self.send.resources.operations.drop_results(endpoint);
        self.receive.forget(endpoint, &self.queues);
        self.peers.remove(endpoint);
    }

    /// Ends the connections to all peers, since the rail cannot be used any more.
    pub(super) fn die(&mut self, why: &'static str) {
        log::error!("verbs link {}: {} cannot be used any more: {why}", self.config.link, self.local.port.name);
        self.health.dead = Some(why);
        for endpoint in 0..self.peers.count() {
            self.lose(endpoint, Lost::Broken);
        }
    }

    /// Tells a peer that the connection has ended, if there was one, and how.
    fn send_last_hello(&mut self, endpoint: u32, kind: HelloKind) {
        let numbers = self.peers.connection(endpoint).map(|it| (it.number, it.remote_number));
        if let Some((number, echo)) = numbers {
            self.send_hello(endpoint, kind, number, echo);
        }
    }

    /// Waits until all sent frames are acknowledged, for [`CLOSE_TIMEOUT`] at most, and sends a goodbye to all peers.
    fn close(&mut self) {
        if self.health.dead.is_some() {
            return; // no completion comes
        }
        let began = std::time::Instant::now();
        while self.has_frames_in_flight() && began.elapsed() < CLOSE_TIMEOUT {
            std::thread::yield_now();
        }
        for endpoint in 0..self.peers.count() {
            // There may be more peers than send buffers for hellos.
            while self.hellos.send_buffers.next().is_none() && began.elapsed() < 2 * CLOSE_TIMEOUT {
                self.process_completions();
            }
            self.send_last_hello(endpoint, HelloKind::Goodbye);
        }
        while !self.hellos.send_buffers.is_idle() && began.elapsed() < 2 * CLOSE_TIMEOUT {
            self.process_completions();
        }
    }

    /// Processes completions, and asks for those of unsignaled frames. Returns whether frames are still in flight to any peer.
    fn has_frames_in_flight(&mut self) -> bool {
        self.process_all_completions();
        let mut any = false;
        for endpoint in 0..self.peers.count() {
            if self.lists.failed.contains(&endpoint) {
                continue;
            }
            let Some(connection) = self.peers.get_mut(endpoint).and_then(|peer| peer.established()) else { continue };
            let in_flight = !connection.send_queue.is_empty();
            let awaits = connection.send_queue.awaits_completion();
            any |= in_flight;
            if in_flight && !awaits {
                self.send_marker(endpoint);
            }
        }
        any
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        self.close();
    }
}
