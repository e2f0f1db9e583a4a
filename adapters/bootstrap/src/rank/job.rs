//! A rank's membership in a job: publishing, exchanging, fences, and the end.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use towline_core::modex::{Change, Component, RecvError, SendError, Set, SetWriter, Stamp, Watch, entry_size};

use super::connect::{self, Connection, Joined, word};
use super::own_server::OwnServer;
use super::publication::{Name, Published};
use super::questions::Questions;
use crate::error::Error;
use crate::protocol::channel::{DIED, Kind, PAYLOAD_MAX, WHOLE_RANK, reached};
use crate::{Environment, JobKey};

/// Time in which [`Job::from_env`] must join.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
/// Time for which [`Job::finish`] and [`Job::abort`] wait for the launcher's answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a text that are sent to the launcher.
const TEXT_MAX: usize = 4096;

/// A process's membership in a job: its rank, and the publications of its peers.
///
/// A rank that has joined must call [`finish`](Self::finish) before it exits. `towline run` treats an exit without
/// `finish` as a failure, since other ranks may wait for this one. The crate's documentation has an example. A job is
/// not thread-safe: calls need `&mut self`, and callers must serialize them.
pub struct Job {
    pub(super) environment: Environment,
    /// The server, if this rank runs it.
    own_server: Option<OwnServer>,
    /// `None` in a job of size 1 without a launcher, and after `finish`.
    pub(super) connection: Option<Connection>,
    incarnation: u32,
    own: Vec<Published>,
    /// Stamp of this rank's publications: 1 before the first one, then one more with each.
    revision: u32,
    /// The revision that was sent to the server; 0 before the first exchange.
    sent: u32,
    /// The latest publications of each rank, already checked.
    pub(super) sets: Vec<Option<Vec<u8>>>,
    pub(super) known: u32,
    /// Ranks that have ended, with the last fence that each reached.
    pub(super) ended: BTreeMap<u32, u32>,
    fence_entered: u32,
    fence_open: u32,
    pub(super) watches: Vec<(Name, u32)>,
    pub(super) changes: VecDeque<Change>,
    /// Ranks that were restarted and have published again, with their new incarnation; not yet returned by
    /// `next_restart`.
    restarts: VecDeque<(u32, u32)>,
    ends: Ends,
    pub(super) questions: Questions,
    /// The server has acknowledged a finish or an abort.
    acknowledged: bool,
    pub(super) finished: bool,
}

/// The end of a rank or of a part of a rank, from [`Job::next_end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The rank that has ended, or to which the part belongs.
    pub rank: u32,
    /// The part, or `None` for the whole rank.
    pub part: Option<u32>,
    /// The rank's incarnation when this rank heard of the end: see [`Job::incarnation_of`]. 0 if nothing was known of
    /// it.
    pub incarnation: u32,
    /// The rank or part failed instead of ending normally.
    pub died: bool,
    /// The rank or part has [left](Job::leave) early, after all of its messages had been sent.
    pub left: bool,
}

/// The ends of other ranks that the server has reported.
#[derive(Default)]
struct Ends {
    /// Reported by the server and not yet returned to the caller.
    heard: VecDeque<End>,
    /// The number from which the next question asks.
    next: u32,
    /// A question was sent and has not been answered.
    asked: bool,
}

impl Job {
    /// Joins the job that this process's environment describes. Gives up after 30 seconds.
    ///
    /// # Errors
    /// [`Error::Environment`] if a variable is missing or malformed, otherwise as [`join`](Self::join).
    pub fn from_env() -> Result<Self, Error> {
        Self::join(Environment::read()?, Instant::now() + JOIN_LIMIT)
    }

