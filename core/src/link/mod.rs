//! The reliable link: frames arrive exactly once, over a rail that may lose, duplicate, reorder or corrupt them, or break down.
//!
//! A [`Link`] wraps the rail below, and is a [`Rail`](crate::rail::Rail) itself. It numbers the frames and gives each a
//! checksum. It keeps a frame until the peer has acknowledged it, sends it again when it is lost, and hands it up once. When a
//! peer becomes silent, the link reports [`Event::Down`](crate::rail::Event::Down): its frames can migrate to another link, and
//! it probes the peer until the peer answers. Then the link reports [`Event::Up`](crate::rail::Event::Up). (Counterparts:
//! `uct_ud` of UCX, RxD of libfabric, `bfo` of Open MPI.)
//!
//! Either both ends of a rail are links, or neither is. The two ends exchange hellos before the first frame, so the first send to
//! a peer is answered `Busy`. All memory comes from an [`Arena`](crate::arena::Arena), all time from
//! [`Rail::poll`](crate::rail::Rail::poll). A link is used by one thread at a time.
//!
//! - A body of up to [`COPIED`](crate::rail::COPIED) bytes is copied. A longer one stays in the caller's memory until it is
//!   acknowledged and the rail below no longer reads it.
//! - Headers are at most [`LINKED_HEAD`](crate::rail::LINKED_HEAD) bytes long, and tags `0x11` and `0x12` are the link's own.
//!   Other frames are answered [`SendError::TooLong`](crate::rail::SendError::TooLong).
//! - A body whose checksum is wrong is not delivered. It arrives once more into the same sink, and is delivered then.
//!
//! `WIRE.md` specifies the bytes. The data is in `state` and `path`. The behaviour is in files that import these two: `rail`,
//! `progress`, `handshake`, `send`, `transmit`, `send_buffer`, `control`, `acks`, `loss`, `nack`, `receive`, `deliver`,
//! `liveness`, `lifecycle`, `migration` and `gaps`. `README.md` beside this file explains the mechanisms.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::link::{Config, Crc32c, Link};
//! use towline_core::rail::{Event, Lane, Peer, Rail, SendError, Shape, loopback::Hub};
//! use towline_core::time::Instant;
//!
//! let mut block = vec![0u8; 1 << 16];
//! let hub = Hub::new(&mut Arena::new(&mut block), 2, 8, 256).unwrap();
//! let mut blocks = [vec![], vec![]];
//! let mut link = |end: u32, block| {
//!     let raw = hub.rail(end).unwrap();
//!     let config = Config { peers: 1, slots: 8, ..Config::new(0, 1000 + end as u64, raw.attributes()) };
//!     let block: &mut Vec<u8> = block;
//!     block.resize(config.bytes(&raw), 0);
//!     Link::new(raw, Crc32c, config, &mut Arena::new(block)).unwrap()
//! };
//! let [one, other] = &mut blocks;
//! let (mut left, mut right) = (link(0, one), link(1, other));
//! let to_right = left.add_peer(Peer(1), &right.card().to_vec()).unwrap();
//! right.add_peer(Peer(0), &left.card().to_vec()).unwrap();
//!
//! let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 };
//! assert_eq!(left.reserve(to_right, shape).err(), Some(SendError::Busy)); // the handshake comes first
//! for nanos in 0..3 {
//!     // The handshake is reported, so that a user with other links to the peer connects them, too.
//!     assert!(matches!(right.poll(Instant::from_nanos(nanos)), None | Some(Event::Silent(Peer(0), _))));
//!     assert!(matches!(left.poll(Instant::from_nanos(nanos)), None | Some(Event::Silent(Peer(1), _))));
//! }
//! let mut grant = left.reserve(to_right, shape).unwrap();
//! grant.write(0, b"hello");
//! let ticket = grant.finish();
//! left.commit(ticket);
//! let Some(Event::Frame(frame)) = right.poll(Instant::from_nanos(9)) else { panic!() };
//! assert_eq!(frame.head(), b"hello");
//!
//! assert!(!left.drained(to_right), "it is not acknowledged yet");
//! assert!(right.poll(Instant::from_nanos(9)).is_none());
//! let acknowledges_at = right.poll_at().unwrap(); // it waits for a frame that may carry it, but not for long
//! right.poll(acknowledges_at);
//! left.poll(acknowledges_at);
//! assert!(left.drained(to_right));
//! ```

#[cfg_attr(not(feature = "reordering"), path = "only_part.rs")]
mod ack_parts;
mod acks;
mod card;
mod checksum;
mod clock;
mod config;
#[cfg_attr(not(feature = "congestion"), path = "fixed_window.rs")]
mod congestion;
mod control;
mod counters;
mod deliver;
#[cfg_attr(not(feature = "estimates"), path = "fixed_timeout.rs")]
mod estimator;
mod gaps;
mod handshake;
mod header;
mod in_flight;
mod lifecycle;
mod liveness;
mod loss;
mod memory;
mod migration;
mod nack;
mod numbers;
mod path;
#[cfg_attr(not(feature = "mesh"), path = "only_path.rs")]
mod paths;
#[cfg_attr(not(feature = "mesh"), path = "only_queue.rs")]
mod peer_queue;
mod pending_delivery;
mod progress;
mod rail;
mod receive;
#[cfg_attr(not(feature = "reordering"), path = "in_order.rs")]
mod reordering;
mod send;
mod send_buffer;
mod sizes;
mod state;
#[cfg(test)]
pub(crate) mod tests;
#[cfg_attr(not(feature = "mesh"), path = "only_timer.rs")]
mod timers;
mod transmit;

pub use checksum::{Checksum, Crc32c, SmallCrc32c};
pub use config::Config;
pub use counters::Counters;
pub use state::Link;
