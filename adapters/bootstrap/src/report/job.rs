//! The reports of all ranks of a job, as the launcher prints them.

use std::collections::BTreeMap;

use towline_net::counted;

use super::deadlock::{self, Id, Node};
use super::json::Value;
use super::text::{context_name, seconds};
use super::{Operation, OperationKind, Peer, Report};
use crate::RANKS_MAX;

/// Most lines of ranks that are printed. All of them are in the JSON.
const LINES_MAX: usize = 200;

/// Why ranks were asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// The launcher got SIGQUIT.
    Asked,
    /// The time limit of the job has passed.
    TimeLimit,
    /// A rank has waited in `finish` for long.
    FinishWaits(u32),
}

impl Reason {
    fn text(&self) -> String {
        match self {
            Self::Asked => "SIGQUIT".into(),
            Self::TimeLimit => "the time limit has passed".into(),
            Self::FinishWaits(rank) => format!("rank {rank} waits in finish for long"),
        }
    }
}

/// What is known of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RankState {
    /// It has answered with these reports, one for each of its contexts that has answered.
    Answered(Vec<Report>),
    /// It was asked and has not answered within this time, in milliseconds.
    Silent(u64),
    /// It is not connected to the launcher yet.
    NotJoined,
    /// It has finished, and its process runs.
    Finished,
    /// Its process has ended.
    Ended,
}

/// A rank in a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RankReport {
    pub(crate) rank: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) host: String,
    pub(crate) state: RankState,
}

/// The reports of all ranks of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JobReport {
    pub(crate) reason: Reason,
    pub(crate) ranks: Vec<RankReport>,
}

impl JobReport {
    /// The lines for people. Ranks with equal lines share them.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("report of all ranks ({})", self.reason.text())];
        let mut groups: Vec<(Vec<String>, Vec<u32>, u64)> = Vec::new();
        for it in &self.ranks {
            let key = it.lines(false);
            match groups.iter_mut().find(|(other, ..)| *other == key) {
                Some((_, ranks, waited)) => {
                    ranks.push(it.rank);
                    *waited = (*waited).max(it.waited_ms());
                }
                None => groups.push((key, vec![it.rank], it.waited_ms())),
            }
        }
        for (key, ranks, waited) in groups {
            let own = if ranks.len() == 1 { self.rank(ranks[0]).map(|it| it.lines(true)) } else { None };
            let name = format!("[{}]", crate::environment::format_ranks(&ranks));
            let times = if ranks.len() > 1 && waited != 0 { Some(format!("up to {}", seconds(waited))) } else { None };
            lines.extend(own.unwrap_or(key).iter().map(|line| format!("{name} {line}")));
            lines.extend(times.map(|times| format!("{name} these {} ranks wait for {times}", ranks.len())));
        }
        if lines.len() > LINES_MAX {
            let more = lines.len() - LINES_MAX;
            lines.truncate(LINES_MAX);
            lines.push(format!("{} more: see `--report-file`", counted(more, "line")));
        }
        lines.extend(self.findings());
        lines.push("end of the report".into());
        lines
    }

    fn rank(&self, rank: u32) -> Option<&RankReport> {
        self.ranks.iter().find(|it| it.rank == rank)
    }

    fn reports(&self) -> impl Iterator<Item = &Report> {
        self.ranks.iter().flat_map(|it| match &it.state {
            RankState::Answered(reports) => &reports[..],
            _ => &[],
        })
    }

    fn report(&self, id: Id) -> Option<&Report> {
        self.reports().find(|report| (report.rank, report.index) == id)
    }

    fn stuck(&self) -> deadlock::Stuck {
        let mut nodes: BTreeMap<Id, Node<'_>> = BTreeMap::new();
        // All contexts of a job are no more than its ranks may be.
        let most = RANKS_MAX / (self.ranks.len() as u32).clamp(1, RANKS_MAX);
        let contexts = self.reports().map(|report| report.contexts).max().unwrap_or(1).min(most);
        for it in &self.ranks {
            let ended = matches!(it.state, RankState::Finished | RankState::Ended);
            for index in 0..contexts {
                nodes.insert((it.rank, index), if ended { Node::Ended } else { Node::Free });
            }
        }
        for report in self.reports() {
            nodes.insert((report.rank, report.index), Node::Reported(report));
        }
        deadlock::find(&nodes)
    }

    /// Lines about ranks that can never go on.
    fn findings(&self) -> Vec<String> {
        let stuck = self.stuck();
        let name = |id: Id| context_name(id.0, id.1);
        let circle = |ids: &Vec<Id>| {
            let steps: Vec<String> = (0..ids.len())
                .map(|at| {
                    let (id, next) = (ids[at], ids[(at + 1) % ids.len()]);
                    format!("{} waits in {} for {}", name(id), self.wait_towards(id, next), name(next))
                })
                .collect();
            format!("probable deadlock: {}{}", steps.join(", "), self.unless_threads(ids))
        };
        let mut lines: Vec<String> = stuck.circles.iter().map(circle).collect();
        for (id, ended) in &stuck.waits_for_ended {
            lines.push(match ended {
                Some(ended) => {
                    let how = match self.rank(ended.0).map(|it| &it.state) {
                        Some(RankState::Ended) => "has ended",
                        Some(RankState::Finished) => "has finished",
                        _ => "is in finish and sends and receives nothing more",
                    };
                    let wait = self.wait_towards(*id, *ended);
                    let unless = self.unless_threads(&[*id]);
                    format!(
                        "probable deadlock: {} waits in {wait} for {}, which {how}{unless}",
                        name(*id),
                        name(*ended)
                    )
                }
                None => format!(
                    "probable deadlock: {} waits for any rank, and all other ranks have finished or cannot go on",
                    name(*id)
                ),
            });
        }
        for id in stuck.circles.iter().flatten().copied().chain(stuck.waits_for_ended.iter().map(|(id, _)| *id)) {
            lines.extend(self.mismatch(id));
        }
        lines
    }

    /// A restriction for contexts that several threads use.
    fn unless_threads(&self, ids: &[Id]) -> &'static str {
        let several = |id: &Id| self.report(*id).is_some_and(|report| report.several_threads);
        if ids.iter().any(several) { ", unless another thread of these ranks goes on" } else { "" }
    }

    /// The operation by which a context waits for another one.
    fn wait_towards(&self, id: Id, target: Id) -> String {
        let waits = self.report(id).map(|report| &report.waits[..]).unwrap_or_default();
        let towards = |operation: &&Operation| match operation.peer {
            Peer::One { rank, index } => (rank, index) == target,
            Peer::Any => true,
            Peer::All | Peer::None => false,
        };
        let found = waits.iter().map(|wait| &wait.operation).find(towards);
        found.map_or_else(String::new, |operation| match (&operation.kind, operation.tag) {
            (OperationKind::Collective(name), _) => name.clone(),
            (kind, Some(tag)) => format!("{} (tag {tag})", kind.name()),
            (kind, None) => format!("{} (any tag)", kind.name()),
        })
    }

    /// A hint if a stuck receive waits for one message of a peer while another one of the same peer was not received.
    fn mismatch(&self, id: Id) -> Option<String> {
        let report = self.report(id)?;
        report.waits.iter().find_map(|wait| {
            let Peer::One { rank, index } = wait.operation.peer else { return None };
            let other = report.unreceived.iter().find(|it| (it.rank, it.index) == (rank, index) && !it.taken)?;
            let tag = wait.operation.tag?;
            Some(format!(
                "{} waits for tag {tag} of {}, and a message of that rank with tag {} was not received: check tags and \
                 communicators",
                context_name(id.0, id.1),
                context_name(rank, index),
                other.tag
            ))
        })
    }

    /// The report as one line of JSON.
    pub(crate) fn json(&self) -> String {
        let stuck = self.stuck();
        let id = |(rank, index): Id| Value::Object(vec![("rank", rank.into()), ("index", index.into())]);
        let circles = stuck.circles.iter().map(|ids| Value::list(ids.iter().map(|it| id(*it))));
        let ended = stuck.waits_for_ended.iter().map(|(waiting, ended)| {
            Value::Object(vec![("waiting", id(*waiting)), ("ended", ended.map_or(Value::Null, id))])
        });
        Value::Object(vec![
            ("reason", Value::text(self.reason.text())),
            ("ranks", Value::list(self.ranks.iter().map(RankReport::json))),
            ("deadlocks", Value::list(circles)),
            ("waits_for_ended", Value::list(ended)),
        ])
        .to_string()
    }
}

