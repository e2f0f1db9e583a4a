//! Reports of what a context does, for the launcher and for the program.

use std::io::Write as _;
use std::sync::Arc;

use towline_bootstrap::report::{
    Activity, Operation, OperationKind, Peer as PeerName, Report, Stage as StageName, Unreceived, Wait as WaitReport,
};
use towline_core::mtl::{InProgress, Kind, Source, Stage, Tag};
use towline_core::rail::Peer;
use towline_core::time::{Duration, Instant};

use crate::engine::Engine;
use crate::engine::pending::Pending;
use crate::engine::reporter::{Reporter, Reporting};
use crate::engine::waits::{Wait, WaitFor};
use crate::values::tags::{collective_name, is_of_finish};

/// How often a context looks whether the launcher asks for a report.
const INTERVAL: Duration = Duration::from_millis(100);

impl Engine {
    /// The context begins to finish.
    pub fn note_finish(&mut self, now: Instant) {
        if let Some(reporter) = &mut self.reporter {
            reporter.finishing = Some(now);
        }
    }

    /// Answers the launcher if it asks what this context does. Looks only now and then. `by`: the calling thread.
    pub fn report_if_asked(&mut self, now: Instant, by: Reporting) {
        let Some(reporter) = self.reporter.as_mut().filter(|reporter| now >= reporter.look_at) else { return };
        reporter.look_at = now + INTERVAL;
        let question = reporter.launcher.report_question();
        if question != 0 && question != reporter.answered {
            reporter.answered = question;
            let launcher = Arc::clone(&reporter.launcher);
            let report = self.report(now, by);
            launcher.send_report(question, &report);
        }
        self.report_long_finish(now, by);
    }

    /// Says once that this context waits in `finish` for long: to the launcher, which asks all ranks then, or to the user.
    fn report_long_finish(&mut self, now: Instant, by: Reporting) {
        let Some(reporter) = self.reporter.as_mut() else { return };
        let times = reporter.finishing.zip(reporter.finish_limit);
        let is_long = times.is_some_and(|(since, limit)| now.since(since) >= limit);
        if !is_long || std::mem::replace(&mut reporter.finish_reported, true) {
            return;
        }
        let launcher = Arc::clone(&reporter.launcher);
        let report = self.report(now, by);
        if launcher.is_supervised() {
            launcher.send_report(0, &report);
        } else {
            // Standard error may be closed.
            report.to_string().lines().for_each(|line| drop(writeln!(std::io::stderr(), "towline: {line}")));
        }
    }

    /// What this context does. Empty without a reporter. `by`: the calling thread.
    pub fn report(&self, now: Instant, by: Reporting) -> Report {
        let Some(reporter) = &self.reporter else { return Report::new(0, 0, 1, Activity::Outside) };
        let own = match by {
            Reporting::Waits(wait) => Some(wait),
            Reporting::Polls | Reporting::ProgressThread => None,
        };
        let waits: Vec<Wait> = self.waits.iter().chain(own).collect();
        let activity = match by {
            Reporting::Polls => Activity::Polling,
            Reporting::ProgressThread if waits.is_empty() => Activity::Outside,
            Reporting::Waits(_) | Reporting::ProgressThread => Activity::Waiting,
        };
        let grid = reporter.grid;
        let mut report = Report::new(grid.own.rank, grid.own.index, grid.contexts, activity);
        report.several_threads = reporter.threads;
        let view = View { engine: self, reporter, now };
        view.add_operations(&mut report, &waits);
        waits.iter().for_each(|wait| view.add_wait(&mut report, *wait));
        view.add_unreceived(&mut report);
        report
    }
}

/// An engine for which a report is made.
struct View<'a> {
    engine: &'a Engine,
    reporter: &'a Reporter,
    now: Instant,
}

