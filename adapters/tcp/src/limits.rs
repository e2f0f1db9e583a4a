//! The memory of a connection.

use towline_core::rail::Event;
use towline_net::Encrypt;

use crate::Config;
use crate::stream::connection::Connection;
use crate::stream::outbox::{MAX_CONTROL_FRAMES, MAX_IN_PLACE, QueuedFrame};
use crate::stream::records;
use crate::wire::framing::PREFIX;

impl Config {
    /// Maximum memory of a connection, in bytes: staging in both directions and the tables beside it. Of the defaults' 1.5 MiB, 1
    /// MiB is address space until a reader waits for a complete long frame; pages of the rest are touched as they are used. The
    /// kernel's buffers are not included; unless they are set here, `tcp_wmem` and `tcp_rmem` limit them.
    ///
    /// ```
    /// use towline_tcp::{Config, JobKey};
    ///
    /// let config = Config::new(1, 0, JobKey::new([0; 32]));
    /// assert!((1 << 20..1600 << 10).contains(&config.bytes_per_connection()));
    /// ```
    pub fn bytes_per_connection(&self) -> u64 {
        let config = self.clone().clamped();
        let frames = MAX_CONTROL_FRAMES as u64 + u64::from(config.send_queue_frames);
        let send_staging = u64::from(config.control_staging_bytes) + u64::from(config.send_staging_bytes);
        let receive_staging = config.receive_staging_bytes.max(config.max_send_size_bytes + PREFIX as u32);
        let tables = frames * size_of::<QueuedFrame>() as u64 + size_of::<Connection>() as u64;
        let events = MAX_IN_PLACE as u64 * size_of::<(u32, Event)>() as u64;
        let records = if config.encrypt == Encrypt::Off { 0 } else { records::BYTES as u64 };
        send_staging + u64::from(receive_staging) + tables + events + records
    }
}
