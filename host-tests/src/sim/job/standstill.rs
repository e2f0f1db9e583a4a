//! For how long a job has made no progress.

/// Number of rounds with all work done after which a job is over.
const ROUNDS_AFTER_WORK: u32 = 50;

/// For how long a job has made no progress, in rounds and in virtual time. A *disturbance* is a death, or an event that is
/// still due, such as the end of a fault.
#[derive(Default)]
pub(super) struct Standstill {
    /// Number of the present round.
    round: u64,
    /// Rounds in a row without activity, since the last recovery.
    pub idle_rounds: u32,
    /// Rounds without progress or disturbance.
    pub still_rounds: u32,
    /// Rounds in which all work was done and nothing was in flight.
    done_rounds: u32,
    /// Recoveries without progress or disturbance.
    pub recoveries: u32,
    /// The time of the last progress, disturbance or recovery.
    since: u64,
    /// When every node that waits for a lost node has noticed the loss.
    losses_noticed_at: u64,
    /// The round of the last progress.
    progress_round: u64,
}

impl Standstill {
    /// Begins a round. Returns its number.
    pub fn begin_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// Counts a round in which all work was done and nothing was in flight. Returns whether the job may be over.
    pub fn count_done(&mut self) -> bool {
        self.done_rounds += 1;
        self.done_rounds > ROUNDS_AFTER_WORK
    }

    /// Counts a round.
    pub fn count(&mut self, active: bool) {
        self.idle_rounds = if active { 0 } else { self.idle_rounds + 1 };
        self.still_rounds += 1;
    }

    /// A program has made progress.
    pub fn progressed(&mut self, now: u64) {
        self.progress_round = self.round;
        self.restart(now);
    }

    /// There was a disturbance. All losses will be noticed within `notice` nanoseconds.
    pub fn disturbed(&mut self, now: u64, notice: u64) {
        self.losses_noticed_at = now + notice;
        self.restart(now);
    }

    const fn restart(&mut self, now: u64) {
        (self.still_rounds, self.recoveries, self.since) = (0, 0, now);
    }

    /// Programs have recovered, or would have if failures were expected.
    pub const fn recovered(&mut self, now: u64) {
        (self.idle_rounds, self.since) = (0, now);
        self.recoveries += 1;
    }

    /// Nanoseconds since the last progress, disturbance or recovery.
    pub const fn lasted(&self, now: u64) -> u64 {
        now - self.since
    }

    /// Whether every node that waits for a lost node has noticed the loss.
    pub const fn losses_noticed(&self, now: u64) -> bool {
        now > self.losses_noticed_at
    }

    /// Rounds since the last progress, whatever the disturbances.
    pub const fn rounds_without_progress(&self) -> u64 {
        self.round - self.progress_round
    }
}