impl RankReport {
    /// The lines of the rank, without its name.
    fn lines(&self, times: bool) -> Vec<String> {
        let reports = match &self.state {
            RankState::Answered(reports) => reports,
            RankState::Silent(waited_ms) => {
                let pid = self.pid.map_or_else(String::new, |pid| format!("pid {pid} "));
                return vec![format!(
                    "did not answer within {}: it is not inside Towline; it computes, is stopped, or waits for something else \
                     ({pid}on {})",
                    seconds(*waited_ms),
                    self.host
                )];
            }
            RankState::NotJoined => return vec!["has not joined the job: it did not call towline::init yet".into()],
            RankState::Finished => return vec!["has finished, and its process still runs".into()],
            RankState::Ended => return vec!["has ended".into()],
        };
        let mut lines = Vec::new();
        for report in reports {
            let context = if report.contexts > 1 { format!("context {} ", report.index) } else { String::new() };
            lines.extend(report.lines(times).iter().map(|line| format!("{context}{line}")));
        }
        let contexts = reports.first().map_or(1, |report| report.contexts);
        for index in (0..contexts).filter(|index| reports.iter().all(|report| report.index != *index)).take(8) {
            lines.push(format!("context {index} did not answer: its thread is not inside Towline"));
        }
        lines
    }

    fn waited_ms(&self) -> u64 {
        let RankState::Answered(reports) = &self.state else { return 0 };
        reports.iter().flat_map(|report| &report.waits).map(|wait| wait.waited_ms).max().unwrap_or(0)
    }

    fn json(&self) -> Value {
        let (state, reports) = match &self.state {
            RankState::Answered(reports) => ("answered", Value::list(reports.iter().map(Report::json))),
            RankState::Silent(_) => ("silent", Value::list([])),
            RankState::NotJoined => ("not joined", Value::list([])),
            RankState::Finished => ("finished", Value::list([])),
            RankState::Ended => ("ended", Value::list([])),
        };
        Value::Object(vec![
            ("rank", self.rank.into()),
            ("pid", self.pid.into()),
            ("host", Value::text(&self.host)),
            ("state", Value::text(state)),
            ("reports", reports),
        ])
    }
}
