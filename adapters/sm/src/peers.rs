//! Peers come, go, and die.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::process::PidfdFlags;
use towline_core::rail::{Endpoint, Event, Lost, Peer, Unreachable};

use crate::board::Board;
use crate::card::Card;
use crate::error::OpenError;
use crate::host::Process;
use crate::lane::{Incoming, Outgoing, Ring};
use crate::layout::bit_words;
use crate::rail::{NO_RING, PeerState, Rail, Stage};
use crate::single::Lender;
use crate::windows::Theirs;

impl Rail {
    pub(crate) fn add(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let card = Card::decode(card)?;
        if card.place != self.card.place {
            return Err(Unreachable::OtherHost);
        }
        if card.job != self.card.job || card.user != self.card.user {
            log::warn!("rank {} is of another job or another user's", card.rank);
            return Err(Unreachable::System);
        }
        let known = *self.endpoints.get(card.rank as usize).ok_or(Unreachable::BadCard)?;
        if let Some(endpoint) = known.checked_sub(1) {
            if self
                .peers
                .get(endpoint as usize)
                .is_some_and(|old| old.nonce == card.nonce && old.stage == Stage::Parked)
            {
                return Ok(self.unpark(endpoint, peer));
            }
            self.forget(endpoint);
        }
        let (board, pidfd) = self.meet(&card)?;
        let fence = !(self.barrier && board.has_barrier());
        let state = PeerState {
            rank: card.rank,
            peer,
            stage: Stage::Live,
            nonce: card.nonce,
            process: card.process,
            board: Some(board),
            pidfd,
            pipe: None,
            fence,
            crowded: false,
            theirs: Theirs::default(),
        };
        let free = self.peers.iter().position(|peer| peer.stage == Stage::Free);
        let endpoint = match free {
            Some(endpoint) => {
                self.peers[endpoint] = state;
                endpoint
            }
            None => {
                self.peers.push(state);
                self.rings.extend([Ring::none(), Ring::none()]);
                // Lists never grow on a message's path.
                self.hot.reserve(self.rings.len());
                self.warm.reserve(self.rings.len());
                self.peers.len() - 1
            }
        } as u32;
        if let Some(place) = self.endpoints.get_mut(card.rank as usize) {
            *place = endpoint + 1;
        }
        self.admit(endpoint, peer);
        Ok(Endpoint(endpoint))
    }

    /// Maps a peer's board, and gets a handle on its process.
    fn meet(&self, card: &Card) -> Result<(Board, Option<OwnedFd>), Unreachable> {
        let path = self.names.board(card.rank);
        let board = Board::open(&path, self.card.rank).map_err(|error| {
            log::warn!("rank {} cannot be met: {error}", card.rank);
            match error {
                OpenError::Malformed(_) => Unreachable::BadCard,
                _ => Unreachable::System,
            }
        })?;
        if board.nonce() != card.nonce || board.owner() != card.process {
            log::warn!("{} is not the board of the card given for rank {}", path.display(), card.rank);
            return Err(Unreachable::BadCard);
        }
        let pidfd = self.watch(&card.process)?;
        if pidfd.is_none() && self.may_watch(&card.process) {
            log::warn!("there is no handle for process {}: its death is noticed by its number", card.process.pid);
        }
        Ok((board, pidfd))
    }

    /// Whether the death of a process can be seen from here: not of this one, nor of one of another container, whose death
    /// shows only on other rails.
    fn may_watch(&self, process: &Process) -> bool {
        *process != self.me && process.space == self.me.space
    }

