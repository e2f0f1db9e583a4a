//! The handshake: how connections are made, by hellos.

use std::sync::Arc;

use towline_core::rail::Lost;
use towline_core::time::Duration;
use towline_net::Identity;
use towline_net::time::core_duration;

use super::peer::{ConnState, Connection, HelloSchedule, Tail};
use super::state::Rail;
use crate::bookkeeping::hello_action::{HelloAction, KnownConnection};
use crate::bookkeeping::send_queue::SendQueue;
use crate::device::{AddressHandle, ConnectionAttributes, Port, ReliableQueuePair, Route};
use crate::sizes::CONTROL_FRAMES;
use crate::wire::hello::{Hello, HelloKind};

/// Time between the first two hellos of a handshake. It doubles with each hello, up to [`LONGEST_INTERVAL`].
const FIRST_INTERVAL: Duration = Duration::from_millis(2);
/// Longest time between two hellos of a handshake.
const LONGEST_INTERVAL: Duration = Duration::from_millis(100);

impl Rail {
    /// Begins a handshake that `reserve` requested.
    pub(super) fn begin_handshake(&mut self, endpoint: u32) {
        let requested = self.peers.get(endpoint).is_some_and(|peer| peer.state == ConnState::Requested);
        if requested && self.make_connection(endpoint) {
            self.send_due_hellos();
        }
    }

    /// Makes a queue pair for a peer, and begins to exchange hellos with the peer. Returns whether that succeeded.
    fn make_connection(&mut self, endpoint: u32) -> bool {
        let (config, deadline) = (&self.config, self.now + core_duration(self.config.connect_timeout));
        let most_work = config.send_queue_frames + CONTROL_FRAMES + 1;
        let made = ReliableQueuePair::new(
            &self.queues.region,
            &self.queues.completions,
            &self.queues.receives,
            self.local.port.number,
            most_work,
            config.inline_bytes,
            !self.local.port.atomics.is_empty(),
        );
        let queue_pair = match made {
            Ok(queue_pair) => queue_pair,
            Err(why) => {
                log::error!("verbs link {}: no queue pair can be made: {why}", config.link);
                self.lose(endpoint, Lost::Broken);
                return false;
            }
        };
        let (number, queue_pair_number, now) = (self.peers.next_connection_number(), queue_pair.number(), self.now);
        // Each connection begins with another sequence number, so that it takes no packet of an earlier connection.
        let first_packet =
            (self.local.instance as u32).wrapping_add((number as u32).wrapping_mul(0x9e_3779)) & 0xff_ffff;
        let connection = Connection {
            queue_pair,
            number,
            first_packet,
            remote_number: 0,
            send_queue: SendQueue::new(most_work),
            tail: Tail::default(),
            last_heard: now,
            hellos: HelloSchedule { sent: 0, next: now, deadline },
        };
        let Some(peer) = self.peers.get_mut(endpoint) else { return false };
        (peer.state, peer.connection) = (ConnState::Handshake, Some(connection));
        self.peers.bind_queue_pair(queue_pair_number, endpoint);
        self.lists.requested.retain(|it| *it != endpoint);
        self.lists.handshakes.push(endpoint);
        true
    }

    /// Sends the hellos that are due.
    #[cold]
    pub(super) fn send_due_hellos(&mut self) {
        let now = self.now;
        self.timers.hellos = None;
        let mut at = 0;
        while let Some(endpoint) = self.lists.handshakes.get(at).copied() {
            let Some(connection) = self.peers.connection_mut(endpoint) else {
                self.lists.handshakes.swap_remove(at);
                continue;
            };
            if connection.hellos.deadline <= now {
                self.lose(endpoint, Lost::TimedOut); // which removes it from the list
                continue;
            }
            let schedule = &mut connection.hellos;
            if schedule.next <= now {
                let interval = (FIRST_INTERVAL.as_nanos() << schedule.sent.min(10)).min(LONGEST_INTERVAL.as_nanos());
                schedule.sent += 1;
                schedule.next = now + Duration::from_nanos(interval);
                let (number, echo) = (connection.number, connection.remote_number);
                self.send_hello(endpoint, HelloKind::Request, number, echo);
            }
            let next = self.peers.connection(endpoint).map(|it| it.hellos.next.min(it.hellos.deadline));
            self.timers.hellos = [self.timers.hellos, next].into_iter().flatten().min();
            at += 1;
        }
    }

    /// Sends a hello. If there is no free buffer, nothing is sent. A handshake repeats its hellos, so this does no harm.
    pub(super) fn send_hello(&mut self, endpoint: u32, kind: HelloKind, number: u64, echo: u64) {
        if self.hellos.is_failed || self.health.dead.is_some() {
            return;
        }
        let (Some(route), Some(_)) = (self.route(endpoint), self.hellos.send_buffers.next()) else { return };
        let Some(peer) = self.peers.get_mut(endpoint) else { return };
        if peer.address_handle.is_none() {
            let domain = self.queues.region.domain();
            match AddressHandle::new(domain, &route, peer.card.hello_queue, peer.card.hello_key) {
                Ok(made) => peer.address_handle = Some(Arc::new(made)),
                Err(why) => return log::debug!("verbs: no address handle for rank {}: {why}", peer.card.rank),
            }
        }
        let identity = Identity {
            job: self.config.job,
            from: self.config.rank,
            to: peer.card.rank,
            from_instance: self.local.instance,
            to_instance: peer.card.instance,
        };
        let connection = peer.connection.as_ref().filter(|connection| connection.number == number);
        let (queue_pair, first_packet) =
            connection.map_or((self.hellos.queue_pair.number(), 0), |it| (it.queue_pair.number(), it.first_packet));
        let hello = Hello { kind, identity, number, echo, queue_pair, first_packet };
        let bytes = hello.encode(&self.config.key);
        let Some(address_handle) = &peer.address_handle else { return };
        match self.hellos.send(&bytes, address_handle, &self.queues) {
            Ok(sent) => self.counters.hellos_sent += u64::from(sent),
            Err(why) => log::debug!("verbs: the device refuses a hello: {why}"),
        }
    }

