//! Deadlines: handshakes and attempts that take too long, and retries that are due.

use towline_core::rail::Lost;

use crate::handshake::failure::Failure;
use crate::rail::Rail;
use crate::rail::peer::ConnState;
use crate::wire::hello::Verdict;

impl Rail {
    /// Runs due actions, ends overdue ones, and finds the next deadline.
    #[cold]
    pub(super) fn expire(&mut self) {
        let now = self.now;
        self.listen_if_due(now);
        if self.descriptor_retry_at.is_some_and(|at| at <= now) {
            self.retry_without_descriptor();
        }
        if self.check_hosts_at.is_some_and(|at| at <= now) {
            self.check_hosts();
        }
        self.expire_handshakes();
        self.expire_attempts();
        let handshakes = self.pendings.iter().flatten().map(|pending| pending.deadline);
        let attempts = self.awaiting_peer.iter().filter_map(|endpoint| match &self.peers.get(*endpoint)?.state {
            ConnState::Connecting(attempts) => Some(attempts.deadline),
            _ => None,
        });
        let retries = [self.listen_retry_at, self.descriptor_retry_at, self.check_hosts_at, self.replace_caller_at];
        self.next_deadline = handshakes.chain(attempts).chain(retries.into_iter().flatten()).min();
    }

    fn expire_handshakes(&mut self) {
        for slot in 0..self.pendings.len() as u32 {
            let Some(Some(pending)) = self.pendings.get(slot as usize) else { continue };
            if pending.deadline > self.now {
                continue;
            }
            let (step, proved) = (pending.awaited(), pending.awaits_verdict());
            if pending.authenticated().is_some() {
                self.reject(slot, Verdict::Refused);
            } else {
                self.pending_failed(slot, proved, &Failure::TimedOut(step));
            }
        }
    }

    /// Loses the peers whose own connection was awaited and has not arrived in time.
    fn expire_attempts(&mut self) {
        let mut at = 0;
        while let Some(endpoint) = self.awaiting_peer.get(at).copied() {
            match self.peers.get(endpoint).map(|entry| &entry.state) {
                Some(ConnState::Connecting(attempts)) if attempts.deadline > self.now => at += 1,
                Some(ConnState::Connecting(_)) => self.lose(endpoint, Lost::TimedOut), // removes it from the list
                _ => drop(self.awaiting_peer.swap_remove(at)),
            }
        }
    }
}
