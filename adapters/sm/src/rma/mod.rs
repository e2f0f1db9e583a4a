//! Memory for one-sided operations that peers map, so that they put, get and use atomics without any action by its owner. One of
//! the three modules that access mapped memory.
//!
//! A [`SharedRegion`] is a file without a name (`memfd`), whose descriptor its owner keeps open. A peer opens it through the
//! owner's entry in `/proc`, at its first operation on the region. That needs the same user, a `/proc` that shows the owner, and
//! permission to look at the owner. A peer that lacks one of these sends its operations in frames, as for memory that is no
//! shared region, and as for any access that the mapping does not allow: then the target reports the error. So a key that is
//! stale, forged or out of bounds only makes the peer send a frame.
//!
//! # What sharing memory means
//! A process that may read and change a region, which is any process of the same user that finds it, does so without asking,
//! anywhere in the region and at any time, like a thread of its owner. *Rights are enforced by the kernel or by the target*: a
//! region with all rights is mapped writable. A region that peers may only get from is sealed so that only its owner can map
//! it writable. With any other rights a region is not mapped at all.
//!
//! # What a peer cannot do
//! A peer cannot shorten the file, which is sealed before any peer learns of it, so that no access ends in a bus error. Nor can a
//! peer make us map a file that is not sealed so, or belongs to another user, or does not begin with the number in the key, which
//! the owner drew at random when it made the region. Bounds are those of the mapping. The process id is that of the peer's card; a
//! peer that gives the process id of another process can name at most a region of that other process, to which the peer had access
//! before.
//!
//! # When a region ends
//! The owner clears the region's state word in its first page, and drops its mapping and the file. Peers look at the state word
//! before each operation, and from time to time when there are none, and then drop their mappings. A peer that is in the middle of
//! a copy then finishes the copy in pages that no other process uses: a region is registered once, and never used for other
//! memory.

mod key;
mod mapping;
mod own;
mod peer;
mod region;

pub use own::{ALL_OPERATIONS, OwnRegions};
pub use peer::PeerRegions;
pub use region::SharedRegion;
