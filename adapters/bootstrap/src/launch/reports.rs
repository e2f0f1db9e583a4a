//! Reports of all ranks: on SIGQUIT, when the time limit has passed, and when a rank waits in `finish` for long. And the
//! messages that no rank has received, at the end of the job.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use towline_net::advice;

use super::standard_streams::Log;
use crate::report::{JobReport, RankReport, RankState, Reason, Report, Unmatched, UnmatchedPolicy};
use crate::server::Server;

/// The launcher's questions for reports, and what ranks have told at their end.
#[derive(Default)]
pub(super) struct Reports {
    /// The number of the last question.
    question: u32,
    /// The question that is open.
    open: Option<Question>,
    /// A rank that waits in `finish` has caused a report. There is only one such report in a job, since a rank may wait
    /// there for long without an error.
    finish_waited: bool,
    unmatched: Unmatched,
    /// Some rank wants the job to fail for messages that were not received.
    unmatched_fails: bool,
}

/// A question to all ranks that was not printed yet.
struct Question {
    reason: Reason,
    asked_at: Instant,
    /// When it is printed, although some ranks have not answered.
    until: Instant,
    answers: BTreeMap<u32, Vec<Report>>,
}

/// The state of a rank as far as it matters for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    NotJoined,
    /// It can answer.
    Running,
    Finished,
    Ended,
}

/// A rank for a report.
pub(super) struct ReportedRank<'a> {
    pub(super) rank: u32,
    pub(super) pid: Option<u32>,
    pub(super) host: &'a str,
    pub(super) presence: Presence,
}

impl Reports {
    /// Asks all ranks for their reports, which have this time to answer.
    pub(super) fn ask(&mut self, reason: Reason, server: &Server, wait: Duration) {
        if let Some(open) = &mut self.open {
            // The answers to the open question serve both. The time limit has a consequence, so it is not forgotten.
            if reason == Reason::TimeLimit {
                open.reason = reason;
            }
            return;
        }
        self.question += 1;
        server.ask_for_reports(self.question);
        let asked_at = Instant::now();
        let until = asked_at.checked_add(wait).unwrap_or(asked_at + Duration::from_secs(3600));
        self.open = Some(Question { reason, asked_at, until, answers: BTreeMap::new() });
    }

    /// Takes the report of a rank. `question`: the number of the question, or 0 if the rank was not asked and waits in
    /// `finish` for long. Returns the reason if all ranks are to be asked now.
    pub(super) fn take(&mut self, rank: u32, question: u32, report: Report) -> Option<Reason> {
        if question == 0 {
            let first = !std::mem::replace(&mut self.finish_waited, true);
            return first.then_some(Reason::FinishWaits(rank));
        }
        if let Some(open) = self.open.as_mut().filter(|_| question == self.question) {
            let reports = open.answers.entry(rank).or_default();
            reports.retain(|other| other.index != report.index);
            reports.push(report);
            reports.sort_by_key(|report| report.index);
        }
        None
    }

    /// When the open question is printed at the latest.
    pub(super) fn until(&self) -> Option<Instant> {
        self.open.as_ref().map(|question| question.until)
    }

    /// Whether the open question is to be printed: all of these ranks have answered, or it is time.
    pub(super) fn is_due(&self, now: Instant, mut running: impl Iterator<Item = u32>) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let answered = |rank: u32| {
                let reports = open.answers.get(&rank);
                reports.is_some_and(|all| all.first().is_some_and(|first| all.len() >= first.contexts as usize))
            };
            now >= open.until || running.all(answered)
        })
    }

    /// Prints the answers to the open question, and appends them to a file. Returns why it was asked; `None` if no question
    /// is open.
    pub(super) fn print<'a>(
        &mut self,
        ranks: impl Iterator<Item = ReportedRank<'a>>,
        log: &Log,
        file: Option<&Path>,
    ) -> Option<Reason> {
        let mut open = self.open.take()?;
        let waited_ms = open.asked_at.elapsed().as_millis() as u64;
        let ranks = ranks.map(|it| {
            let state = match (open.answers.remove(&it.rank), it.presence) {
                (Some(reports), _) => RankState::Answered(reports),
                (None, Presence::Running) => RankState::Silent(waited_ms),
                (None, Presence::Ended) => RankState::Ended,
                (None, Presence::Finished) => RankState::Finished,
                (None, Presence::NotJoined) => RankState::NotJoined,
            };
            RankReport { rank: it.rank, pid: it.pid, host: it.host.into(), state }
        });
        let report = JobReport { ranks: ranks.collect(), reason: open.reason };
        report.lines().into_iter().for_each(|line| log.print(line));
        if let Some(path) = file
            && let Err(why) = append(path, &(report.json() + "\n"))
        {
            log.print(format!("cannot write the report to {}: {why}{}", path.display(), advice(&why)));
        }
        Some(report.reason)
    }

    /// Adds messages that a rank has not received.
    pub(super) fn add_unmatched(&mut self, unmatched: Unmatched, policy: UnmatchedPolicy) {
        self.unmatched.merge(unmatched);
        self.unmatched_fails |= policy == UnmatchedPolicy::Error;
    }

    /// Prints the messages that no rank has received, once all ranks have ended well. A job that fails has such messages
    /// for that reason. Returns the exit status that the job has for them.
    pub(super) fn print_unmatched(&self, log: &Log) -> Option<u8> {
        if self.unmatched.count == 0 {
            return None;
        }
        let (kind, status) = if self.unmatched_fails { ("error", Some(1)) } else { ("warning", None) };
        log.print(format!("{kind}: {} (TOWLINE_UNMATCHED)", self.unmatched));
        status
    }
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(line.as_bytes())
}
