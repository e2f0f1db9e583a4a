//! How connections come to be: on demand, in either direction, one for each pair.
//!
//! Where both sides connect at the same time, the attempt of the lower rank is the one. The lower rank keeps the
//! other's attempt parked, in case its own comes to nothing; the higher rank takes the lower's and drops its own. Until
//! the acceptor's verdict a connection belongs to nobody, so its end is never the end of a peer (CONTRACTS P6).

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Protocol, Socket, Type};
use towline_core::rail::Lost;
use towline_core::time::{Duration, Instant};

use crate::hello::{BadHello, Verdict};
use crate::options;
use crate::pending::{Failure, Pending, Step, Target};
use crate::rail::{Attempt, Rail, WORD_LISTENER, WORD_PENDING, Way};
use crate::sys::Interest;

/// Tries of one address whose owner answers, but closes during the hello.
const TRIES: u32 = 4;
/// Connections taken from the listeners at a time.
const ACCEPTS: usize = 16;
/// A listener that ran out of descriptors rests so long.
const REST: Duration = Duration::from_millis(100);

impl Rail {
    /// Begins what `reserve` asked for.
    #[cold]
    pub(crate) fn start_wanted(&mut self) {
        while let Some(endpoint) = self.wanted.pop_front() {
            let deadline = self.now + span(self.config.connect_timeout);
            let Some(entry) = self.entry(endpoint) else { continue };
            if matches!(entry.way, Way::Wanted) {
                entry.way =
                    Way::Connecting(Attempt { pending: None, candidate: 0, tries: 0, timed_out: false, deadline });
                self.attempt(endpoint);
            }
        }
    }

    /// Tries the current candidate of a peer, or the next ones if that cannot even begin.
    fn attempt(&mut self, endpoint: u32) {
        loop {
            let now = self.now;
            let address_deadline = now + span(self.config.address_timeout);
            let Some(entry) = self.entry(endpoint) else { return };
            let Way::Connecting(attempt) = entry.way else { return };
            let deadline = attempt.deadline;
            let target = Target { endpoint, rank: entry.rank, instance: entry.instance, host: entry.host, deadline };
            let Some(remote) = entry.candidates.get(attempt.candidate).copied() else {
                return self.lose(endpoint, if attempt.timed_out { Lost::TimedOut } else { Lost::Broken });
            };
            self.counters.attempts += 1;
            let slot = self.free_pending();
            let word = self.new_word(WORD_PENDING, slot);
            let deadline = address_deadline.min(attempt.deadline);
            let begun = begin(&self.config, remote).and_then(|socket| {
                let pending = Pending::outbound(socket, remote, target, word, deadline);
                pending.register(&self.epoll)?;
                Ok(pending)
            });
            match begun {
                Ok(pending) => {
                    self.note_deadline(deadline);
                    self.pending += 1;
                    self.pendings[slot as usize] = Some(pending);
                    if let Some(entry) = self.entry(endpoint) {
                        entry.way = Way::Connecting(Attempt { pending: Some(slot), ..attempt });
                    }
                    return;
                }
                Err(error) if is_out_of_descriptors(&error) => return self.rest(target, &error),
                Err(error) => {
                    self.counters.attempts_failed += 1;
                    log::warn!("tcp link {}: rank {} at {remote}: {error}", self.config.link, target.rank);
                    if let Some(entry) = self.entry(endpoint) {
                        entry.way = Way::Connecting(Attempt { candidate: attempt.candidate + 1, tries: 0, ..attempt });
                    }
                }
            }
        }
    }

