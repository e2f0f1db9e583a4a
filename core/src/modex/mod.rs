//! The module exchange: each component publishes some bytes, and finds what its counterpart in each peer published.
//!
//! A rail that must be found by its peers sends its card (address, port, segment name) during set-up and reads the
//! peers' cards when they are added. Who may read is decided by [`Component::corresponds`]. How the bytes travel is the
//! business of whoever implements [`Modex`]: a launcher's socket, PMIx, a mailbox to firmware. [`Board`] is the part
//! that they share: one process's knowledge, without any I/O, that writes its own [`Set`] and absorbs those of others.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::modex::{Board, BoardConfig, Component, Exchange, Modex, Version};
//! use towline_core::time::Instant;
//!
//! let v = Version::new(1, 0, 0);
//! let tcp = Component { mca: v, kind: "btl", kind_version: v, name: "tcp", version: v };
//! let mut memory = [[0u8; 4096]; 2];
//! let mut ranks = memory.iter_mut().zip(0..).map(|(memory, me)| {
//!     Board::new(BoardConfig { me, size: 2, ..BoardConfig::default() }, &mut Arena::new(memory)).unwrap()
//! });
//! let (mut zero, mut one) = (ranks.next().unwrap(), ranks.next().unwrap());
//!
//! zero.send(&tcp, b"10.0.0.1:4000").unwrap();
//! let mut wire = [0u8; 256];
//! let length = zero.encode(&mut wire).unwrap();
//! one.absorb(&wire[..length]).unwrap();
//!
//! let (now, deadline) = (Instant::ZERO, Instant::from_nanos(1));
//! assert_eq!(one.exchange(now, deadline), Ok(Exchange::Done));
//! assert_eq!(zero.exchange(now, deadline), Ok(Exchange::Pending)); // nothing of rank 1 came yet
//! let mut card = [0u8; 64];
//! let length = one.recv(&tcp, 0, &mut card).unwrap();
//! assert_eq!(&card[..length], b"10.0.0.1:4000");
//! ```

use crate::time::Instant;

mod board;
mod bytes;
mod component;
mod errors;
mod instances;
mod set;

pub use board::{AbsorbError, Absorbed, Board, BoardConfig};
pub use component::{Component, Version};
pub use errors::{ExchangeError, RecvError, SendError, WatchError};
pub use instances::{Instances, InstancesError};
pub use set::{Edition, Entry, NoRoom, Set, SetError, SetWriter, entry_size};

/// The module exchange as components see it. Making the value is `init`; nothing here blocks.
///
/// Not for simultaneous callers: every operation takes `&mut self`.
pub trait Modex {
    /// This process's rank in the job.
    fn rank(&self) -> u32;

    /// Number of processes in the job.
    fn size(&self) -> u32;

    /// Publishes `data` for the corresponding components of all peers. The data is copied before this returns, so the
    /// caller's buffer is free at once. A second call for the same component replaces the data, and peers that watch
    /// it hear of it, even where the bytes are the same. Data must not depend on the machine's byte order or pointer
    /// size.
    ///
    /// # Errors
    /// [`SendError`]; what was published before is still published then.
    fn send(&mut self, component: &Component<'_>, data: &[u8]) -> Result<(), SendError>;

    /// Copies what the corresponding component of `peer` published last into `into`, and gives its length. The own
    /// rank is a peer like any other. A peer's data is there at the latest when [`exchange`](Self::exchange) is done.
    ///
    /// # Errors
    /// [`RecvError`]; [`NotYet`](RecvError::NotYet) and [`NotFound`](RecvError::NotFound) tell "may still come" from
    /// "published nothing".
    fn recv(&mut self, component: &Component<'_>, peer: u32, into: &mut [u8]) -> Result<usize, RecvError>;

    /// Subscribes to what the corresponding component of `peer` publishes: each publication from now on, also a second
    /// one and one after a restart of the peer, makes a [`Change`]. If there is data already, the first change
    /// comes at once. Publications between two calls of [`next_change`](Self::next_change) make one change together.
    /// Subscribing again gives the same watch.
    ///
    /// # Errors
    /// [`WatchError`] where nothing is watched.
    fn recv_nb(&mut self, component: &Component<'_>, peer: u32) -> Result<Watch, WatchError>;

    /// The next change that was not reported yet. The data itself is read with [`recv`](Self::recv), which says
    /// [`NotFound`](RecvError::NotFound) where a restarted peer no longer publishes it.
    fn next_change(&mut self) -> Option<Change>;

    /// Makes this process's publications known, and asks whether those of all peers are here. To be called again
    /// while [`Exchange::Pending`]; once done, a further call costs nothing and is done again.
    ///
    /// # Errors
    /// [`ExchangeError::Timeout`] when `now` has reached `deadline` and a peer's publications are still missing; the
    /// exchange may be called again with a later deadline.
    fn exchange(&mut self, now: Instant, deadline: Instant) -> Result<Exchange, ExchangeError>;

    /// Ends all use: every later operation says `Closed`, watches and changes are gone. May be called again.
    fn finalize(&mut self);
}

/// Names one subscription, for as long as the exchange is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Watch(u64);

impl Watch {
    /// The watch with that number: for those who implement [`Modex`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number of the watch.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

/// A peer published what somebody watches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Change {
    /// The subscription.
    pub watch: Watch,
    /// Whose data changed.
    pub peer: u32,
}

/// How far an exchange is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Exchange {
    /// Every peer's publications are here.
    Done,
    /// Some are missing, and there is time left.
    Pending,
}