    /// A handle that tells when a process ends; none where that cannot be seen, and where the system has none to give.
    fn watch(&self, process: &Process) -> Result<Option<OwnedFd>, Unreachable> {
        if !self.may_watch(process) {
            return Ok(None);
        }
        let pid = process.number().ok_or(Unreachable::BadCard)?;
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            // The number may have been given to another process before we got hold of it.
            Ok(pidfd) if process.lives(&self.me) != Some(false) => Ok(Some(pidfd)),
            Ok(_) | Err(rustix::io::Errno::SRCH) => {
                log::warn!("process {} is gone already", process.pid);
                Err(Unreachable::System)
            }
            Err(error) => {
                log::debug!("no handle for process {}: {error}", process.pid);
                Ok(None)
            }
        }
    }

    /// Takes up a peer that was parked: its rings are as they were, without what came in between.
    fn unpark(&mut self, endpoint: u32, peer: Peer) -> Endpoint {
        self.discard(endpoint);
        if let Some(state) = self.peers.get_mut(endpoint as usize) {
            state.stage = Stage::Live;
            state.peer = peer;
        }
        let limits = [self.config.eager_limit_bytes, self.config.bulk_limit_bytes];
        for (lane, limit) in limits.into_iter().enumerate() {
            if let Some(outgoing) = self.rings.get_mut(endpoint as usize * 2 + lane).map(|ring| &mut ring.outgoing)
                && outgoing.exists()
            {
                outgoing.bound = limit + 1;
            }
        }
        self.admit(endpoint, peer);
        Endpoint(endpoint)
    }

    /// Begins to poll a peer's rings, and maps those that it announced before it was added.
    fn admit(&mut self, endpoint: u32, peer: Peer) {
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            if let Some(incoming) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming)
                && incoming.exists()
            {
                incoming.peer = peer;
                self.hot.push(ring);
            }
        }
        self.answer();
    }

    pub(crate) fn delete(&mut self, endpoint: Endpoint) {
        let Some(peer) = self.peers.get_mut(endpoint.0 as usize) else { return };
        let stage = peer.stage;
        if matches!(stage, Stage::Parked | Stage::Free) {
            return;
        }
        if matches!(stage, Stage::Failing(_)) {
            self.failing -= 1;
        }
        if stage != Stage::Live {
            return self.forget(endpoint.0);
        }
        peer.stage = Stage::Parked;
        self.close_lanes(endpoint.0);
        self.discard(endpoint.0);
    }

    /// Sends nothing more to a peer, and polls its rings no more.
    fn close_lanes(&mut self, endpoint: u32) {
        if let Some(peer) = self.peers.get_mut(endpoint as usize) {
            peer.theirs = Theirs::default();
        }
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            if let Some(outgoing) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.outgoing) {
                outgoing.bound = 0;
                // Before its loss is told, or memory is used otherwise.
                if let Some(lender) = &mut outgoing.lender {
                    lender.revoke();
                }
            }
            self.hot.retain(|hot| *hot != ring);
            self.front = NO_RING;
            self.warm.retain(|warm| *warm != ring);
        }
    }

    /// Drops what a peer sent and what is held of it.
    fn discard(&mut self, endpoint: u32) {
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            self.kept.drop_ring(ring);
            let Some(incoming) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming) else { continue };
            incoming.held = 0;
            while let Some(word) = incoming.receiver.peek(&incoming.slots) {
                if incoming.receiver.take(word).is_err() {
                    break;
                }
            }
            incoming.receiver.give_back(&incoming.slots, incoming.receiver.position());
        }
    }

    /// Frees all that is kept for a peer.
    fn forget(&mut self, endpoint: u32) {
        let rank = self.rank_of(endpoint);
        self.close_lanes(endpoint);
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            self.kept.drop_ring(ring);
            if let Some(Ring { incoming, outgoing }) = self.rings.get_mut(ring as usize) {
                if outgoing.exists() {
                    // Usually gone already: the peer removes it when it maps the ring.
                    let _ = std::fs::remove_file(self.names.ring(self.card.rank, rank, (ring & 1) as usize));
                }
                self.locks -= u32::from(outgoing.lender.as_ref().is_some_and(Lender::is_locked));
                (*outgoing, *incoming) = (Outgoing::none(), Incoming::none());
            }
        }
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return };
        if matches!(peer.stage, Stage::Failing(_)) {
            self.failing = self.failing.saturating_sub(1);
        }
        (peer.stage, peer.board, peer.pidfd, peer.pipe) = (Stage::Free, None, None, None);
        if let Some(place) = self.endpoints.get_mut(peer.rank as usize) {
            *place = 0;
        }
    }

    /// Notes that a peer is lost; `report` will tell.
    pub(crate) fn fail(&mut self, endpoint: u32, lost: Lost) {
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return };
        match peer.stage {
            Stage::Live => self.failing += 1,
            Stage::Failing(_) => {}
            _ => return,
        }
        peer.stage = Stage::Failing(lost);
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            if let Some(outgoing) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.outgoing) {
                outgoing.bound = 0;
            }
        }
        (self.countdown, self.turns) = (0, 0);
    }

    /// Reports one lost peer: one that misbehaved at once, any other when all that it sent has been read.
    pub(crate) fn report(&mut self) -> Option<Event> {
        for endpoint in 0..self.peers.len() as u32 {
            let Some(peer) = self.peers.get_mut(endpoint as usize) else { continue };
            let Stage::Failing(lost) = peer.stage else { continue };
            let rings = [endpoint * 2, endpoint * 2 + 1];
            let waits =
                |ring: u32| self.rings.get(ring as usize).map(|ring| &ring.incoming).is_some_and(Incoming::waits);
            if lost != Lost::Misbehaved && rings.into_iter().any(waits) {
                continue;
            }
            peer.stage = Stage::Dead;
            let event = Event::Lost(peer.peer, lost);
            self.failing -= 1;
            self.close_lanes(endpoint);
            return Some(event);
        }
        None
    }

    /// Looks which peers closed or, if `processes`, ended.
    pub(crate) fn check_peers(&mut self, processes: bool) {
        for endpoint in 0..self.peers.len() as u32 {
            let Some(peer) = self.peers.get(endpoint as usize).filter(|peer| peer.stage == Stage::Live) else {
                continue;
            };
            if let Some(how) = peer.board.as_ref().and_then(Board::closed) {
                self.lose(endpoint, how);
            } else if processes && self.has_ended(endpoint) {
                // It may have closed between the two looks.
                let closed = self.peers.get(endpoint as usize).and_then(|peer| peer.board.as_ref()?.closed());
                self.lose(endpoint, closed.unwrap_or(Lost::Broken));
            }
        }
    }

    /// Whether a peer's process has ended. Where there was no handle on it before, one is asked for again.
    fn has_ended(&mut self, endpoint: u32) -> bool {
        let Some(process) = self.peers.get(endpoint as usize).map(|peer| peer.process) else { return false };
        if !self.may_watch(&process) {
            return false;
        }
        if self.peers.get(endpoint as usize).is_some_and(|peer| peer.pidfd.is_none()) {
            match self.watch(&process) {
                Ok(Some(pidfd)) => {
                    if let Some(peer) = self.peers.get_mut(endpoint as usize) {
                        peer.pidfd = Some(pidfd);
                    }
                }
                Ok(None) => return process.has_ended(&self.me),
                Err(_) => return true,
            }
        }
        let pidfd = self.peers.get(endpoint as usize).and_then(|peer| peer.pidfd.as_ref());
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        pidfd.is_some_and(|pidfd| {
            let ended = rustix::event::poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&at_once));
            matches!(ended, Ok(count) if count > 0)
        })
    }

    /// A peer is gone; what it announced last is mapped before its loss is noted, so that all of it is read.
    fn lose(&mut self, endpoint: u32, lost: Lost) {
        self.answer();
        self.fail(endpoint, lost);
    }

    /// Whether any peer's process has to be looked after.
    pub(crate) fn watches(&self) -> bool {
        self.failing != 0 || self.peers.iter().any(|peer| peer.stage == Stage::Live && self.may_watch(&peer.process))
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        self.board.close(!std::thread::panicking());
        // Rings that were announced to us and never mapped.
        let (early, board) = (&mut self.early, &self.board);
        crate::doorbell::answer(board.bell(), board.bits(), &mut self.bell_seen, |bit| {
            if let Some(word) = early.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        });
        for bit in 0..bit_words(self.config.ranks) * 64 {
            if self.early.get(bit / 64).is_some_and(|word| word & 1 << (bit % 64) != 0) {
                let _ = std::fs::remove_file(self.names.ring((bit / 2) as u32, self.card.rank, bit % 2));
            }
        }
        for endpoint in 0..self.peers.len() as u32 {
            self.wake(endpoint);
            // Rings of ours that their reader will not come for any more.
            let Some(peer) = self.peers.get(endpoint as usize) else { continue };
            let gone = peer.stage == Stage::Dead || peer.board.as_ref().and_then(Board::closed).is_some();
            for lane in 0..2 {
                if gone
                    && self
                        .rings
                        .get(endpoint as usize * 2 + lane)
                        .map(|ring| &ring.outgoing)
                        .is_some_and(Outgoing::exists)
                {
                    let _ = std::fs::remove_file(self.names.ring(self.card.rank, peer.rank, lane));
                }
            }
        }
        let _ = std::fs::remove_file(self.names.board(self.card.rank));
        if self.pipe.is_some() {
            let _ = std::fs::remove_file(self.names.pipe(self.card.rank));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
    use towline_core::rail::Rail as _;
    use towline_core::time::Instant;

    use super::*;
    use crate::Config;

    /// This program again, in a role.
    fn process(role: &str, job: u64) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "peers::tests::as_process", "--nocapture", "--ignored"]);
        command.env("ROLE", role).env("JOB", job.to_string()).stdin(Stdio::null());
        command.stdout(if role == "victim" { Stdio::piped() } else { Stdio::inherit() }).spawn().unwrap()
    }

    #[test]
    #[ignore = "started by the other tests as their processes"]
    fn as_process() {
        let Ok(role) = std::env::var("ROLE") else { return };
        let job = std::env::var("JOB").unwrap().parse().unwrap();
        match role.as_str() {
            "victim" => {
                let rail = Rail::open(Config::new(job, 1, 2)).unwrap();
                let card: String = rail.card().iter().map(|byte| format!("{byte:02x}")).collect();
                println!("\n@ {card}");
                loop {
                    std::thread::park();
                }
            }
            "watcher" => watcher(job),
            other => panic!("no role {other}"),
        }
    }

    /// Starts the victim; its card.
    fn victim(job: u64) -> (Child, Vec<u8>) {
        let mut child = process("victim", job);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let digits = lines.into_iter().find_map(|line| line.strip_prefix("@ ").map(str::to_owned)).unwrap();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (child, (0..digits.len()).step_by(2).map(byte).collect())
    }

    fn exhaust() -> Rlimit {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        assert!(std::fs::File::open("/dev/null").is_err());
        before
    }

    /// Polls for so many looks at processes; what was lost.
    fn poll(rail: &mut Rail, now: &mut Instant, looks: u32) -> Option<Event> {
        (0..looks).find_map(|_| {
            *now = *now + towline_core::time::Duration::from_millis(1000);
            (rail.countdown, rail.turns) = (0, 0); // the next poll looks at processes
            rail.poll(*now)
        })
    }

    fn watcher(job: u64) {
        let mut rail = Rail::open(Config::new(job, 0, 2)).unwrap();
        let mut now = Instant::ZERO;
        let (mut child, card) = victim(job);
        let to = rail.add_peer(Peer(1), &card).unwrap();
        assert!(rail.peers[to.0 as usize].pidfd.take().is_some());
        let before = exhaust();
        let process = rail.peers[to.0 as usize].process;
        assert_eq!((process.lives(&rail.me), process.has_ended(&rail.me)), (None, false));
        assert!(rail.poll_at().is_some() && poll(&mut rail, &mut now, 10).is_none());
        assert!(rail.peers[to.0 as usize].pidfd.is_none());
        // As soon as there are descriptors again, it has a handle.
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(poll(&mut rail, &mut now, 10).is_none());
        assert!(rail.peers[to.0 as usize].pidfd.take().is_some());
        let before = exhaust();
        kill_process(rustix::process::Pid::from_child(&child), Signal::KILL).unwrap();
        // Nobody has reaped it, so that its number is taken still.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(300);
        let lost = loop {
            match poll(&mut rail, &mut now, 1) {
                None => assert!(std::time::Instant::now() < until, "its death goes unnoticed"),
                Some(event) => break event,
            }
        };
        assert!(matches!(lost, Event::Lost(Peer(1), Lost::Broken)), "{lost:?}");
        setrlimit(Resource::Nofile, before).unwrap();
        child.wait().unwrap();
        exhaust();
        assert!(process.has_ended(&rail.me));
        assert!(!rail.me.has_ended(&rail.me));
    }

    #[test]
    fn p1_b10_without_descriptors_the_death_of_a_process_is_noticed_all_the_same() {
        let job = 0x0DE5_0000_0000 | u64::from(std::process::id());
        let watched = process("watcher", job).wait().unwrap();
        crate::host::sweep(std::path::Path::new("/dev/shm"), &Process::me());
        assert!(watched.success());
    }
}
