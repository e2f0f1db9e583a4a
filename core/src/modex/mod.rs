//! The module exchange (modex): each component publishes some bytes, and reads the bytes of its counterpart in each peer.
//!
//! A rail publishes its card (address, port, segment name) during set-up, and reads the cards of its peers when they are added.
//! [`Component::corresponds`] says which components are counterparts. The bytes travel by an implementation of [`Modex`]: a
//! launcher's socket, PMIx, a mailbox to firmware. [`Store`] is the part that implementations share: it keeps the publications
//! that a process knows, without any I/O, writes the process's own [`Set`], and merges the sets of others.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::modex::{Store, StoreConfig, Component, Exchange, Modex, Version};
//! use towline_core::time::Instant;
//!
//! let v = Version::new(1, 0, 0);
//! let tcp = Component { mca: v, kind: "btl", kind_version: v, name: "tcp", version: v };
//! let mut memory = [[0u8; 4096]; 2];
//! let mut ranks = memory.iter_mut().zip(0..).map(|(memory, me)| {
//!     Store::new(StoreConfig { me, size: 2, ..StoreConfig::default() }, &mut Arena::new(memory)).unwrap()
//! });
//! let (mut zero, mut one) = (ranks.next().unwrap(), ranks.next().unwrap());
//!
//! zero.send(&tcp, b"10.0.0.1:4000").unwrap();
//! let mut wire = [0u8; 256];
//! let length = zero.encode(&mut wire).unwrap();
//! one.merge(&wire[..length]).unwrap();
//!
//! let (now, deadline) = (Instant::ZERO, Instant::from_nanos(1));
//! assert_eq!(one.exchange(now, deadline), Ok(Exchange::Done));
//! assert_eq!(zero.exchange(now, deadline), Ok(Exchange::Pending)); // no set of rank 1 has arrived
//! let mut card = [0u8; 64];
//! let length = one.recv(&tcp, 0, &mut card).unwrap();
//! assert_eq!(&card[..length], b"10.0.0.1:4000");
//! ```

use crate::time::Instant;

mod bytes;
mod component;
mod errors;
mod instances;
mod set;
mod store;

pub use component::{Component, Version};
pub use errors::{ExchangeError, RecvError, SendError, WatchError};
pub use instances::{Instances, InstancesError};
pub use set::{Entry, NoRoom, Set, SetError, SetWriter, Stamp, entry_size};
pub use store::{MergeError, Merged, Store, StoreConfig};

/// The module exchange, for components. The constructor of an implementation is `init`. No method blocks.
///
/// Threads cannot share it: every operation takes `&mut self`.
pub trait Modex {
    /// The rank of this process in the job.
    fn rank(&self) -> u32;

    /// The number of processes in the job.
    fn size(&self) -> u32;

    /// Publishes `data` for the corresponding components of all peers. The data is copied before this returns. A second call for
    /// the same component replaces the data, and peers that watch it get a change, even if the bytes are the same. The format of
    /// the data must not depend on the machine's byte order or pointer size.
    ///
    /// # Errors
    /// [`SendError`]: then data that was published before stays published.
    fn send(&mut self, component: &Component<'_>, data: &[u8]) -> Result<(), SendError>;

    /// Copies the newest data of the corresponding component of `peer` to `into`. Returns its length in bytes. This
    /// process is a peer like any other. When [`exchange`](Self::exchange) is done, the data of all peers has arrived.
    ///
    /// # Errors
    /// [`RecvError`]. [`NotYet`](RecvError::NotYet) means that data may still arrive, [`NotFound`](RecvError::NotFound) that the
    /// peer has published none.
    fn recv(&mut self, component: &Component<'_>, peer: u32, into: &mut [u8]) -> Result<usize, RecvError>;

    /// Subscribes to the data of the corresponding component of `peer`. Each publication from now on makes a [`Change`],
    /// including later ones and those after a restart of the peer. If there is data already, the first change comes at once.
    /// Several publications between two calls of [`next_change`](Self::next_change) make one change. A second subscription
    /// returns the same watch.
    ///
    /// # Errors
    /// [`WatchError`]: then the data is not watched.
    fn recv_nb(&mut self, component: &Component<'_>, peer: u32) -> Result<Watch, WatchError>;

    /// The next change that was not reported yet. [`recv`](Self::recv) reads the data; it returns
    /// [`NotFound`](RecvError::NotFound) if a restarted peer does not publish it any more.
    fn next_change(&mut self) -> Option<Change>;

    /// Sends this process's publications to all peers, and checks whether the publications of all peers have arrived. The caller
    /// calls again while it returns [`Exchange::Pending`]. After it has returned [`Exchange::Done`], further calls return the
    /// same and cost nothing.
    ///
    /// # Errors
    /// [`ExchangeError::Timeout`] if `now` has reached `deadline` and the publications of a peer are missing. The caller may call
    /// again with a later deadline.
    fn exchange(&mut self, now: Instant, deadline: Instant) -> Result<Exchange, ExchangeError>;

    /// Ends the exchange: every later operation returns `Closed`, and watches and changes do not exist any more. It may be
    /// called again.
    fn finalize(&mut self);
}

/// The handle of a subscription. It is valid until the exchange is finalized.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Watch(u64);

impl Watch {
    /// The watch with this number, for implementations of [`Modex`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number of the watch.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

/// Watched data of a peer has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Change {
    /// The subscription.
    pub watch: Watch,
    /// The peer whose data has changed.
    pub peer: u32,
}

/// The state of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Exchange {
    /// The publications of all peers have arrived.
    Done,
    /// Publications of some peers are missing, and the deadline has not passed.
    Pending,
}