    /// There is no descriptor for an attempt: it is made once there may be one again, until the peer's time is up.
    #[cold]
    fn rest(&mut self, target: Target, error: &io::Error) {
        let (link, rank) = (self.config.link, target.rank);
        self.counters.out_of_descriptors += 1;
        self.pipe.make_room();
        if self.now >= target.deadline {
            log::error!("tcp link {link}: rank {rank} cannot be connected: {error}; raise the limit (ulimit -n)");
            return self.lose(target.endpoint, Lost::TimedOut);
        }
        if !self.resting.contains(&target.endpoint) {
            log::warn!(
                "tcp link {link}: the connection to rank {rank} has to wait: {error}; raise the limit (ulimit -n)"
            );
            self.resting.push(target.endpoint);
        }
        let again = (self.now + REST).min(target.deadline);
        self.rested = Some(self.rested.map_or(again, |rested| rested.min(again)));
        self.note_deadline(again);
    }

    /// Tries again what had no descriptor. Where there is still none, all of them rest again.
    fn try_rested(&mut self) {
        self.rested = None;
        for _ in 0..self.resting.len() {
            let Some(endpoint) = self.resting.first().copied() else { return };
            self.attempt(endpoint);
            // Unless it rests again, it is on its way, or given up.
            let rests = self.rested.is_some() && self.is_without_attempt(endpoint);
            self.resting.retain(|it| *it != endpoint);
            if rests {
                self.resting.push(endpoint);
            }
        }
    }

    fn is_without_attempt(&mut self, endpoint: u32) -> bool {
        let way = self.entry(endpoint).map(|entry| &entry.way);
        matches!(way, Some(Way::Connecting(Attempt { pending: None, .. })))
    }

    /// One of our own attempts came to nothing: the peer's own is taken, or the next address tried.
    fn attempt_failed(&mut self, target: Target, remote: std::net::SocketAddr, proved: bool, failure: &Failure) {
        self.counters.attempts_failed += 1;
        let link = self.config.link;
        if matches!(failure, Failure::Encryption { .. }) {
            self.counters.refused_encryption += 1;
            log::error!("tcp link {link}: {remote}: {failure}");
        } else {
            log::warn!("tcp link {link}: rank {} at {remote}: {failure}", target.rank);
        }
        let now = self.now;
        let Some(entry) = self.entry(target.endpoint) else { return };
        let Way::Connecting(mut attempt) = entry.way else { return };
        if now >= attempt.deadline {
            log::error!("tcp link {link}: rank {} did not answer in time at any address", target.rank);
            return self.lose(target.endpoint, Lost::TimedOut);
        }
        attempt.pending = None;
        attempt.timed_out = matches!(failure, Failure::TimedOut(_));
        attempt.tries += 1;
        // Who closes in the middle of a hello may have been too busy to say it in time, or had too many callers.
        if !matches!(failure, Failure::Ended) || attempt.tries >= TRIES {
            attempt.candidate += 1;
            attempt.tries = 0;
        }
        entry.way = Way::Connecting(attempt);
        // Once we have proved who we are the peer may have counted on that connection, and then drops its own.
        if !proved && let Some(parked) = self.parked_from(target.rank) {
            return self.accept_parked(target.endpoint, parked);
        }
        self.attempt(target.endpoint);
    }

    /// Takes what waits at the listeners, as many as may be in the middle of a hello.
    pub(crate) fn accept(&mut self) {
        for at in 0..self.listeners.len() {
            for _ in 0..ACCEPTS {
                if self.inbound >= self.config.pending_inbound && !self.make_room() {
                    return self.listen(false);
                }
                match self.listeners[at].accept() {
                    Ok((socket, remote)) => self.accepted(socket, remote.as_socket()),
                    Err(error) if is_out_of_descriptors(&error) => {
                        self.counters.out_of_descriptors += 1;
                        self.pipe.make_room();
                        log::error!(
                            "tcp link {}: cannot take a connection: {error}; raise the limit",
                            self.config.link
                        );
                        let again = self.now + REST;
                        self.listen_again = Some(again);
                        self.note_deadline(again);
                        return self.listen(false);
                    }
                    Err(_) => break,
                }
            }
        }
    }