    /// Joins the job that `environment` describes. If the server does not listen yet, the rank tries again until
    /// `deadline`.
    ///
    /// # Errors
    /// [`Error::Connect`] if no server was reached, [`Error::Refused`] if the server or this side found that they
    /// belong to different jobs, [`Error::Timeout`] if the server does not answer.
    pub fn join(environment: Environment, deadline: Instant) -> Result<Self, Error> {
        let mut job = Self::new(environment);
        if !job.environment.root.is_empty() {
            if let Some(listen) = job.environment.listen.filter(|_| job.environment.rank == 0) {
                let host = OwnServer::start(&job.environment, listen);
                let at = |source| Error::Connect { address: format!("{listen} (TOWLINE_LISTEN)"), source };
                job.own_server = Some(host.map_err(at)?);
            }
            let joined = connect::join(&job.environment, deadline)?;
            job.set_connection(joined);
        }
        Ok(job)
    }

    /// A job without a connection that knows nothing of its peers yet.
    pub(crate) fn new(environment: Environment) -> Self {
        let size = environment.size as usize;
        Self {
            own_server: None,
            connection: None,
            incarnation: 1,
            own: Vec::new(),
            revision: 1,
            sent: 0,
            sets: vec![None; size],
            known: 0,
            ended: BTreeMap::new(),
            fence_entered: 0,
            fence_open: 0,
            watches: Vec::new(),
            changes: VecDeque::new(),
            restarts: VecDeque::new(),
            ends: Ends::default(),
            questions: Questions::default(),
            acknowledged: false,
            finished: false,
            environment,
        }
    }

    pub(crate) fn set_connection(&mut self, joined: Joined) {
        (self.incarnation, self.fence_entered) = (joined.incarnation, joined.fence);
        self.fence_open = self.fence_entered;
        self.connection = Some(joined.connection);
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> u32 {
        self.environment.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.environment.size
    }

    /// How often this rank has joined the job: 1 for its first process, more if the launcher has restarted it.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The incarnation of the process from which this rank has the publications of `rank`, or `None` before they have
    /// arrived. It rises when `rank` was restarted and has published again.
    pub fn incarnation_of(&self, rank: u32) -> Option<u32> {
        if rank == self.rank() {
            return Some(self.incarnation);
        }
        let set = self.sets.get(rank as usize)?.as_deref()?;
        Set::parse(set).ok().map(|set| set.stamp().incarnation)
    }

    /// Whether the launcher has reported that `rank` takes no further part in the job. The launcher reports an end
    /// unasked only to ranks that wait for the ended rank, so `false` is no proof that the rank runs.
    pub fn has_ended(&self, rank: u32) -> bool {
        self.ended.contains_key(&rank)
    }

    /// How many fences this rank has reached, in all its incarnations.
    pub fn fences(&self) -> u32 {
        self.fence_entered
    }

    /// The job's number. It is the same in all ranks, and differs between jobs.
    pub fn job_id(&self) -> u64 {
        self.environment.job
    }

    /// The job key, with which transports prove to peers that they belong to the job.
    pub fn key(&self) -> &JobKey {
        &self.environment.key
    }

    /// The transports to use, in order of preference. Empty means all.
    pub fn transports(&self) -> &[String] {
        &self.environment.transports
    }

    /// Number of links to each peer, if the launcher set it. It holds for transports that support several.
    pub fn links(&self) -> Option<u32> {
        self.environment.links
    }

    /// This host's name within the job.
    pub fn host(&self) -> &str {
        &self.environment.host
    }

    /// The ranks on this host, including this one, in rising order, if they are known.
    pub fn local_ranks(&self) -> Option<&[u32]> {
        self.environment.local.as_deref()
    }

    /// Publishes `data` (copied) for the corresponding component of every rank. Peers have it after
    /// [`exchange`](Self::exchange). A publication after the exchange is sent at once, and the peers that watch it get
    /// a change.
    ///
    /// # Errors
    /// [`Error::Publish`] if the component or its data are not acceptable, [`Error::Lost`] if the launcher has ended.
    pub fn publish(&mut self, component: &Component<'_>, data: &[u8]) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if !component.is_valid() {
            return Err(Error::Publish(SendError::BadComponent));
        }
        let others = self.own.iter().filter(|own| !own.name.component().corresponds(component));
        let needed = others.clone().fold(Set::HEADER + entry_size(component, data.len()), |sum, own| {
            sum + entry_size(&own.name.component(), own.data.len())
        });
        if needed > PAYLOAD_MAX {
            return Err(Error::Publish(SendError::TooLong { needed, room: PAYLOAD_MAX }));
        }
        if others.count() >= Set::ENTRIES_MAX as usize {
            return Err(Error::Publish(SendError::TooManyComponents));
        }
        self.own.retain(|own| !own.name.component().corresponds(component));
        self.revision += 1;
        self.own.push(Published { name: Name::new(component), revision: self.revision, data: data.to_vec() });
        self.store_set(self.rank(), self.encode_own_set());
        if self.sent != 0 {
            self.send_set();
            self.progress("publication")?;
        }
        Ok(())
    }

