//! The memory of a rail.

use crate::config::{Config, MAX_DATAGRAM, MIN_DATAGRAM};
use crate::queues::inbox::BUFFER_BYTES;
use crate::wire::datagram::{PREFIX, SEALED};

impl Config {
    /// Maximum memory of a rail, in bytes: staging, and receive buffers whose pages are touched as they are used. The kernel's
    /// buffers are not included.
    ///
    /// ```
    /// use towline_udp::{Config, JobKey};
    ///
    /// assert!(Config::new(1, 0, JobKey::new([0; 32])).bytes() < 4 << 20);
    /// ```
    pub fn bytes(&self) -> u64 {
        let config = self.clone().clamped();
        u64::from(config.receive_buffers()) * BUFFER_BYTES as u64 + config.staging(MAX_DATAGRAM) as u64
    }
}

const _: () = assert!(PREFIX + SEALED < MIN_DATAGRAM as usize && BUFFER_BYTES >= MAX_DATAGRAM as usize);