    /// Others wait, and all places are taken: whoever has been there longest without a word that counts gives way, if it has
    /// been there long enough. Else it is asked again when that is so.
    fn make_room(&mut self) -> bool {
        let hello = span(self.config.hello_timeout);
        let slots = (0..).zip(&self.pendings);
        let waiting = slots.filter_map(|(slot, pending)| {
            let (since, may) = pending.as_ref()?.in_the_way(hello)?;
            Some((since + may, slot))
        });
        let Some((due, slot)) = waiting.min() else { return false };
        if due > self.now {
            self.crowded_until = Some(due);
            self.note_deadline(due);
            return false;
        }
        self.pending_failed(slot, false, &Failure::TimedOut("hello"));
        true
    }

    fn accepted(&mut self, socket: Socket, remote: Option<std::net::SocketAddr>) {
        self.counters.accepted += 1;
        let Some(remote) = remote else { return };
        let slot = self.free_pending();
        let word = self.new_word(WORD_PENDING, slot);
        let pending = Pending::inbound(socket, remote, word, self.now, span(self.config.hello_timeout));
        let deadline = pending.deadline;
        if let Err(error) = pending.socket.set_nonblocking(true).and_then(|()| pending.register(&self.epoll)) {
            log::error!("tcp link {}: caller {remote}: {error}", self.config.link);
            return;
        }
        self.note_deadline(deadline);
        self.inbound += 1;
        self.pending += 1;
        self.pendings[slot as usize] = Some(pending);
        self.step_pending(slot, word);
    }

    /// Lets the listeners' callers wait in the kernel, or not.
    fn listen(&mut self, on: bool) {
        if self.listening == on {
            return;
        }
        self.listening = on;
        if on {
            self.polls = self.config.epoll_interval_polls; // somebody may have waited for long: look at once
        }
        let interest = if on { Interest::Read } else { Interest::Nothing };
        for (at, listener) in self.listeners.iter().enumerate() {
            let word = WORD_LISTENER << 60 | at as u64;
            if let Err(error) = self.epoll.change(listener.as_raw_fd(), interest, word) {
                log::error!("tcp link {}: cannot watch the listener: {error}", self.config.link);
            }
        }
    }

    /// Goes on with a connection that epoll reported.
    pub(crate) fn step_pending(&mut self, slot: u32, word: u64) {
        let now = self.now;
        let me = crate::pending::Me {
            config: &self.config,
            instance: self.instance,
            host: self.host,
            answered: &self.answered,
            now,
        };
        let Some(Some(pending)) = self.pendings.get_mut(slot as usize) else { return };
        if pending.word != word {
            return;
        }
        let proved = pending.has_proved();
        match pending.step(me, &self.epoll) {
            Step::Wait => {}
            Step::Reached => {
                // From here on the peer's engine has to answer, which may be busy with other things.
                pending.deadline = pending.target.map_or(now + span(self.config.connect_timeout), |it| it.deadline);
                let deadline = pending.deadline;
                self.note_deadline(deadline);
            }
            Step::Authenticated { rank, instance } => self.arbitrate(slot, rank, instance),
            Step::Verdict(verdict) => self.judged(slot, verdict),
            Step::Failed(failure) => self.pending_failed(slot, proved, &failure),
        }
    }

    fn pending_failed(&mut self, slot: u32, proved: bool, failure: &Failure) {
        let Some(pending) = self.take_pending(slot) else { return };
        if let Some(target) = pending.target {
            return self.attempt_failed(target, pending.remote, proved, failure);
        }
        if pending.parked().is_some() {
            // The caller settled on another connection between the two.
            self.counters.duplicates += 1;
            return;
        }
        let counter = match failure {
            Failure::TimedOut(_) => &mut self.counters.refused_slow,
            Failure::System(_) | Failure::Ended => &mut self.counters.refused_silent,
            Failure::Hello(BadHello::Foreign) => &mut self.counters.refused_foreign,
            Failure::Hello(BadHello::Version(_)) => &mut self.counters.refused_version,
            Failure::Hello(BadHello::Malformed) | Failure::Role => &mut self.counters.refused_malformed,
            Failure::Stray(_) => &mut self.counters.refused_stray,
            Failure::Key => &mut self.counters.refused_key,
            Failure::Again => &mut self.counters.refused_again,
            Failure::Encryption { .. } => &mut self.counters.refused_encryption,
        };
        *counter += 1;
        log::info!("tcp link {}: caller {} is refused: {failure}", self.config.link, pending.remote);
    }

