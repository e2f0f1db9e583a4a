//! A rank's reports to the launcher.

use super::job::Job;
use crate::error::Error;
use crate::protocol::channel::Kind;
use crate::report::{Activity, Report, Unmatched, UnmatchedPolicy};

/// The launcher's questions for reports.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The number of the last question; 0 before the first one.
    pub(super) asked: u32,
    /// The last question that this rank has answered while it starts.
    answered: u32,
}

impl Job {
    /// Whether a launcher supervises this rank, and prints reports of it. In a job of size 1 without a launcher, and in a
    /// job whose rank 0 runs the server itself, there is none.
    pub fn has_launcher(&self) -> bool {
        self.connection.is_some() && self.environment.listen.is_none()
    }

    /// Handles messages that have arrived, without waiting. Returns the number of the launcher's last question for a
    /// report, or 0 if there is none that is open. [`send_report`](Self::send_report) answers it.
    pub fn report_asked(&mut self) -> u32 {
        // The operations that need the launcher report that it is lost.
        let _ = self.progress("check for questions");
        if self.reports.asked == self.reports.answered { 0 } else { self.reports.asked }
    }

    /// Sends the report of a context to the launcher, as an answer to question number `question`. The number 0 is for a
    /// rank that was not asked, and that has waited in `finish` for more than a second: the launcher then asks all ranks.
    /// Does not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn send_report(&mut self, question: u32, report: &Report) -> Result<(), Error> {
        self.send_payload(Kind::Report, &[&question.to_le_bytes(), &report.encode()[..]].concat())
    }

    /// Tells the launcher which messages this rank has not received. To be called before [`finish`](Self::finish). Does
    /// not wait.
    ///
    /// # Errors
    /// [`Error::Lost`] if the launcher has ended.
    pub fn send_unmatched(&mut self, unmatched: &Unmatched, policy: UnmatchedPolicy) -> Result<(), Error> {
        self.send_payload(Kind::Unmatched, &unmatched.encode(policy))
    }

    /// Answers a question while this rank waits for others to start.
    pub(super) fn report_start(&mut self, step: impl FnOnce(&Self) -> String) -> Result<(), Error> {
        if self.reports.asked == self.reports.answered {
            return Ok(());
        }
        self.reports.answered = self.reports.asked;
        let report = Report::new(self.rank(), 0, 1, Activity::Starting(step(self)));
        self.send_report(self.reports.asked, &report)
    }
}
