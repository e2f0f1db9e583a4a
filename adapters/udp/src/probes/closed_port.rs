//! Whether a port that a report (ICMP) says is closed is really closed.
//!
//! A report is only a hint: any process that can send raw datagrams can forge one, and a firewall may temporarily refuse
//! datagrams that it accepts later. So the port is sent a random nonce at intervals. Only a report that quotes the nonce counts,
//! as that nonce was on its way to the host. The peer is lost only if several such reports arrive in a row, for some time, and no
//! authenticated datagram of the peer arrives meanwhile.

use towline_core::time::{Duration, Instant};

/// Time between two nonces.
const INTERVAL: Duration = Duration::from_millis(100);
/// Number of nonces that must be reported before the port counts as closed, without an authenticated datagram meanwhile.
const REPORTS: u8 = 3;
/// Shortest time between the first of these reports and the last.
const PERSISTS: Duration = Duration::from_millis(400);
/// Time without another report after which the check ends. Some hosts send one report per second.
const DURATION: Duration = Duration::from_millis(3000);

/// Random bytes that tell a report of a nonce from other reports.
pub(crate) type PortNonce = [u8; 16];

/// The check of a port that was reported closed, of a peer with a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosedPortCheck {
    nonce: PortNonce,
    /// When the next nonce is sent.
    next: Instant,
    until: Instant,
    /// A nonce was sent, and its report has not arrived.
    sent: bool,
    /// Reports since the last authenticated datagram, and when the first of them arrived.
    reports: u8,
    since: Instant,
}

impl ClosedPortCheck {
    pub(crate) fn new(nonce: PortNonce, now: Instant) -> Self {
        Self { nonce, next: now, until: now + DURATION, sent: false, reports: 0, since: now }
    }

    /// The bytes to send.
    pub(crate) const fn nonce(&self) -> PortNonce {
        self.nonce
    }

    /// Whether the check still goes on.
    pub(crate) fn is_active(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Whether a nonce is to be sent now, and when the next one is due.
    pub(crate) fn poll(&mut self, now: Instant) -> (bool, Instant) {
        let due = self.next <= now;
        if due {
            (self.next, self.sent) = (now + INTERVAL, true);
        }
        (due, self.next)
    }

    /// An authenticated datagram of the peer has arrived.
    pub(crate) const fn refute(&mut self) {
        self.reports = 0;
    }

    /// A report has arrived that quotes these bytes. Returns whether the port is closed.
    pub(crate) fn on_report(&mut self, quoted: &[u8], now: Instant) -> bool {
        if !self.sent || !quoted.starts_with(&self.nonce) {
            return false;
        }
        if self.reports == 0 {
            self.since = now;
        }
        (self.sent, self.until) = (false, now + DURATION);
        self.reports = self.reports.saturating_add(1);
        self.reports >= REPORTS && self.since + PERSISTS <= now
    }
}