    /// The route to a peer.
    fn route(&self, endpoint: u32) -> Option<Route> {
        let card = &self.peers.get(endpoint)?.card;
        Some(Route {
            kind: card.kind,
            gid: card.gid,
            lid: card.lid,
            port: self.local.port.number,
            gid_index: self.local.port.address.entry.index as u8,
            traffic_class: self.config.traffic_class,
        })
    }

    /// Acts on a hello whose sender knows the job's key.
    #[cold]
    pub(super) fn handle_hello(&mut self, hello: &Hello) {
        let Identity { from, from_instance, .. } = hello.identity;
        let receiver = hello.identity.check_receiver(self.config.job, self.config.rank, self.local.instance);
        let endpoint = self.peers.of_rank(from).filter(|_| receiver.is_ok());
        let last_heard = self.peers.last_heard(from);
        let Some((endpoint, peer)) = endpoint.and_then(|endpoint| Some((endpoint, self.peers.get(endpoint)?))) else {
            self.counters.hellos_refused += 1;
            return;
        };
        if from_instance != peer.card.instance || peer.state == ConnState::Lost {
            return;
        }
        let numbers = peer.connection.as_ref().map(|it| (it.number, it.remote_number));
        let number = numbers.map_or(0, |(number, _)| number);
        let is_established = peer.state == ConnState::Established;
        match HelloAction::on(hello, &KnownConnection { numbers, is_established, last_heard }) {
            HelloAction::Ignore => {}
            HelloAction::Closed => self.lose(endpoint, Lost::Closed),
            HelloAction::Broken => self.lose(endpoint, Lost::Broken),
            HelloAction::Reconnect => self.reconnect(endpoint),
            HelloAction::RejectUnknown => {
                self.send_hello(endpoint, HelloKind::Unknown, hello.echo.max(1), hello.number);
            }
            HelloAction::Accept => {
                if self.make_connection(endpoint) && self.connect(endpoint, hello) {
                    self.send_due_hellos();
                }
            }
            HelloAction::Connect => {
                if self.connect(endpoint, hello) {
                    self.confirm(endpoint, hello, number);
                }
            }
            HelloAction::Confirm => self.confirm(endpoint, hello, number),
            HelloAction::Replace => {
                self.end_connection(endpoint);
                self.leave_lists(endpoint);
                self.handle_hello(hello); // as a hello of an unknown connection
            }
        }
    }

    /// Requests another connection, since the peer does not know the present connection, which was never used.
    fn reconnect(&mut self, endpoint: u32) {
        self.end_connection(endpoint);
        self.leave_lists(endpoint);
        if let Some(peer) = self.peers.get_mut(endpoint) {
            peer.state = ConnState::Requested;
            self.lists.requested.push(endpoint);
        }
    }

    /// Acts on a hello that belongs to the known connection. `number` is our number of that connection.
    fn confirm(&mut self, endpoint: u32, hello: &Hello, number: u64) {
        if hello.echo == number {
            self.set_established(endpoint);
        }
        if hello.kind == HelloKind::Request {
            let established = self.peers.get(endpoint).is_some_and(|peer| peer.state == ConnState::Established);
            let kind = if established { HelloKind::Reply } else { HelloKind::Request };
            self.send_hello(endpoint, kind, number, hello.number);
        }
    }

    /// Connects our queue pair to the one that a hello names. Returns whether that succeeded.
    fn connect(&mut self, endpoint: u32, hello: &Hello) -> bool {
        let Some(route) = self.route(endpoint) else { return false };
        let (own_mtu, ack_timeout) = (self.local.mtu, self.config.ack_timeout());
        let Port { max_reads_out, max_reads_in: reads_in, .. } = self.local.port;
        let Some(peer) = self.peers.get_mut(endpoint) else { return false };
        let Some(connection) = &mut peer.connection else { return false };
        let attributes = ConnectionAttributes {
            route,
            mtu: own_mtu.min(peer.card.mtu),
            queue_pair: hello.queue_pair,
            first_packet_in: hello.first_packet,
            first_packet_out: connection.first_packet,
            ack_timeout,
            reads_out: max_reads_out.min(peer.card.reads),
            reads_in,
        };
        if let Err(why) = connection.queue_pair.connect(&attributes) {
            log::error!("verbs: the queue pair for rank {} cannot be connected: {why}", peer.card.rank);
            self.lose(endpoint, Lost::Broken);
            return false;
        }
        connection.remote_number = hello.number;
        self.peers.set_last_heard(&hello.identity, hello.number);
        true
    }

    /// Notes that the peer's queue pair is connected, too, so that frames can travel.
    pub(super) fn set_established(&mut self, endpoint: u32) {
        let (now, interval) = (self.now, self.keepalive_interval());
        let Some(peer) = self.peers.get_mut(endpoint).filter(|peer| peer.state == ConnState::Handshake) else {
            return;
        };
        peer.state = ConnState::Established;
        if let Some(connection) = &mut peer.connection {
            connection.last_heard = now;
        }
        log::debug!("verbs: the connection to rank {} is established", peer.card.rank);
        self.lists.handshakes.retain(|it| *it != endpoint);
        self.counters.established += 1;
        self.timers.keepalive.get_or_insert(now + interval);
    }
}