    /// The latest data that the corresponding component of `peer` has published.
    ///
    /// # Errors
    /// [`RecvError::NotYet`] before the peer's publications have arrived, [`RecvError::NotFound`] if the peer has
    /// published nothing for this component.
    pub fn card(&self, component: &Component<'_>, peer: u32) -> Result<&[u8], RecvError> {
        if self.finished {
            return Err(RecvError::Closed);
        }
        let set = self.sets.get(peer as usize).ok_or(RecvError::NoSuchPeer)?;
        let Some(set) = set else {
            return Err(if peer == self.rank() { RecvError::NotFound } else { RecvError::NotYet });
        };
        let entry = Set::parse(set).ok().and_then(|set| set.find(component));
        entry.map(|entry| entry.data).ok_or(RecvError::NotFound)
    }

    /// Sends this rank's publications, and waits until the publications of all ranks have arrived. That is when all
    /// ranks have called `exchange` for the first time. Each further call sends new publications and returns
    /// immediately.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the ranks that are missing, [`Error::PeerGone`] as soon as one of them has ended,
    /// [`Error::Lost`] if the launcher has ended.
    pub fn exchange(&mut self, deadline: Instant) -> Result<(), Error> {
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

    /// Waits until all ranks have reached their next fence.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange). After a timeout the next call waits for the same fence again.
    pub fn fence(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "fence";
        if self.finished {
            return Err(Error::Finished);
        }
        let started = Instant::now();
        let Some(connection) = &mut self.connection else { return Ok(()) };
        if self.fence_entered == self.fence_open {
            self.fence_entered = self.fence_entered.wrapping_add(1);
            connection.channel.send(Kind::Fence, &self.fence_entered.to_le_bytes());
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

    /// Asks the launcher to end all ranks with exit status `code`, and to show `message` (at most 4096 bytes of it).
    /// Returns when the launcher has acknowledged. The caller should then exit. Without a launcher the call does
    /// nothing.
    ///
    /// # Errors
    /// As [`join`](Self::join), if the message did not reach the launcher. The caller should then exit with a failure.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        let message = &message.as_bytes()[..message.len().min(TEXT_MAX)];
        let payload = [&code.to_le_bytes(), message].concat();
        self.request(Kind::Abort, &payload, "abort")
    }

    /// Has the launcher print a warning about this rank (at most 4096 bytes of it). It prints the first warning of a job only,
    /// since many ranks may have the same reason to warn. Does not wait. Without a launcher the warning goes to standard error.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher cannot be reached.
    pub fn warn(&mut self, text: &str) -> Result<(), Error> {
        let text = &text[..text.floor_char_boundary(4096)];
        let Some(connection) = self.connection.as_mut() else {
            eprintln!("towline: warning: {text}");
            return Ok(());
        };
        connection.channel.send(Kind::Warning, text.as_bytes());
        self.progress("message to the launcher")
    }

    /// Tells the launcher that this rank takes no further part in the job, and disconnects. Does not wait for other
    /// ranks, unless this rank runs the job's server itself. A second call does nothing.
    ///
    /// # Errors
    /// [`Error::Lost`] or [`Error::Timeout`] if the message did not reach the launcher.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        let said = self.end();
        self.own_server.take().into_iter().for_each(OwnServer::wait_until_unused);
        said
    }

    /// Tells the launcher that this rank is done, and disconnects.
    fn end(&mut self) -> Result<(), Error> {
        let said = self.request(Kind::Finish, &[], "finish");
        self.finished = true;
        self.connection = None;
        self.changes.clear();
        self.watches.clear();
        said
    }

    /// Handles messages that have arrived, without waiting. After that,
    /// [`next_change`](towline_core::modex::Modex::next_change) returns the changes.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended, [`Error::Protocol`] if it broke the protocol.
    pub fn poll(&mut self) -> Result<(), Error> {
        self.progress("poll")
    }

    /// Tells the launcher that a part of this rank has ended, for example one of several threads that peers address.
    /// `died` says that it failed instead of ending normally. Peers learn of it when they
    /// [ask](Self::ask_for_ends). Does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn part_ended(&mut self, part: u32, died: bool) -> Result<(), Error> {
        self.send_number(Kind::PartEnded, if died { part | DIED } else { part })
    }

