//! Hosts that do not answer while data is in flight to them.
//!
//! While no data is in flight, the kernel sends keepalive probes ([`options`](crate::system::options)). While data is in flight,
//! it retransmits instead, for a quarter of an hour; so the rail looks at intervals how old the last acknowledgement is. The
//! kernel of a rank that reads nothing acknowledges nevertheless, so such a rank is never lost.

use std::os::fd::AsRawFd;

use towline_core::rail::Lost;
use towline_net::time::core_duration;

use crate::rail::Rail;
use crate::rail::peer::ConnState;
use crate::system::socket as sys;

/// Checks in the time after which a host counts as dead.
const CHECKS: u32 = 4;
/// Smallest number of retransmissions and probes without an answer before a host counts as dead: one late answer does not mean
/// death.
const ATTEMPTS: u32 = 2;

impl Rail {
    /// Begins to check hosts, once there is a connection.
    pub(super) fn schedule_host_check(&mut self) {
        if self.check_hosts_at.is_none() && !self.config.dead_host_timeout.is_zero() {
            let at = self.now + core_duration(self.config.dead_host_timeout / CHECKS);
            self.check_hosts_at = Some(at);
            self.note_deadline(at);
        }
    }

    /// Loses the peers whose hosts do not answer. Goes on while there are connections.
    #[cold]
    pub(super) fn check_hosts(&mut self) {
        self.check_hosts_at = None;
        let limit = self.config.dead_host_timeout;
        for endpoint in 0..self.peers.endpoints() {
            let state = self.peers.get(endpoint).map(|entry| &entry.state);
            let Some(ConnState::Connected(connection)) = state else { continue };
            let Some(host) = sys::responsiveness(connection.socket.as_raw_fd()) else { continue };
            if host.attempts >= ATTEMPTS && host.silence >= limit {
                log::error!("tcp: the host at {} has not answered for {:?}", connection.remote, host.silence);
                self.lose(endpoint, Lost::TimedOut);
            }
        }
        if self.connected != 0 {
            self.schedule_host_check();
        }
    }
}
