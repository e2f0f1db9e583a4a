//! A rank's reports to the launcher.

use super::carrier::Carrier;
use super::job::Job;
use crate::error::Error;
use crate::protocol::channel::Kind;
use crate::report::{Activity, Report, Unmatched, UnmatchedPolicy};

impl Job {
    /// Whether a launcher supervises this rank, and prints reports of it. In a job of size 1 without a launcher, in a
    /// job whose rank 0 runs the server itself, and in a job [over](Self::over) another exchange, there is none.
    pub fn has_launcher(&self) -> bool {
        matches!(self.carrier, Carrier::Server(_)) && self.environment.listen.is_none()
    }

    /// Handles messages that have arrived, without waiting. Returns the number of the launcher's last question for a
    /// report, or 0 if there is none that is open. [`send_report`](Self::send_report) answers it.
    pub fn report_asked(&mut self) -> u32 {
        // The operations that need the launcher report that it is lost.
        let _ = self.progress("check for questions");
        if self.questions.asked == self.questions.answered { 0 } else { self.questions.asked }
    }

    /// Sends the report of a context to the launcher, as an answer to question number `question`. The number 0 is for a
    /// rank that was not asked, and that has waited in `finish` for long: the launcher then asks all ranks.
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
        if self.questions.asked == self.questions.answered {
            return Ok(());
        }
        self.questions.answered = self.questions.asked;
        let report = Report::new(self.rank(), 0, 1, Activity::Starting(step(self)));
        self.send_report(self.questions.asked, &report)
    }
}
