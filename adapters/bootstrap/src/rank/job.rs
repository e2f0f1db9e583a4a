//! A rank's side of the bootstrap.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use towline_core::modex::{Change, Component, Edition, RecvError, SendError, Set, SetWriter, Watch, entry_size};

use super::connect::{self, Joined, Link, word};
use super::own_server::Host;
use super::publication::{Name, Published};
use crate::error::Error;
use crate::protocol::channel::{DIED, Kind, PAYLOAD_MAX, WHOLE, reached};
use crate::{Environment, Key};

/// How long [`Job::from_env`] tries to join.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
/// How long [`Job::finish`] and [`Job::abort`] wait for the launcher's word.
const WORD_LIMIT: Duration = Duration::from_secs(10);

/// This process's place in a job: who it is, and what its peers publish.
///
/// A rank that joined says [`finish`](Self::finish) before it exits; `towline run` takes an exit without it for a
/// failure, since others may wait. The crate's page has an example. Not for simultaneous callers.
pub struct Job {
    pub(super) environment: Environment,
    /// The server, where this rank runs it.
    host: Option<Host>,
    /// None in a job of size 1 without a launcher.
    pub(super) link: Option<Link>,
    incarnation: u32,
    own: Vec<Published>,
    /// Counts the own publications, from 1 for none.
    revision: u32,
    /// The revision that the server has; 0 before the first exchange.
    sent: u32,
    /// What each rank published last, checked.
    sets: Vec<Option<Vec<u8>>>,
    pub(super) known: u32,
    /// Ranks that ended, with the last fence that each came to.
    pub(super) gone: BTreeMap<u32, u32>,
    fence_entered: u32,
    fence_open: u32,
    pub(super) watches: Vec<(Name, u32)>,
    pub(super) changes: VecDeque<Change>,
    /// Ranks whose publications were replaced by those of their next incarnation, and which that is.
    returns: VecDeque<(u32, u32)>,
    ends: Ends,
    /// The server's word to a finish or an abort came.
    acknowledged: bool,
    pub(super) finished: bool,
}

/// An end that a rank heard of: [`Job::next_end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The rank that has ended, or of which a part has.
    pub rank: u32,
    /// The part; none for the whole rank.
    pub part: Option<u32>,
    /// Which of the rank's incarnations, as far as this rank knew them then: see [`Job::incarnation_of`].
    pub incarnation: u32,
    /// It did not come to its end in good order.
    pub died: bool,
}

/// What a rank has heard of the ends of others.
#[derive(Default)]
struct Ends {
    /// Heard and not yet told.
    heard: VecDeque<End>,
    /// The number to ask from.
    next: u32,
    /// The answer to a question is on its way.
    asked: bool,
}

impl Job {
    /// Joins the job that this process's environment describes, within 30 seconds.
    ///
    /// # Errors
    /// [`Error::Environment`] where a variable is missing or malformed, else what keeps it from joining.
    pub fn from_env() -> Result<Self, Error> {
        Self::join(Environment::read()?, Instant::now() + JOIN_LIMIT)
    }

    /// Joins the job of a given environment. A server that does not listen yet is tried again until `deadline`.
    ///
    /// # Errors
    /// [`Error::Connect`] where none was reached, [`Error::Refused`] where the server or this side found that they do
    /// not belong together, [`Error::Timeout`] for a server that does not answer.
    pub fn join(environment: Environment, deadline: Instant) -> Result<Self, Error> {
        let mut job = Self::new(environment);
        if !job.environment.root.is_empty() {
            if let Some(listen) = job.environment.listen.filter(|_| job.environment.rank == 0) {
                let host = Host::start(&job.environment, listen);
                let at = |source| Error::Connect { address: format!("{listen} (TOWLINE_LISTEN)"), source };
                job.host = Some(host.map_err(at)?);
            }
            let joined = connect::join(&job.environment, deadline)?;
            job.enter(joined);
        }
        Ok(job)
    }

    /// A job that knows of no peer yet, and has no link.
    pub(crate) fn new(environment: Environment) -> Self {
        let size = environment.size as usize;
        Self {
            host: None,
            link: None,
            incarnation: 1,
            own: Vec::new(),
            revision: 1,
            sent: 0,
            sets: vec![None; size],
            known: 0,
            gone: BTreeMap::new(),
            fence_entered: 0,
            fence_open: 0,
            watches: Vec::new(),
            changes: VecDeque::new(),
            returns: VecDeque::new(),
            ends: Ends::default(),
            acknowledged: false,
            finished: false,
            environment,
        }
    }

