//! How connections are made, by hellos.

use std::sync::Arc;

use towline_core::rail::Lost;
use towline_core::time::Duration;

use crate::device::{Destination, Path, Port, Reliable, Route};
use crate::wire::hello::{self, Hello, Stage};
use crate::rail::state::{CONTROL, Id, Line, Rail, Way};
use crate::bookkeeping::send_queue::Outstanding;
use crate::bookkeeping::hello_action::{Standing, Verdict};

/// Time between the first two hellos; it doubles from one to the next ...
const FIRST_INTERVAL: Duration = Duration::from_millis(2);
/// ... up to this.
const LONGEST_INTERVAL: Duration = Duration::from_millis(100);

impl Rail {
    /// Begins what `reserve` asked for.
    pub(crate) fn call(&mut self, endpoint: u32) {
        if self.known(endpoint).is_some_and(|known| known.way == Way::Wanted) && self.make_line(endpoint) {
            self.call_again();
        }
    }

    /// Makes a queue pair, and the peer one that hellos are exchanged with.
    fn make_line(&mut self, endpoint: u32) -> bool {
        let (config, deadline) = (&self.config, self.now + span(self.config.connect_timeout));
        let sends = config.send_queue_frames + CONTROL + 1;
        let made = Reliable::new(
            &self.region,
            &self.completions,
            &self.receives,
            self.port.number,
            sends,
            config.inline_bytes,
            !self.port.atomics.is_empty(),
        );
        let pair = match made {
            Ok(pair) => pair,
            Err(why) => {
                log::error!("verbs link {}: no queue pair is to be had: {why}", config.link);
                self.lose(endpoint, Lost::Broken);
                return false;
            }
        };
        let (number, queue_pair, now) = (self.number, pair.number(), self.now);
        self.number += 1;
        // Another one each time, so that a packet of an earlier connection fits none.
        let first_packet = (self.instance as u32).wrapping_add((number as u32).wrapping_mul(0x9e_3779)) & 0xff_ffff;
        let line = Line {
            pair,
            number,
            first_packet,
            theirs: 0,
            out: Outstanding::new(sends),
            in_tails: false,
            tail: 0,
            heard: now,
            said: 0,
            next: now,
            deadline,
        };
        let Some(known) = self.known(endpoint) else { return false };
        (known.way, known.line) = (Way::Meeting, Some(line));
        let at = self.lines.partition_point(|(other, _)| *other < queue_pair);
        self.lines.insert(at, (queue_pair, endpoint));
        self.wanted.retain(|it| *it != endpoint);
        self.meeting.push(endpoint);
        true
    }

    /// Says hello to all whose time has come.
    #[cold]
    pub(crate) fn call_again(&mut self) {
        let now = self.now;
        self.next_hello = None;
        let mut at = 0;
        while let Some(endpoint) = self.meeting.get(at).copied() {
            let Some(line) = self.known(endpoint).and_then(|known| known.line.as_mut()) else {
                self.meeting.swap_remove(at);
                continue;
            };
            if line.deadline <= now {
                self.lose(endpoint, Lost::TimedOut); // and leaves the list
                continue;
            }
            if line.next <= now {
                let interval = (FIRST_INTERVAL.as_nanos() << line.said.min(10)).min(LONGEST_INTERVAL.as_nanos());
                line.said += 1;
                line.next = now + Duration::from_nanos(interval);
                let (number, echo) = (line.number, line.theirs);
                self.say(endpoint, Stage::Asks, number, echo);
            }
            let next =
                self.known(endpoint).and_then(|known| known.line.as_ref()).map(|line| line.next.min(line.deadline));
            self.next_hello = [self.next_hello, next].into_iter().flatten().min();
            at += 1;
        }
    }

    /// Sends a hello. If there is no room, or it is lost, another one follows.
    pub(crate) fn say(&mut self, endpoint: u32, stage: Stage, number: u64, echo: u64) {
        if self.mending || self.dead.is_some() {
            return;
        }
        let (Some(route), Some(buffer)) = (self.route(endpoint), self.outbox.next()) else { return };
        let (job, from, from_instance, own) =
            (self.config.job, self.config.rank, self.instance, self.datagrams.number());
        let domain = std::sync::Arc::clone(self.region.domain());
        let Some(known) = self.known(endpoint) else { return };
        if known.destination.is_none() {
            match Destination::new(&domain, &route, known.card.hello_queue, known.card.hello_key) {
                Ok(made) => known.destination = Some(Arc::new(made)),
                Err(why) => return log::debug!("verbs: no way to rank {}: {why}", known.card.rank),
            }
        }
        let (to, to_instance) = (known.card.rank, known.card.instance);
        let line = known.line.as_ref().filter(|line| line.number == number);
        let (queue_pair, first_packet) = line.map_or((own, 0), |line| (line.pair.number(), line.first_packet));
        let hello = Hello { stage, job, from, to, from_instance, to_instance, number, echo, queue_pair, first_packet };
        let bytes = hello.encode(&self.config.key);
        let at = self.layout.hellos_out.at(buffer).unwrap_or(usize::MAX);
        let Some(room) = self.region.pointer(at, bytes.len()) else { return };
        // SAFETY: within the region, and the device has told that it is done with the buffer.
        unsafe { room.copy_from_nonoverlapping(std::ptr::NonNull::from(&bytes).cast(), bytes.len()) };
        let destination =
            self.peers.get(endpoint as usize).and_then(Option::as_ref).and_then(|it| it.destination.as_ref());
        let Some(destination) = destination else { return };
        match self.datagrams.send(Id::HelloOut(buffer).word(), destination, at, hello::BYTES as u32) {
            Ok(()) => {
                self.outbox.posted(destination);
                self.counters.hellos_sent += 1;
            }
            Err(why) => log::debug!("verbs: a hello is refused: {why}"),
        }
    }

