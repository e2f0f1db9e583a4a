//! Matching: which posted receive takes an arriving message, and which arrived message a new receive takes.
//!
//! The rules are MPI's. A message goes to the receive that was *posted first* among those that accept it, with wildcards or
//! without. A receive takes the message that *arrived first* among those that it accepts.
//!
//! Both searches take a constant number of steps on average, however many receives and messages there are: posted receives of all
//! four kinds (with wildcards for the source, the tag, both or none) and unexpected messages are hashed, and entries with equal
//! keys queue behind one head. There is one exception: a receive with a wildcard walks the unexpected messages in order of
//! arrival. The hash is keyed, so a peer cannot choose tags that make the searches long.
//!
//! Without the feature `indexes`, both searches walk a list: for devices with few receives and messages.
//!
//! The matcher knows only slot numbers: those of the pool of requests, and those of the pool of unexpected messages. It is used
//! by one thread at a time. Its tables are in memory from the [`Arena`](crate::arena::Arena).
//!
//! ```
//! use towline_core::{arena::Arena, pml::matching::{ANY, Key, Matcher, Pattern}};
//!
//! let mut block = [0u8; Matcher::cost(16, 32)];
//! let mut matcher = Matcher::new(&mut Arena::new(&mut block), 16, 32, 0x5eed).unwrap();
//! matcher.post(3, Pattern { context: 0, source: ANY, tag: 7 });
//! matcher.post(4, Pattern { context: 0, source: 1, tag: 7 });
//! let key = Key { context: 0, source: 1, tag: 7 };
//! assert_eq!(matcher.take_posted(&key), Some(3)); // posted before the exact one
//! assert_eq!(matcher.take_posted(&key), Some(4));
//! assert_eq!(matcher.take_posted(&key), None);
//! matcher.add_unexpected(0, key);
//! assert_eq!(matcher.find_unexpected(&Pattern { context: 0, source: 1, tag: ANY }), Some(0));
//! assert!(matcher.remove_unexpected(0));
//! ```

mod key;
mod matcher;
mod meter;
#[cfg_attr(not(feature = "indexes"), path = "lists.rs")]
mod tables;
#[cfg(all(test, feature = "indexes"))]
mod tests;

pub use key::{ANY, INTERNAL_TAGS, Key, Pattern};
pub use matcher::Matcher;
pub use meter::Counters;
pub(super) use tables::HeldTable;
