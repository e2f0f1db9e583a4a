//! A rank's side of the connection to its server.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use towline_core::modex::Set;

use super::carrier::Carrier;
use super::connect::{Joined, word};
use super::job::{End, Job};
use crate::error::Error;
use crate::protocol::channel::{DIED, Kind, WHOLE_RANK, reached};

/// Time for which [`Job::finish`] and [`Job::abort`] wait for the launcher's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

impl Job {
    pub(crate) fn set_connection(&mut self, joined: Joined) {
        (self.incarnation, self.fence_entered) = (joined.incarnation, joined.fence);
        self.fence_open = self.fence_entered;
        self.carrier = Carrier::Server(joined.connection);
    }

    /// [`exchange`](Self::exchange), where a server carries the publications.
    pub(super) fn exchange_by_server(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "module exchange";
        let started = Instant::now();
        loop {
            self.progress_exchange(step)?;
            self.report_start(|job| format!("{step}: no publications arrived from {}", list(&job.missing_sets())))?;
            if self.has_all_sets() {
                return Ok(());
            }
            if let Some(rank) = self.ended.keys().copied().find(|rank| !self.has_set(*rank)) {
                let _ = self.lost_peer(rank); // the result says the same to the caller
                return Err(Error::PeerGone { rank, step });
            }
            self.wait(deadline, |job| {
                let waited = started.elapsed();
                let missing = list(&job.missing_sets());
                Error::Timeout { step: format!("{step}: no publications arrived from {missing}"), waited }
            })?;
        }
    }

    /// [`fence`](Self::fence), where a server opens it.
    pub(super) fn fence_by_server(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "fence";
        let started = Instant::now();
        if self.fence_entered == self.fence_open {
            let entered = self.fence_entered.wrapping_add(1);
            let Some(connection) = self.carrier.server() else { return Ok(()) };
            connection.channel.send(Kind::Fence, &entered.to_le_bytes());
            self.fence_entered = entered;
        }
        loop {
            self.progress(step)?;
            self.report_start(|_| format!("{step}: not all ranks have reached it"))?;
            if self.fence_open == self.fence_entered {
                return Ok(());
            }
            if let Some((rank, _)) = self.ended.iter().find(|(_, fence)| !reached(**fence, self.fence_entered)) {
                let rank = *rank;
                let _ = self.lost_peer(rank); // the result says the same to the caller
                return Err(Error::PeerGone { rank, step });
            }
            self.wait(deadline, |_| Error::Timeout {
                step: format!("{step}: not all ranks have reached it"),
                waited: started.elapsed(),
            })?;
        }
    }

    pub(super) fn send_number(&mut self, kind: Kind, number: u32) -> Result<(), Error> {
        self.send_payload(kind, &number.to_le_bytes())
    }

    pub(super) fn send_payload(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if let Some(connection) = self.carrier.server() {
            connection.channel.send(kind, payload);
        }
        self.progress("message to the launcher")
    }

    pub(super) fn request(&mut self, kind: Kind, payload: &[u8], step: &'static str) -> Result<(), Error> {
        let Some(connection) = self.carrier.server() else { return Ok(()) };
        let started = Instant::now();
        connection.channel.send(kind, payload);
        self.acknowledged = false;
        loop {
            self.progress(step)?;
            if self.acknowledged {
                return Ok(());
            }
            self.wait(started + ANSWER_LIMIT, |_| Error::Timeout {
                step: format!("{step}: the launcher did not answer"),
                waited: started.elapsed(),
            })?;
        }
    }

