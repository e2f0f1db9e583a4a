//! Reports of all ranks: on SIGQUIT, when the time limit has passed, and when a rank waits in `finish` for long. And the
//! messages that no rank has received, at the end of the job.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::launcher::{Launcher, Phase, Rank};
use crate::report::{JobReport, RankReport, RankState, Reason, Report, Unmatched, UnmatchedPolicy};

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

impl Reports {
    /// When the open question is printed at the latest.
    pub(super) fn until(&self) -> Option<Instant> {
        self.open.as_ref().map(|question| question.until)
    }

    /// Adds messages that a rank has not received.
    pub(super) fn add_unmatched(&mut self, unmatched: Unmatched, policy: UnmatchedPolicy) {
        self.unmatched.merge(unmatched);
        self.unmatched_fails |= policy == UnmatchedPolicy::Error;
    }
}

impl Launcher {
    /// Asks all ranks for their reports.
    pub(super) fn ask_for_reports(&mut self, reason: Reason) {
        if self.phase != Phase::Running {
            return;
        }
        if let Some(open) = &mut self.reports.open {
            // The answers to the open question serve both. The time limit has a consequence, so it is not forgotten.
            if reason == Reason::TimeLimit {
                open.reason = reason;
            }
            return;
        }
        self.reports.question += 1;
        self.server.ask_for_reports(self.reports.question);
        let asked_at = Instant::now();
        let until = asked_at.checked_add(self.launch.report_wait).unwrap_or(asked_at + Duration::from_secs(3600));
        self.reports.open = Some(Question { reason, asked_at, until, answers: BTreeMap::new() });
    }

    /// Takes the report of a rank. `question`: the number of the question, or 0 if the rank waits in `finish` for long.
    pub(super) fn take_report(&mut self, rank: u32, question: u32, report: Report) {
        if question == 0 {
            if !std::mem::replace(&mut self.reports.finish_waited, true) {
                self.ask_for_reports(Reason::FinishWaits(rank));
            }
            return;
        }
        if let Some(open) = self.reports.open.as_mut().filter(|_| question == self.reports.question) {
            let reports = open.answers.entry(rank).or_default();
            reports.retain(|other| other.index != report.index);
            reports.push(report);
            reports.sort_by_key(|report| report.index);
        }
    }

    /// Prints the reports if all ranks have answered, or if it is time.
    pub(super) fn check_reports(&mut self, now: Instant) {
        let Some(open) = &self.reports.open else { return };
        let answered = |rank: u32| {
            let reports = open.answers.get(&rank);
            reports.is_some_and(|all| all.first().is_some_and(|first| all.len() >= first.contexts as usize))
        };
        if now >= open.until || self.running_ranks().all(answered) {
            self.print_reports();
        }
    }

    /// The ranks that can answer.
    fn running_ranks(&self) -> impl Iterator<Item = u32> {
        let can = (0..).zip(&self.ranks).filter(|(_, rank)| rank.joined && !rank.finished && !rank.ended);
        can.map(|(rank, _)| rank)
    }

    /// Prints the answers to the open question, if there is one. If the time limit has caused it, the job ends.
    pub(super) fn print_reports(&mut self) {
        let Some(mut open) = self.reports.open.take() else { return };
        let waited_ms = open.asked_at.elapsed().as_millis() as u64;
        let state = |rank: &Rank, answer: Option<Vec<Report>>| match answer {
            Some(reports) => RankState::Answered(reports),
            None if rank.ended => RankState::Ended,
            None if rank.finished => RankState::Finished,
            None if rank.joined => RankState::Silent(waited_ms),
            None => RankState::NotJoined,
        };
        let ranks = (0..).zip(&self.ranks).map(|(number, rank)| RankReport {
            rank: number,
            pid: rank.pid,
            host: self.hosts[rank.host].name.clone(),
            state: state(rank, open.answers.remove(&number)),
        });
        let report = JobReport { ranks: ranks.collect(), reason: open.reason };
        report.lines().into_iter().for_each(|line| self.log.print(line));
        if let Some(path) = &self.launch.report_file {
            let append = |line: String| -> io::Result<()> {
                let mut file = OpenOptions::new().append(true).create(true).open(path)?;
                file.write_all(line.as_bytes())
            };
            if let Err(why) = append(report.json() + "\n") {
                self.log.print(format!("cannot write the report to {}: {why}", path.display()));
            }
        }
        if report.reason == Reason::TimeLimit {
            self.end_by_time_limit();
        }
    }

    /// Reports the messages that no rank has received, once all ranks have ended well. A job that fails has such messages for
    /// that reason. Returns the exit status that the job has
    /// for them.
    pub(super) fn report_unmatched(&self) -> Option<u8> {
        if self.reports.unmatched.count == 0 {
            return None;
        }
        let (kind, status) = if self.reports.unmatched_fails { ("error", Some(1)) } else { ("warning", None) };
        self.log.print(format!("{kind}: {} (TOWLINE_UNMATCHED)", self.reports.unmatched));
        status
    }
}