    /// An authenticated peer has called: decides whether its connection is the one.
    fn arbitrate(&mut self, slot: u32, rank: u32, instance: u64) {
        let own_rank = self.config.rank;
        let Some(endpoint) = self.ranks.get(&rank).copied() else { return }; // parked until the peer is added
        let Some(entry) = self.entry(endpoint) else { return };
        if entry.instance != instance {
            return self.turn_away(slot, Verdict::Refused);
        }
        match &entry.way {
            Way::Unused | Way::Wanted => self.accept_parked(endpoint, slot),
            Way::Connecting(attempt) => match attempt.pending {
                None => self.accept_parked(endpoint, slot),
                Some(_) if own_rank < rank => {} // ours is the one; theirs stays parked in case ours fails
                Some(ours) => {
                    entry.way = Way::Connecting(Attempt { pending: None, ..*attempt });
                    self.counters.duplicates += 1;
                    drop(self.take_pending(ours));
                    self.accept_parked(endpoint, slot);
                }
            },
            Way::Up(_) => self.turn_away(slot, Verdict::Duplicate),
            Way::Gone => self.turn_away(slot, Verdict::Refused),
        }
    }

    /// Makes an authenticated inbound connection the one.
    fn accept_parked(&mut self, endpoint: u32, slot: u32) {
        let Some(mut pending) = self.take_pending(slot) else { return };
        let remote = pending.remote;
        self.awaiting.retain(|it| *it != endpoint);
        if let Err(error) = pending.give_verdict(self.me(), Verdict::Accepted) {
            // It went away while it was parked. If we have no attempt of our own on the way, one is due.
            log::info!("tcp link {}: caller {remote} went away: {error}", self.config.link);
            self.counters.refused_silent += 1;
            if let Some(entry) = self.entry(endpoint)
                && let Way::Connecting(Attempt { pending: None, .. }) = entry.way
            {
                self.attempt(endpoint);
            }
            return;
        }
        let cipher = pending.take_cipher();
        self.establish(endpoint, pending.socket, remote, cipher);
        self.turn_away_others(endpoint);
    }

    /// Connections of a peer that is up, or gone, and that wait for a verdict.
    fn turn_away_others(&mut self, endpoint: u32) {
        let Some(entry) = self.entry(endpoint) else { return };
        let rank = entry.rank;
        let verdict = if matches!(entry.way, Way::Up(_)) { Verdict::Duplicate } else { Verdict::Refused };
        while let Some(parked) = self.parked_from(rank) {
            self.turn_away(parked, verdict);
        }
    }

    fn turn_away(&mut self, slot: u32, verdict: Verdict) {
        let Some(mut pending) = self.take_pending(slot) else { return };
        match verdict {
            Verdict::Duplicate => self.counters.duplicates += 1,
            _ => self.counters.refused_peer += 1,
        }
        // If it cannot be told, it sees the end, which means the same.
        let _ = pending.give_verdict(self.me(), verdict);
    }

    /// The acceptor of one of our attempts has decided.
    fn judged(&mut self, slot: u32, verdict: Verdict) {
        let Some(mut pending) = self.take_pending(slot) else { return };
        let Some(target) = pending.target else { return };
        let endpoint = target.endpoint;
        match verdict {
            Verdict::Accepted => {
                let cipher = pending.take_cipher();
                self.establish(endpoint, pending.socket, pending.remote, cipher);
                self.turn_away_others(endpoint);
            }
            Verdict::Duplicate => {
                self.counters.duplicates += 1;
                let Some(entry) = self.entry(endpoint) else { return };
                let Way::Connecting(attempt) = &mut entry.way else { return };
                attempt.pending = None;
                let deadline = attempt.deadline;
                self.awaiting.push(endpoint);
                self.note_deadline(deadline);
                if let Some(parked) = self.parked_from(target.rank) {
                    self.accept_parked(endpoint, parked);
                }
            }
            Verdict::Refused => {
                log::error!("tcp: rank {} at {} does not want this peer", target.rank, pending.remote);
                self.lose(endpoint, Lost::Broken);
            }
        }
    }