    fn route(&self, endpoint: u32) -> Option<Route> {
        let card = &self.peers.get(endpoint as usize)?.as_ref()?.card;
        Some(Route {
            kind: card.kind,
            gid: card.gid,
            lid: card.lid,
            port: self.port.number,
            gid_index: self.port.address.entry.index as u8,
            traffic_class: self.config.traffic_class,
        })
    }

    /// Takes in a hello of somebody who knows the key.
    #[cold]
    pub(crate) fn hear(&mut self, hello: &Hello) {
        let ours = (hello.job, hello.to, hello.to_instance) == (self.config.job, self.config.rank, self.instance);
        let endpoint = self.ranks.get(&hello.from).copied().filter(|_| ours);
        let past = self.past.get(&hello.from).copied();
        let Some((endpoint, known)) = endpoint.and_then(|endpoint| Some((endpoint, self.known(endpoint)?))) else {
            self.counters.hellos_refused += 1;
            return;
        };
        if hello.from_instance != known.card.instance || known.way == Way::Gone {
            return;
        }
        let line = known.line.as_ref().map(|line| (line.number, line.theirs));
        let number = line.map_or(0, |(number, _)| number);
        let is_up = known.way == Way::Up;
        match Verdict::on(hello, &Standing { line, is_up, past }) {
            Verdict::Old => {}
            Verdict::Closed => self.lose(endpoint, Lost::Closed),
            Verdict::Broken => self.lose(endpoint, Lost::Broken),
            Verdict::BeginAnew => self.begin_anew(endpoint),
            Verdict::Unknown => self.say(endpoint, Stage::Unknown, hello.echo.max(1), hello.number),
            Verdict::Meet => {
                if self.make_line(endpoint) && self.connect(endpoint, hello) {
                    self.call_again();
                }
            }
            Verdict::Connect => {
                if self.connect(endpoint, hello) {
                    self.hear_known(endpoint, hello, number);
                }
            }
            Verdict::Known => self.hear_known(endpoint, hello, number),
            Verdict::MeetAnew => {
                self.hang_up(endpoint);
                self.leave_lists(endpoint);
                self.hear(hello); // as a stranger's
            }
        }
    }

    /// The other end knows nothing of the connection, which was never used.
    fn begin_anew(&mut self, endpoint: u32) {
        self.hang_up(endpoint);
        self.leave_lists(endpoint);
        if let Some(known) = self.known(endpoint) {
            known.way = Way::Wanted;
            self.wanted.push(endpoint);
        }
    }

    /// The other end of a connection says hello.
    fn hear_known(&mut self, endpoint: u32, hello: &Hello, number: u64) {
        if hello.echo == number {
            self.is_up(endpoint);
        }
        if hello.stage == Stage::Asks {
            let up = self.known(endpoint).is_some_and(|known| known.way == Way::Up);
            let stage = if up { Stage::Tells } else { Stage::Asks };
            self.say(endpoint, stage, number, hello.number);
        }
    }

    /// Connects the queue pair to the one that a hello names.
    fn connect(&mut self, endpoint: u32, hello: &Hello) -> bool {
        let Some(route) = self.route(endpoint) else { return false };
        let (own, ack_timeout) = (self.mtu, self.config.ack_timeout());
        let Port { most_reads, most_answers: answers, .. } = self.port;
        let Some(known) = self.known(endpoint) else { return false };
        let Some(line) = &mut known.line else { return false };
        let path = Path {
            route,
            mtu: own.min(known.card.mtu),
            queue_pair: hello.queue_pair,
            first_packet_in: hello.first_packet,
            first_packet_out: line.first_packet,
            ack_timeout,
            reads: most_reads.min(known.card.reads),
            answers,
        };
        if let Err(why) = line.pair.connect(&path) {
            log::error!("verbs: rank {} cannot be connected to: {why}", known.card.rank);
            self.lose(endpoint, Lost::Broken);
            return false;
        }
        line.theirs = hello.number;
        self.past.insert(hello.from, (hello.from_instance, hello.number));
        true
    }

    /// The other end has connected, too.
    pub(crate) fn is_up(&mut self, endpoint: u32) {
        let (now, interval) = (self.now, self.interval());
        let Some(known) = self.known(endpoint).filter(|known| known.way == Way::Meeting) else { return };
        known.way = Way::Up;
        if let Some(line) = &mut known.line {
            line.heard = now;
        }
        log::debug!("verbs: rank {} is connected", known.card.rank);
        self.meeting.retain(|it| *it != endpoint);
        self.counters.established += 1;
        self.beat_at.get_or_insert(now + interval);
    }
}

pub(crate) fn span(duration: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
