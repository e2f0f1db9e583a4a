//! A rank's membership in a job: publishing, exchanging, fences, and the end.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use towline_core::modex::{Change, Component, RecvError, SendError, Set, entry_size};

use super::carrier::Carrier;
use super::connect;
use super::own_server::OwnServer;
use super::publication::{Name, Published};
use super::questions::Questions;
use crate::error::Error;
use crate::protocol::channel::{DIED, Kind, PAYLOAD_MAX, WHOLE_RANK};
use crate::{Environment, JobKey};

/// Time in which [`Job::from_env`] must join.
const JOIN_LIMIT: Duration = Duration::from_secs(30);
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
    /// What connects this rank with the others; nothing after `finish`.
    pub(super) carrier: Carrier,
    pub(super) incarnation: u32,
    pub(super) own: Vec<Published>,
    /// Stamp of this rank's publications: 1 before the first one, then one more with each.
    pub(super) revision: u32,
    /// The revision that was sent to the others; 0 before the first exchange.
    pub(super) sent: u32,
    /// The latest publications of each rank, already checked.
    pub(super) sets: Vec<Option<Vec<u8>>>,
    pub(super) known: u32,
    /// Ranks that have ended, with the last fence that each reached.
    pub(super) ended: BTreeMap<u32, u32>,
    pub(super) fence_entered: u32,
    pub(super) fence_open: u32,
    pub(super) watches: Vec<(Name, u32)>,
    pub(super) changes: VecDeque<Change>,
    /// Ranks that were restarted and have published again, with their new incarnation; not yet returned by
    /// `next_restart`.
    pub(super) restarts: VecDeque<(u32, u32)>,
    pub(super) ends: Ends,
    pub(super) questions: Questions,
    /// The server has acknowledged a finish or an abort.
    pub(super) acknowledged: bool,
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

/// The ends of other ranks that this rank has heard of.
#[derive(Default)]
pub(super) struct Ends {
    /// Not yet returned to the caller.
    pub(super) heard: VecDeque<End>,
    /// The number from which the next question to the server asks.
    pub(super) next: u32,
    /// A question was sent and has not been answered.
    pub(super) asked: bool,
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
            carrier: Carrier::None,
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
    /// [`Error::Publish`] if the component or its data are not acceptable, [`Error::Lost`] if the launcher has ended,
    /// [`Error::TooLate`] after the exchange of a job [over](Self::over) another exchange.
    pub fn publish(&mut self, component: &Component<'_>, data: &[u8]) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        if self.sent != 0 && matches!(self.carrier, Carrier::Exchange { .. }) {
            return Err(Error::TooLate);
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
        match self.carrier {
            Carrier::Exchange { .. } => self.gather_sets(deadline),
            _ => self.exchange_by_server(deadline),
        }
    }

    /// Waits until all ranks have reached their next fence.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange). After a timeout the next call waits for the same fence again.
    pub fn fence(&mut self, deadline: Instant) -> Result<(), Error> {
        if self.finished {
            return Err(Error::Finished);
        }
        match self.carrier {
            Carrier::None => Ok(()),
            Carrier::Server(_) => self.fence_by_server(deadline),
            Carrier::Exchange { .. } => self.fence_by_exchange(deadline),
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
        match &mut self.carrier {
            Carrier::Exchange { exchange, .. } => exchange
                .abort(code, &String::from_utf8_lossy(message))
                .map_err(|why| Error::exchange("abort", why.to_string())),
            _ => self.request(Kind::Abort, &[&code.to_le_bytes(), message].concat(), "abort"),
        }
    }

    /// Has the launcher print a warning about this rank (at most 4096 bytes of it). It prints the first warning of a job only,
    /// since many ranks may have the same reason to warn. Does not wait. Without a launcher the warning goes to standard error.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher cannot be reached.
    pub fn warn(&mut self, text: &str) -> Result<(), Error> {
        let text = &text[..text.floor_char_boundary(4096)];
        let Some(connection) = self.carrier.server() else {
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
        let said = self.end(false);
        self.own_server.take().into_iter().for_each(OwnServer::wait_until_unused);
        said
    }

    /// Tells the launcher that this rank is done, and disconnects. `early`: an exchange tells other ranks, too.
    fn end(&mut self, early: bool) -> Result<(), Error> {
        let said = match &mut self.carrier {
            Carrier::Exchange { exchange, .. } => {
                let said = if early { exchange.leave() } else { exchange.finish() };
                said.map_err(|why| Error::exchange("finish", why.to_string()))
            }
            _ => self.request(Kind::Finish, &[], "finish"),
        };
        self.finished = true;
        self.carrier = Carrier::None;
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
        told.and(self.end(true))
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
        self.ends.asked = self.carrier.server().is_some();
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