impl View<'_> {
    fn peer(&self, peer: Peer) -> PeerName {
        let grid = self.reporter.grid;
        let address = grid.address(grid.number_of(peer));
        PeerName::One { rank: address.rank, index: address.index }
    }

    fn waited_ms(&self, since: Instant) -> u64 {
        self.now.since(since).as_nanos() / 1_000_000
    }

    /// Adds the sends and receives in progress. Those for which a thread or a future waits are waits.
    fn add_operations(&self, report: &mut Report, waits: &[Wait]) {
        let task = waits.iter().find(|wait| wait.what == WaitFor::Task);
        for operation in self.engine.mtl.operations() {
            let own = waits.iter().find(|wait| wait.what == WaitFor::Request(operation.request));
            let pending = self.engine.pending.entries.get(&operation.request.to_bits());
            let awaited = own.is_none() && matches!(pending, Some(Pending::Waker(_)));
            let described = self.describe(&operation);
            match own.or(task.filter(|_| awaited)) {
                Some(wait) => {
                    let since = match described.kind {
                        OperationKind::Finish => self.reporter.finishing.unwrap_or(wait.since),
                        _ => wait.since,
                    };
                    let waited_ms = self.waited_ms(since);
                    report.add_wait(WaitReport { operation: described, future: awaited, waited_ms });
                }
                None if awaited => report.add_wait(WaitReport { operation: described, future: true, waited_ms: 0 }),
                None => report.add_operation(described),
            }
        }
    }

    fn describe(&self, operation: &InProgress) -> Operation {
        let InProgress { kind, stage, peer, context, tag, bytes, moved, .. } = *operation;
        let stage = match stage {
            Stage::Held => StageName::Held,
            Stage::Unmatched => StageName::Unmatched,
            Stage::Moving => StageName::Moving,
        };
        let (kind, peer) = match (tag.and_then(collective_name), kind) {
            (Some(_), _) if tag.is_some_and(is_of_finish) => (OperationKind::Finish, PeerName::All),
            (Some(name), _) => (OperationKind::Collective(name.into()), self.peer_or_any(peer)),
            (None, Kind::Send) => (OperationKind::Send, self.peer_or_any(peer)),
            (None, Kind::SynchronousSend) => (OperationKind::SynchronousSend, self.peer_or_any(peer)),
            (None, Kind::Receive) => (OperationKind::Receive, self.peer_or_any(peer)),
        };
        Operation { kind, peer, tag, communicator: context, bytes, moved, stage }
    }

    fn peer_or_any(&self, peer: Option<Peer>) -> PeerName {
        peer.map_or(PeerName::Any, |peer| self.peer(peer))
    }

    /// Adds a wait that is not for a request.
    fn add_wait(&self, report: &mut Report, wait: Wait) {
        let waited_ms = self.waited_ms(wait.since);
        let of = |kind, peer, tag, communicator| {
            let operation =
                Operation { kind, peer, tag, communicator, bytes: 0, moved: 0, stage: StageName::Unmatched };
            WaitReport { operation, future: false, waited_ms }
        };
        match wait.what {
            WaitFor::Request(_) => {}
            WaitFor::Message(comm, source, tag) => {
                let mtl = &self.engine.mtl;
                let peer = match source {
                    Source::Rank(rank) => mtl.peer_of(comm, rank),
                    Source::Any => None,
                };
                let tag = match tag {
                    Tag::Is(tag) => Some(tag),
                    Tag::Any => None,
                };
                let context = mtl.context_of(comm).unwrap_or(0);
                report.add_wait(of(OperationKind::Probe, self.peer_or_any(peer), tag, context));
            }
            WaitFor::RmaOps => {
                let mut peers: Vec<Peer> = self.engine.mtl.one_sided_operations().map(|(_, peer)| peer).collect();
                peers.sort_unstable_by_key(|peer| peer.0);
                peers.dedup();
                if peers.is_empty() {
                    report.add_wait(of(OperationKind::OneSided, PeerName::None, None, 0));
                }
                for peer in peers {
                    report.add_wait(of(OperationKind::OneSided, self.peer(peer), None, 0));
                }
            }
            WaitFor::Task => {
                let awaits = |pending: &Pending| matches!(pending, Pending::Waker(_));
                if !self.engine.pending.entries.values().any(awaits) {
                    let wait = of(OperationKind::Future, PeerName::None, None, 0);
                    report.add_wait(WaitReport { future: true, ..wait });
                }
            }
            WaitFor::FreeRequest => report.add_wait(of(OperationKind::FreeRequest, PeerName::None, None, 0)),
            WaitFor::Anything => report.add_wait(of(OperationKind::Finish, PeerName::None, None, 0)),
        }
    }

    fn add_unreceived(&self, report: &mut Report) {
        let grid = self.reporter.grid;
        for message in self.engine.mtl.unreceived().filter(|message| !message.is_internal()) {
            let from = grid.address(grid.number_of(message.peer));
            report.add_unreceived(&Unreceived {
                rank: from.rank,
                index: from.index,
                tag: message.tag,
                communicator: message.context,
                count: 1,
                bytes: message.bytes,
                largest: message.bytes,
                taken: message.taken,
            });
        }
    }
}
