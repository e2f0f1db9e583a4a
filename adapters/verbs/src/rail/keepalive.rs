//! Markers: they make the device report the completion of unsignaled frames, and serve as keepalives.

use towline_core::time::{Duration, Instant};

use super::state::Rail;
use super::work_id::WorkId;
use crate::bookkeeping::resource::Resource;

/// Time after the last unsignaled frame until a marker is sent, if no frame follows. It may be long: only a process that
/// closes waits for that completion, and a marker costs as much as a frame.
const TAIL_DELAY: Duration = Duration::from_millis(10);

/// Time between two looks at the device's asynchronous events, where no keepalives are sent.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

impl Rail {
    /// Makes the device report the completion of the last frames to peers to which no frame has followed, or to all peers where
    /// buffers are few.
    #[cold]
    pub(super) fn check_tails(&mut self) {
        let few = self.send.resources.are_few();
        let mut tails = std::mem::take(&mut self.lists.tails); // it is put back below, so that its memory is kept
        tails.retain(|endpoint| {
            let Some(connection) = self.peers.connection_mut(*endpoint) else { return false };
            let seen = std::mem::replace(&mut connection.tail.seen, connection.send_queue.next());
            let unsignaled = connection.send_queue.unsignaled();
            if unsignaled > 0 && connection.tail.seen != seen && !few {
                return true; // a signaled frame may follow, which costs less than a marker
            }
            // Where the marker cannot be sent now, the endpoint is looked at again.
            let awaits = connection.send_queue.awaits_completion();
            let done = unsignaled == 0 || (!awaits && self.send_marker(*endpoint));
            if done && let Some(connection) = self.peers.connection_mut(*endpoint) {
                connection.tail.is_listed = false;
            }
            !done
        });
        self.lists.tails = tails;
        self.timers.tails = (!self.lists.tails.is_empty()).then(|| self.now + TAIL_DELAY);
    }

    /// Notes that an unsignaled frame was sent.
    #[inline]
    pub(super) fn add_tail(&mut self, endpoint: u32) {
        let Some(connection) = self.peers.connection_mut(endpoint) else { return };
        if !connection.tail.is_listed {
            (connection.tail.is_listed, connection.tail.seen) = (true, connection.send_queue.next());
            self.lists.tails.push(endpoint);
            self.timers.tails.get_or_insert(self.now + TAIL_DELAY);
        }
    }

    /// Sends a marker, which the peer's device acknowledges. Its completion is also that of all frames before it. Returns
    /// `false` if no marker is free now.
    pub(super) fn send_marker(&mut self, endpoint: u32) -> bool {
        if !self.send.resources.take_marker() {
            return false;
        }
        let Self { peers, send, counters, lists, .. } = self;
        let Some(connection) = peers.get_mut(endpoint).and_then(|peer| peer.established()) else {
            send.resources.give_back(Resource::Marker);
            return true;
        };
        let id = WorkId::Send { endpoint, number: connection.send_queue.next() };
        match connection.queue_pair.post_marker(id.word()) {
            Ok(()) => {
                connection.send_queue.push(Resource::Marker, true);
                counters.markers += 1;
            }
            Err(why) => {
                log::debug!("verbs: the device refuses a marker: {why}");
                send.resources.give_back(Resource::Marker);
                lists.add_failed(endpoint);
            }
        }
        true
    }

    /// Sends keepalives to silent peers, and processes asynchronous events.
    #[cold]
    pub(super) fn send_keepalives(&mut self) {
        let mut order = self.keepalive_order;
        let count = self.peers.count();
        let all = order.visit(count, |endpoint| !self.needs_keepalive(endpoint) || self.send_marker(endpoint));
        self.keepalive_order = order;
        self.process_async_events();
        // Where there were not enough markers for all peers, some are free again soon.
        let next = if all { self.keepalive_interval() } else { TAIL_DELAY };
        self.timers.keepalive = self.peers.has_connections().then(|| self.now + next);
        self.do_work();
    }

    /// Whether a keepalive is due for a peer.
    fn needs_keepalive(&mut self, endpoint: u32) -> bool {
        let (now, interval) = (self.now, self.keepalive_interval());
        let off = self.config.heartbeat.is_zero();
        let connection = self.peers.get_mut(endpoint).and_then(|peer| peer.established()).filter(|_| !off);
        connection.is_some_and(|it| !it.send_queue.awaits_completion() && is_silent(now, it.last_heard, interval))
    }

    /// Time between two rounds of keepalives, or of looks at asynchronous events.
    pub(super) fn keepalive_interval(&self) -> Duration {
        let heartbeat = Duration::from_nanos(u64::try_from(self.config.heartbeat.as_nanos()).unwrap_or(u64::MAX / 4));
        if self.config.heartbeat.is_zero() { EVENT_INTERVAL } else { heartbeat }
    }
}

fn is_silent(now: Instant, last_heard: Instant, interval: Duration) -> bool {
    now.since(last_heard) >= interval
}