    pub(crate) fn enter(&mut self, joined: Joined) {
        (self.incarnation, self.fence_entered) = (joined.incarnation, joined.fence);
        self.fence_open = self.fence_entered;
        self.link = Some(joined.link);
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> u32 {
        self.environment.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.environment.size
    }

    /// How many times this rank has joined the job: 1, or more where it was started again after its process had ended.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The incarnation of the process whose publications stand for a rank now; none before they came. It rises when the rank
    /// was started again and has published anew.
    pub fn incarnation_of(&self, rank: u32) -> Option<u32> {
        if rank == self.rank() {
            return Some(self.incarnation);
        }
        let set = self.sets.get(rank as usize)?.as_deref()?;
        Set::parse(set).ok().map(|set| set.edition().incarnation)
    }

    /// Whether the launcher said that a rank will take part in nothing further. It need not say so unasked.
    pub fn is_gone(&self, rank: u32) -> bool {
        self.gone.contains_key(&rank)
    }

    /// How many fences this rank has come to, in all its incarnations.
    pub fn fences(&self) -> u32 {
        self.fence_entered
    }

    /// The job's number, the same in all ranks, and different from those of other jobs.
    pub fn job_id(&self) -> u64 {
        self.environment.job
    }

    /// The job's secret, with which transports prove to peers that they belong to it.
    pub fn key(&self) -> &Key {
        &self.environment.key
    }

    /// The transports to use, in order of preference; empty for all.
    pub fn transports(&self) -> &[String] {
        &self.environment.transports
    }

    /// Links per peer of transports that can have several, where given.
    pub fn links(&self) -> Option<u32> {
        self.environment.links
    }

    /// This host's name within the job.
    pub fn host(&self) -> &str {
        &self.environment.host
    }

    /// Ranks on this host with this one among them, in rising order, where known.
    pub fn local_ranks(&self) -> Option<&[u32]> {
        self.environment.local.as_deref()
    }

    /// Publishes `data` for the corresponding component of every rank; it is copied. Peers have it after
    /// [`exchange`](Self::exchange). What is published after that goes out at once, and makes a change for those who
    /// watch.
    ///
    /// # Errors
    /// [`Error::Publish`] where it cannot be published, [`Error::Lost`] where the launcher is gone.
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
        self.take_set(self.rank(), self.own_set());
        if self.sent != 0 {
            self.send_set();
            self.pump("publication")?;
        }
        Ok(())
    }

    /// What the corresponding component of `peer` published last.
    ///
    /// # Errors
    /// [`RecvError::NotYet`] before the peer's publications are here, [`RecvError::NotFound`] where none is meant for
    /// this component.
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

    /// Makes the own publications known, and waits until those of all ranks are here: all ranks have come to their
    /// first exchange. Once done, a further call sends what is new and returns at once.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the ranks that are missing, [`Error::PeerGone`] as soon as one of them has ended,
    /// [`Error::Lost`] where the launcher is gone.
    pub fn exchange(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "module exchange";
        let started = Instant::now();
        loop {
            self.advance(step)?;
            if self.known_all() {
                return Ok(());
            }
            if let Some(rank) = self.gone.keys().copied().find(|rank| !self.knows(*rank)) {
                return Err(Error::PeerGone { rank, step });
            }
            self.wait(deadline, |job| {
                let missing: Vec<_> = (0..job.size()).filter(|rank| !job.knows(*rank)).collect();
                let waited = started.elapsed();
                Error::Timeout { step: format!("{step}: nothing came from {}", list(&missing)), waited }
            })?;
        }
    }

    /// Waits until all ranks have come to their next fence.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange). After a timeout the next call waits for the same fence again.
    pub fn fence(&mut self, deadline: Instant) -> Result<(), Error> {
        let step = "fence";
        if self.finished {
            return Err(Error::Finished);
        }
        let started = Instant::now();
        let Some(link) = &mut self.link else { return Ok(()) };
        if self.fence_entered == self.fence_open {
            self.fence_entered = self.fence_entered.wrapping_add(1);
            link.channel.send(Kind::Fence, &self.fence_entered.to_le_bytes());
        }
        loop {
            self.pump(step)?;
            if self.fence_open == self.fence_entered {
                return Ok(());
            }
            if let Some((rank, _)) = self.gone.iter().find(|(_, fence)| !reached(**fence, self.fence_entered)) {
                return Err(Error::PeerGone { rank: *rank, step });
            }
            self.wait(deadline, |_| Error::Timeout {
                step: format!("{step}: not all ranks came"),
                waited: started.elapsed(),
            })?;
        }
    }

