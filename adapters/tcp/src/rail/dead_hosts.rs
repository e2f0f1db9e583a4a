//! Hosts that answer no more while something is on its way to them.
//!
//! As long as nothing is, the kernel asks by itself ([`options`](crate::system::options)). Where something is, it does not ask, but
//! sends that again and again, for a quarter of an hour; so the rail looks now and then how long the last answer is ago.
//! A rank that reads nothing is answered for by its kernel, so it is not given up, for however long.

use std::os::fd::AsRawFd;

use towline_core::rail::Lost;

use crate::rail::connect::span;
use crate::rail::{Rail, Way};
use crate::system::socket as sys;

/// Looks in the time after which a host is given up.
const LOOKS: u32 = 4;
/// Tries of the kernel without an answer, at least, before a host is given up: an answer that is late is no death.
const TRIES: u32 = 2;

impl Rail {
    /// Begins to look after hosts, once there is a connection.
    pub(crate) fn begin_watch(&mut self) {
        if self.watch_at.is_none() && !self.config.dead_host_timeout.is_zero() {
            let at = self.now + span(self.config.dead_host_timeout / LOOKS);
            self.watch_at = Some(at);
            self.note_deadline(at);
        }
    }

    /// Gives up hosts that do not answer; goes on while there are connections.
    #[cold]
    pub(crate) fn watch_hosts(&mut self) {
        self.watch_at = None;
        let limit = self.config.dead_host_timeout;
        for endpoint in 0..self.peers.len() as u32 {
            let Some(Way::Up(stream)) = self.entry(endpoint).map(|entry| &entry.way) else { continue };
            let Some(answers) = sys::answers(stream.socket.as_raw_fd()) else { continue };
            if answers.tries >= TRIES && answers.silence >= limit {
                log::error!("tcp: the host at {} has not answered for {:?}", stream.remote, answers.silence);
                self.lose(endpoint, Lost::TimedOut);
            }
        }
        if self.up != 0 {
            self.begin_watch();
        }
    }
}