    /// Leaves the job early: as [`finish`](Self::finish), but all other ranks learn of it at once, by
    /// [`next_end`](Self::next_end) and without asking. To be called when all messages of the rank have been sent. Waits
    /// for no other rank. If this rank runs the job's server itself, the server goes on, and dropping this job waits
    /// until the other ranks have disconnected.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn leave(&mut self) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        let told = self.announce_leave(None, false, true);
        told.and(self.end())
    }

    /// Tells all other ranks that this rank, or a part of it, leaves early, because its program has failed or not. They
    /// learn of it by [`next_end`](Self::next_end), without asking. [`leave`](Self::leave), [`part_ended`](Self::part_ended)
    /// or the end of the process follows. `sent`: all of its messages have been sent. Does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn announce_leave(&mut self, part: Option<u32>, failed: bool, sent: bool) -> Result<(), Error> {
        let kind = if sent { Kind::Left } else { Kind::Leaving };
        self.send_number(kind, part.unwrap_or(WHOLE_RANK) | if failed { DIED } else { 0 })
    }

    /// Tells the launcher that an operation of this rank has failed because `peer` was lost or had finished. If this rank
    /// fails later, the launcher looks for the cause at that rank. Does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn lost_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.send_number(Kind::LostPeer, peer)
    }

    /// Tells the launcher that the program of this rank fails, and why: it returned an error, or panicked. At most 4096
    /// bytes of the text are sent. The process should then end with a status other than 0. Does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn failing(&mut self, panic: bool, text: &str) -> Result<(), Error> {
        let text = &text.as_bytes()[..text.len().min(TEXT_MAX)];
        self.send_payload(Kind::Failing, &[&u32::from(panic).to_le_bytes(), text].concat())
    }

    /// Asks the launcher which ranks and parts of ranks have ended since the last question, normally or not. Does
    /// not wait: [`next_end`](Self::next_end) returns the answers.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn ask_for_ends(&mut self) -> Result<(), Error> {
        if self.ends.asked {
            return self.progress("check for ended ranks");
        }
        self.ends.asked = self.connection.is_some();
        self.send_number(Kind::Ends, self.ends.next)
    }

    /// Handles messages that have arrived, without waiting, and returns the next end that it has not returned before.
    pub fn next_end(&mut self) -> Option<End> {
        // The operations that need the launcher report that it is lost.
        let _ = self.progress("check for ended ranks");
        self.ends.heard.pop_front()
    }

    /// Handles messages that have arrived, without waiting. Returns the next rank that was restarted and has published
    /// again, with its new incarnation. The rank's earlier publications are removed by then.
    pub fn next_restart(&mut self) -> Option<(u32, u32)> {
        // The operations that need the launcher report that it is lost.
        let _ = self.progress("check for restarted ranks");
        self.restarts.pop_front()
    }

    fn send_number(&mut self, kind: Kind, number: u32) -> Result<(), Error> {
        self.send_payload(kind, &number.to_le_bytes())
    }

    pub(super) fn send_payload(&mut self, kind: Kind, payload: &[u8]) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if let Some(connection) = &mut self.connection {
            connection.channel.send(kind, payload);
        }
        self.progress("message to the launcher")
    }

    fn request(&mut self, kind: Kind, payload: &[u8], step: &'static str) -> Result<(), Error> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
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

    pub(super) fn has_set(&self, rank: u32) -> bool {
        rank == self.rank() || self.sets.get(rank as usize).is_some_and(Option::is_some)
    }

    fn missing_sets(&self) -> Vec<u32> {
        (0..self.size()).filter(|rank| !self.has_set(*rank)).collect()
    }

    pub(super) fn has_all_sets(&self) -> bool {
        let own = u32::from(self.sets.get(self.rank() as usize).is_some_and(Option::is_none));
        self.known + own == self.size()
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

    fn send_set(&mut self) {
        let set = self.encode_own_set();
        self.sent = self.revision;
        if let Some(connection) = &mut self.connection {
            connection.channel.send(Kind::Set, &set);
        }
    }

    pub(super) fn encode_own_set(&self) -> Vec<u8> {
        let entries = self.own.iter().map(|own| entry_size(&own.name.component(), own.data.len()));
        let mut bytes = vec![0; Set::HEADER + entries.sum::<usize>()];
        let stamp = Stamp { incarnation: self.incarnation, revision: self.revision };
        let Some(mut writer) = SetWriter::new(&mut bytes, self.rank(), stamp) else { return Vec::new() };
        for own in &self.own {
            // Cannot fail: the buffer was sized for exactly these entries.
            let _ = writer.entry(&own.name.component(), own.revision, &own.data);
        }
        let length = writer.finish();
        bytes.truncate(length);
        bytes
    }

    /// Replaces the stored set of a rank by a newer, checked one, and records the changes that callers watch.
    pub(super) fn store_set(&mut self, rank: u32, bytes: Vec<u8>) {
        let Some(place) = self.sets.get_mut(rank as usize) else { return };
        let old = place.replace(bytes);
        self.known += u32::from(old.is_none());
        let old = old.as_deref().and_then(|set| Set::parse(set).ok());
        let Some(new) = place.as_deref().and_then(|set| Set::parse(set).ok()) else { return };
        for (index, (name, peer)) in (0..).zip(&self.watches) {
            let component = name.component();
            let mark = |set: Option<Set<'_>>| {
                set.and_then(|set| Some((set.stamp().incarnation, set.find(&component)?.revision)))
            };
            let change = Change { watch: Watch::from_bits(index), peer: rank };
            if *peer == rank && mark(old) != mark(Some(new)) && !self.changes.contains(&change) {
                self.changes.push_back(change);
            }
        }
    }

    /// Writes and reads as much as possible without waiting.
    pub(super) fn progress(&mut self, step: &'static str) -> Result<(), Error> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
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
            let Some(connection) = &mut self.connection else { return Ok(()) };
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
        self.connection.as_mut().map_or(Ok(None), |connection| connection.channel.next().map_err(Error::protocol))
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
        let Some(connection) = &self.connection else { return Err(timeout(self)) };
        let write = !connection.channel.output().is_empty();
        if Instant::now() < deadline && connection.stream.wait(write, deadline).map_err(Error::System)? {
            return Ok(());
        }
        Err(timeout(self))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // After `leave`, other ranks may still use the server.
        if self.finished {
            self.own_server.take().into_iter().for_each(OwnServer::wait_until_unused);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

/// Names the first eight of some ranks, for an error message.
fn list(ranks: &[u32]) -> String {
    let first: Vec<_> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(first.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, first.join(", "))
}
