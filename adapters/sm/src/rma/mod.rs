//! Memory for one-sided operations that peers map, so that they put, get and use atomics without any action by its owner.
//!
//! A [`SharedRegion`] is a file without a name (`memfd`), whose descriptor its owner keeps open. A peer opens it through the
//! owner's entry in `/proc`, at its first operation on the region. That needs the same user, a `/proc` that shows the owner, and
//! permission to look at the owner. A peer that lacks one of these sends its operations in frames. The same happens with memory
//! that is not a shared region, and with an access that the mapping does not allow; in that case the target reports the error.
//! So a stale or forged key, or an offset out of bounds, only makes the peer send a frame.
//!
//! # What sharing memory means
//! Any process of the same user that finds a region can map it. It can then read and change the whole region at any time, like a
//! thread of the owner. *Rights are enforced by the kernel or by the target.* A region with all rights is mapped writable. A
//! region that peers may only get from is sealed so that only its owner can map it writable. A region with any other rights is
//! not mapped at all, and the target checks each operation.
//!
//! # What a peer cannot do
//! A peer cannot shorten the file, which is sealed before any peer learns of it, so that no access ends in a bus error. A peer
//! cannot make us map any other file: we map only files that are sealed in this way, belong to our user, and contain the number
//! in the key, which the owner drew at random when it made the region. Each operation is checked against the bounds of the
//! mapping. The process id is that of the peer's card. A peer that gives the process id of another process can name only a region
//! of that process, and it had access to that region before.
//!
//! # When a region ends
//! The owner clears the region's state word in its first page, and drops its mapping and the file. Peers look at the state
//! word before each operation, and from time to time when there are none, and then drop their mappings. A peer that is in the
//! middle of a copy then finishes the copy in pages that no other process uses: a region is registered once, and never used
//! for other memory.

mod key;
mod mapping;
mod own;
mod peer;
mod region;

pub use own::{ALL_OPERATIONS, OwnRegions};
pub use peer::PeerRegions;
pub use region::SharedRegion;
