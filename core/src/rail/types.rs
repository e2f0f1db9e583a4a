//! The types that the methods of a rail take and return: peers, endpoints, lanes, shapes, and results.

/// A body of up to this many bytes is always copied by [`Rail::send`](crate::rail::Rail::send): it is never [`Sent::InPlace`].
pub const COPIED: u64 = 4096;

/// The engine's number of a peer: an index into the engine's table of peers. A rail learns it by
/// [`Rail::add_peer`](crate::rail::Rail::add_peer), and names the peer by it in events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Peer(pub u32);

/// One rail's number of a peer. [`Rail::add_peer`](crate::rail::Rail::add_peer) returns it, and each transfer takes it. Only
/// the rail interprets it (CONTRACTS P6). (Counterparts: BTL endpoint, `uct_ep`, `fi_addr_t`.)
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, zerocopy::FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Endpoint(pub u32);

/// A word by which the caller recognises an operation. The completion of the operation returns it. The rail does not interpret
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Cookie(pub u64);

/// The name of a frame that the rail holds. Only that rail interprets it. It is valid until the frame is released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct FrameId(pub u64);

/// The purpose of a frame, which decides which of the rail's room the frame takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Lane {
    /// Acknowledgements, credits and the like. They have room of their own.
    Control,
    /// First fragments. A frame has up to [`Attributes::eager_limit`](crate::rail::Attributes::eager_limit) bytes.
    Eager,
    /// The rest of long messages. A frame has up to [`Attributes::max_send_size`](crate::rail::Attributes::max_send_size)
    /// bytes.
    Bulk,
}

/// The shape of a frame.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Shape {
    /// The active-message tag: which layer of the other side the frame belongs to (CONTRACTS B7).
    pub tag: u8,
    /// The purpose of the frame.
    pub lane: Lane,
    /// Bytes of the header, at most [`HEAD`](crate::rail::HEAD). The receiving rail may report the frame once these have arrived.
    pub header: u8,
    /// Bytes of header and body.
    pub len: u32,
}

/// What [`Liveness::give_up`](crate::rail::Liveness::give_up) declares as failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum GiveUp {
    /// The link to the peer. It may come up again.
    Link,
    /// The peer, which is lost then.
    Peer,
}

/// The state of a frame that was given to a rail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Sent {
    /// The frame is copied, and is sent without further calls.
    Done,
    /// The frame is copied, and is sent as the rail is polled. [`Rail::drained`](crate::rail::Rail::drained) says whether it
    /// was sent.
    Staged,
    /// The rail reads the body in the caller's memory until [`Event::Sent`](crate::rail::Event::Sent).
    InPlace,
}

/// The state of a body that [`Rail::deliver`](crate::rail::Rail::deliver) was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Delivery {
    /// The body is in the sink.
    Done,
    /// The body is still arriving. [`Event::Delivered`](crate::rail::Event::Delivered) will report that it is in the sink.
    Pending,
}