    /// Asks the launcher to end all ranks with exit status `code`, and to show `message`. Returns when the launcher
    /// has taken note; the caller then exits. Without a launcher there is nobody to end.
    ///
    /// # Errors
    /// Where the launcher could not be told; the caller should exit with a failure then.
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), Error> {
        let message = &message.as_bytes()[..message.len().min(4096)];
        let payload = [&code.to_le_bytes(), message].concat();
        self.say(Kind::Abort, &payload, "abort")
    }

    /// Tells the launcher that this rank will take part in nothing further, and closes the exchange. Does not wait for
    /// other ranks, unless this rank runs the job's server itself. A second call does nothing.
    ///
    /// # Errors
    /// Where the launcher could not be told.
    pub fn finish(&mut self) -> Result<(), Error> {
        if self.finished {
            return Ok(());
        }
        let said = self.say(Kind::Finish, &[], "finish");
        self.finished = true;
        self.link = None;
        self.host.take().into_iter().for_each(Host::see_off);
        self.changes.clear();
        self.watches.clear();
        said
    }

    /// Takes in what has arrived, without waiting. Further news come up with
    /// [`next_change`](Modex::next_change).
    ///
    /// # Errors
    /// [`Error::Lost`] where the launcher is gone, [`Error::Protocol`] where it talks nonsense.
    pub fn poll(&mut self) -> Result<(), Error> {
        self.pump("poll")
    }

    /// Tells the launcher that a part of this rank has ended, such as one of several threads that others know: they hear of
    /// it when they [ask](Self::ask_for_ends), and whether it `died` instead of ending in good order. Does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] where the launcher is gone.
    pub fn part_ended(&mut self, part: u32, died: bool) -> Result<(), Error> {
        self.mention(Kind::Part, if died { part | DIED } else { part })
    }

    /// Asks the launcher which ranks have ended in the meantime, well or not, and which parts of ranks. Does not wait: what
    /// it answers comes up with [`next_end`](Self::next_end).
    ///
    /// # Errors
    /// [`Error::Lost`] where the launcher is gone.
    pub fn ask_for_ends(&mut self) -> Result<(), Error> {
        if self.ends.asked {
            return self.pump("question for ends");
        }
        self.ends.asked = self.link.is_some();
        self.mention(Kind::Ends, self.ends.next)
    }

    /// Takes in what has arrived, without waiting, and gives the next end that this rank has not heard of.
    pub fn next_end(&mut self) -> Option<End> {
        // A lost launcher is reported by the operations that need it.
        let _ = self.pump("question for ends");
        self.ends.heard.pop_front()
    }

    /// Takes in what has arrived, without waiting, and gives the next rank that was started again and has published anew, with
    /// its incarnation. What it published before is gone then.
    pub fn next_return(&mut self) -> Option<(u32, u32)> {
        // As above.
        let _ = self.pump("question for returns");
        self.returns.pop_front()
    }

    fn mention(&mut self, kind: Kind, number: u32) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if let Some(link) = &mut self.link {
            link.channel.send(kind, &number.to_le_bytes());
        }
        self.pump("word to the launcher")
    }

    fn say(&mut self, kind: Kind, payload: &[u8], step: &'static str) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let started = Instant::now();
        link.channel.send(kind, payload);
        self.acknowledged = false;
        loop {
            self.pump(step)?;
            if self.acknowledged {
                return Ok(());
            }
            self.wait(started + WORD_LIMIT, |_| Error::Timeout {
                step: format!("{step}: the launcher does not answer"),
                waited: started.elapsed(),
            })?;
        }
    }

    pub(super) fn knows(&self, rank: u32) -> bool {
        rank == self.rank() || self.sets.get(rank as usize).is_some_and(Option::is_some)
    }

    pub(super) fn known_all(&self) -> bool {
        let own = u32::from(self.sets.get(self.rank() as usize).is_some_and(Option::is_none));
        self.known + own == self.size()
    }

    /// Sends what is new, and takes in what has arrived.
    pub(super) fn advance(&mut self, step: &'static str) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if self.sent != self.revision {
            self.send_set();
        }
        self.pump(step)
    }

    fn send_set(&mut self) {
        let set = self.own_set();
        self.sent = self.revision;
        if let Some(link) = &mut self.link {
            link.channel.send(Kind::Set, &set);
        }
    }

    fn own_set(&self) -> Vec<u8> {
        let entries = self.own.iter().map(|own| entry_size(&own.name.component(), own.data.len()));
        let mut bytes = vec![0; Set::HEADER + entries.sum::<usize>()];
        let edition = Edition { incarnation: self.incarnation, revision: self.revision };
        let Some(mut writer) = SetWriter::new(&mut bytes, self.rank(), edition) else { return Vec::new() };
        for own in &self.own {
            // The buffer was made for just these.
            let _ = writer.entry(&own.name.component(), own.revision, &own.data);
        }
        let length = writer.finish();
        bytes.truncate(length);
        bytes
    }

    /// Puts a checked set in place of an older one, and notes what changed for those who watch.
    fn take_set(&mut self, rank: u32, bytes: Vec<u8>) {
        let Some(place) = self.sets.get_mut(rank as usize) else { return };
        let old = place.replace(bytes);
        self.known += u32::from(old.is_none());
        let old = old.as_deref().and_then(|set| Set::parse(set).ok());
        let Some(new) = place.as_deref().and_then(|set| Set::parse(set).ok()) else { return };
        for (index, (name, peer)) in (0..).zip(&self.watches) {
            let component = name.component();
            let mark = |set: Option<Set<'_>>| {
                set.and_then(|set| Some((set.edition().incarnation, set.find(&component)?.revision)))
            };
            let change = Change { watch: Watch::from_bits(index), peer: rank };
            if *peer == rank && mark(old) != mark(Some(new)) && !self.changes.contains(&change) {
                self.changes.push_back(change);
            }
        }
    }

    /// Writes and reads what goes without waiting.
    pub(super) fn pump(&mut self, step: &'static str) -> Result<(), Error> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let lost = |source| Error::Lost { step, source };
        while !link.channel.output().is_empty() {
            match link.stream.write(link.channel.output()) {
                Ok(count) => link.channel.wrote(count),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(lost(why)),
            }
        }
        loop {
            // Before the first read, too: frames may have come together with the welcome.
            while let Some((kind, payload)) = self.next_frame()? {
                self.take(kind, payload)?;
            }
            let Some(link) = &mut self.link else { return Ok(()) };
            match link.stream.read(&mut link.buffer) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => link.channel.feed(&link.buffer[..count]),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(lost(why)),
            }
        }
    }

    fn next_frame(&mut self) -> Result<Option<(Kind, Vec<u8>)>, Error> {
        self.link.as_mut().map_or(Ok(None), |link| link.channel.next().map_err(Error::protocol))
    }

    fn take(&mut self, kind: Kind, payload: Vec<u8>) -> Result<(), Error> {
        match kind {
            Kind::Set => {
                let mut sets = &payload[..];
                while !sets.is_empty() {
                    // Each set says how long it is.
                    let length = word(sets, 20)? as usize;
                    let whole = sets.split_at_checked(length).filter(|_| length != 0);
                    let (set, rest) = whole.ok_or_else(|| Error::protocol("a set that is cut short"))?;
                    self.absorb(set)?;
                    sets = rest;
                }
            }
            Kind::Fence => self.fence_open = word(&payload, 0)?,
            Kind::Gone => drop(self.gone.insert(word(&payload, 0)?, word(&payload, 4)?)),
            Kind::Finish | Kind::Abort => self.acknowledged = true,
            Kind::Ends => self.take_ends(&payload)?,
            Kind::Welcome | Kind::Refuse | Kind::Part => return Err(Error::protocol(format!("{kind:?} out of turn"))),
        }
        Ok(())
    }

    fn take_ends(&mut self, payload: &[u8]) -> Result<(), Error> {
        (self.ends.next, self.ends.asked) = (word(payload, 0)?, false);
        for at in (4..payload.len()).step_by(8) {
            let (rank, word) = (word(payload, at)?, word(payload, at + 4)?);
            let (part, died) = (word & !DIED, word & DIED != 0);
            if rank >= self.size() {
                return Err(Error::protocol(format!("the end of rank {rank}, which the job has not")));
            }
            let incarnation = self.incarnation_of(rank).unwrap_or(0);
            self.ends.heard.push_back(End { rank, part: (part != WHOLE).then_some(part), incarnation, died });
        }
        Ok(())
    }

    /// Takes over a set that came from the server, unless it is old or this rank's own.
    fn absorb(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let set = Set::parse(bytes).map_err(Error::set)?;
        let (rank, edition) = (set.rank(), set.edition());
        if rank >= self.size() {
            return Err(Error::protocol(format!("a set of rank {rank}, which the job has not")));
        }
        let old = self.sets[rank as usize].as_deref().and_then(|set| Set::parse(set).ok());
        let old = old.map(|old| old.edition());
        if rank != self.rank() && old.is_none_or(|old| old < edition) {
            self.gone.remove(&rank);
            if old.is_some_and(|old| old.incarnation < edition.incarnation) {
                self.returns.push_back((rank, edition.incarnation));
            }
            self.take_set(rank, bytes.to_vec());
        }
        Ok(())
    }

    /// Waits until something arrives or can be written.
    fn wait(&self, deadline: Instant, late: impl Fn(&Self) -> Error) -> Result<(), Error> {
        let Some(link) = &self.link else { return Err(late(self)) };
        let write = !link.channel.output().is_empty();
        if Instant::now() < deadline && link.stream.wait(write, deadline).map_err(Error::System)? {
            return Ok(());
        }
        Err(late(self))
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

/// The first few of some ranks, in words.
fn list(ranks: &[u32]) -> String {
    let first: Vec<_> = ranks.iter().take(8).map(ToString::to_string).collect();
    let more = ranks.len().saturating_sub(first.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("rank{} {}{more}", if ranks.len() == 1 { "" } else { "s" }, first.join(", "))
}
