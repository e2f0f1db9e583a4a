//! Reliable frames over one rail that may lose, double, reorder or change them, or break down.
//!
//! A [`Link`] wraps a raw rail and is a [`Rail`](crate::rail::Rail) itself. Frames get numbers and checks; they are kept until the peer has
//! acknowledged them, resent when they are lost, and handed up once. A peer that falls silent is [`Event::Down`](crate::rail::Event::Down): its
//! frames can move to another link, and it is probed until it answers, which is [`Event::Up`](crate::rail::Event::Up).
//!
//! Both ends of a rail are links, or neither is. The two greet each other before the first frame, so the first send to a
//! peer is answered `Busy`. All memory comes from an [`Arena`](crate::arena::Arena), all time from [`Rail::poll`](crate::rail::Rail::poll).
//!
//! - A body of up to [`COPIED`](crate::rail::COPIED) bytes is copied; a longer one stays where it is until it is
//!   acknowledged and the raw rail reads it no more.
//! - Headers are at most [`LINKED_HEAD`](crate::rail::LINKED_HEAD) bytes long, and tags `0x11` and `0x12` are the link's own:
//!   other frames are answered [`SendError::TooLong`](crate::rail::SendError::TooLong).
//! - A body whose sum is wrong is not told of: it comes once more into the same sink, and then is.
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
//! assert_eq!(left.reserve(to_right, shape).err(), Some(SendError::Busy)); // they have to meet first
//! for nanos in 0..3 {
//!     // Who has other links to that peer has them greet it too.
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
//! let acknowledges_at = right.poll_at().unwrap(); // it waits for a frame to go with, but not for long
//! right.poll(acknowledges_at);
//! left.poll(acknowledges_at);
//! assert!(left.drained(to_right));
//! ```

mod ack_parts;
mod acks;
mod card;
mod checksum;
mod config;
mod congestion;
mod control;
mod counters;
mod deliver;
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
mod missing;
mod numbers;
mod path;
mod pending_delivery;
mod progress;
mod rail;
mod receive;
mod reordering;
mod send;
mod send_buffer;
mod sizes;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod timers;
mod transmit;

pub use checksum::{Checksum, Crc32c};
pub use config::Config;
pub use counters::Counters;
pub use state::Link;