    /// Sends new publications, and handles messages that have arrived.
    pub(super) fn progress_exchange(&mut self, step: &'static str) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if self.sent != self.revision {
            self.send_set();
        }
        self.progress(step)
    }

    pub(super) fn send_set(&mut self) {
        let set = self.encode_own_set();
        self.sent = self.revision;
        if let Some(connection) = self.carrier.server() {
            connection.channel.send(Kind::Set, &set);
        }
    }

    /// Writes and reads as much as possible without waiting.
    pub(super) fn progress(&mut self, step: &'static str) -> Result<(), Error> {
        self.hear_of_ends();
        let Some(connection) = self.carrier.server() else { return Ok(()) };
        let lost = |source| Error::Lost { step, source };
        while !connection.channel.output().is_empty() {
            match connection.stream.write(connection.channel.output()) {
                Ok(count) => connection.channel.wrote(count),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(lost(why)),
            }
        }
        loop {
            // This is done before the first read, too, since frames may have arrived together with the welcome.
            while let Some((kind, payload)) = self.next_frame()? {
                self.handle_frame(kind, payload)?;
            }
            let Some(connection) = self.carrier.server() else { return Ok(()) };
            match connection.stream.read(&mut connection.buffer) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => connection.channel.feed(&connection.buffer[..count]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(lost(why)),
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        self.carrier.server().map_or(Ok(None), |connection| connection.channel.next().map_err(Error::protocol))
    }

    fn handle_frame(&mut self, kind: Kind, payload: Vec<u8>) -> Result<(), Error> {
        match kind {
            Kind::Set => {
                let mut sets = &payload[..];
                while !sets.is_empty() {
                    // The header of each set holds its length.
                    let length = word(sets, 20)? as usize;
                    let whole = sets.split_at_checked(length).filter(|_| length != 0);
                    let (set, rest) = whole.ok_or_else(|| Error::protocol("a set of publications is cut short"))?;
                    self.accept_set(set)?;
                    sets = rest;
                }
            }
            Kind::Fence => self.fence_open = word(&payload, 0)?,
            Kind::Ended => drop(self.ended.insert(word(&payload, 0)?, word(&payload, 4)?)),
            Kind::Finish | Kind::Abort => self.acknowledged = true,
            Kind::Ends => self.take_ends(&payload)?,
            Kind::Report => self.questions.asked = self.questions.asked.max(word(&payload, 0)?),
            Kind::Left | Kind::Leaving => {
                let (rank, part) = (word(&payload, 0)?, word(&payload, 4)?);
                self.hear_of_end(rank, part, kind == Kind::Left)?;
            }
            Kind::Welcome
            | Kind::Refuse
            | Kind::PartEnded
            | Kind::Warning
            | Kind::LostPeer
            | Kind::Failing
            | Kind::Unmatched => {
                return Err(Error::protocol(format!("a frame of kind {kind:?} at the wrong time")));
            }
        }
        Ok(())
    }

    fn take_ends(&mut self, payload: &[u8]) -> Result<(), Error> {
        (self.ends.next, self.ends.asked) = (word(payload, 0)?, false);
        for at in (4..payload.len()).step_by(8) {
            let (rank, word) = (word(payload, at)?, word(payload, at + 4)?);
            self.hear_of_end(rank, word, false)?;
        }
        Ok(())
    }

    /// Records the end of a rank or part.
    fn hear_of_end(&mut self, rank: u32, word: u32, left: bool) -> Result<(), Error> {
        let (part, died) = (word & !DIED, word & DIED != 0);
        if rank >= self.size() {
            return Err(Error::protocol(format!("the end of rank {rank}, which does not exist in this job")));
        }
        let incarnation = self.incarnation_of(rank).unwrap_or(0);
        let part = (part != WHOLE_RANK).then_some(part);
        self.ends.heard.push_back(End { rank, part, incarnation, died, left });
        Ok(())
    }

    /// Stores a set from the server, unless it is older than the stored one or is this rank's own.
    fn accept_set(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let set = Set::parse(bytes).map_err(Error::set)?;
        let (rank, stamp) = (set.rank(), set.stamp());
        if rank >= self.size() {
            return Err(Error::protocol(format!("publications of rank {rank}, which does not exist in this job")));
        }
        let old = self.sets[rank as usize].as_deref().and_then(|set| Set::parse(set).ok());
        let old = old.map(|old| old.stamp());
        if rank != self.rank() && old.is_none_or(|old| old < stamp) {
            self.ended.remove(&rank);
            if old.is_some_and(|old| old.incarnation < stamp.incarnation) {
                self.restarts.push_back((rank, stamp.incarnation));
            }
            self.store_set(rank, bytes.to_vec());
        }
        Ok(())
    }

    /// Waits until something arrives or can be written. Fails with `timeout` at the deadline.
    fn wait(&self, deadline: Instant, timeout: impl Fn(&Self) -> Error) -> Result<(), Error> {
        let Carrier::Server(connection) = &self.carrier else { return Err(timeout(self)) };
        let write = !connection.channel.output().is_empty();
        if Instant::now() < deadline && connection.stream.wait(write, deadline).map_err(Error::System)? {
            return Ok(());
        }
        Err(timeout(self))
    }
}

/// Names the first eight of some ranks, for an error message.
fn list(ranks: &[u32]) -> String {
    let first: Vec<_> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(first.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, first.join(", "))
}