    /// A peer was added: its calls that came before are answered.
    pub(crate) fn welcome(&mut self, endpoint: u32) {
        let Some(entry) = self.entry(endpoint) else { return };
        let rank = entry.rank;
        while let Some(slot) = self.parked_from(rank) {
            let Some((rank, instance)) = self.pendings[slot as usize].as_ref().and_then(Pending::parked) else {
                return;
            };
            self.arbitrate(slot, rank, instance);
        }
    }

    fn parked_from(&self, rank: u32) -> Option<u32> {
        let is_from = |pending: &Pending| pending.parked().is_some_and(|(from, _)| from == rank);
        self.pendings.iter().position(|it| it.as_ref().is_some_and(is_from)).map(|at| at as u32)
    }

    fn free_pending(&mut self) -> u32 {
        if let Some(at) = self.pendings.iter().position(Option::is_none) {
            return at as u32;
        }
        self.pendings.push(None);
        self.pendings.len() as u32 - 1
    }

    pub(crate) fn take_pending(&mut self, slot: u32) -> Option<Pending> {
        let pending = self.pendings.get_mut(slot as usize)?.take()?;
        self.pending -= 1;
        if pending.target.is_none() {
            self.inbound -= 1;
            if self.listen_again.is_none() {
                self.listen(true);
            }
        }
        Some(pending)
    }

    pub(crate) fn note_deadline(&mut self, deadline: Instant) {
        self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
    }

    /// Ends what is overdue, and finds the next deadline.
    #[cold]
    pub(crate) fn expire(&mut self) {
        let now = self.now;
        if self.listen_again.is_some_and(|again| again <= now) {
            self.listen_again = None;
            self.listen(true);
        }
        if self.crowded_until.is_some_and(|until| until <= now) {
            self.crowded_until = None;
            if self.listen_again.is_none() {
                self.listen(true);
            }
        }
        if self.rested.is_some_and(|rested| rested <= now) {
            self.try_rested();
        }
        if self.watch_at.is_some_and(|at| at <= now) {
            self.watch_hosts();
        }
        for slot in 0..self.pendings.len() as u32 {
            let Some(Some(pending)) = self.pendings.get(slot as usize) else { continue };
            if pending.deadline > now {
                continue;
            }
            let (what, proved) = (pending.awaited(), pending.has_proved());
            if pending.parked().is_some() {
                self.turn_away(slot, Verdict::Refused);
            } else {
                self.pending_failed(slot, proved, &Failure::TimedOut(what));
            }
        }
        let mut at = 0;
        while let Some(endpoint) = self.awaiting.get(at).copied() {
            match self.entry(endpoint).map(|entry| &entry.way) {
                Some(Way::Connecting(attempt)) if attempt.deadline > now => at += 1,
                Some(Way::Connecting(_)) => self.lose(endpoint, Lost::TimedOut), // takes it off the list
                _ => drop(self.awaiting.swap_remove(at)),
            }
        }
        let pendings = self.pendings.iter().flatten().map(|pending| pending.deadline);
        let awaiting =
            self.awaiting.iter().filter_map(|endpoint| match &self.peers.get(*endpoint as usize)?.as_ref()?.way {
                Way::Connecting(attempt) => Some(attempt.deadline),
                _ => None,
            });
        let rests = self.listen_again.into_iter().chain(self.rested).chain(self.watch_at).chain(self.crowded_until);
        self.next_deadline = pendings.chain(awaiting).chain(rests).min();
    }
}

fn begin(config: &crate::Config, remote: std::net::SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    options::set_buffers(config, &socket)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&remote.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

pub(crate) fn span(duration: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
