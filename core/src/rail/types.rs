//! What the methods of a rail take and return: peers, endpoints, lanes, shapes, and what became of a frame.

/// A body of up to so many bytes is always copied by [`Rail::send`](crate::rail::Rail::send): it is never [`Sent::InPlace`].
pub const COPIED: u64 = 4096;

/// A peer as the engine numbers it: an index into its table of peers. Chosen by the engine, told to rails by
/// [`Rail::add_peer`](crate::rail::Rail::add_peer), and named by them in what they report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Peer(pub u32);

/// A peer as one rail numbers it: given out by [`Rail::add_peer`](crate::rail::Rail::add_peer), handed back on each transfer, otherwise opaque
/// (CONTRACTS P6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, zerocopy::FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Endpoint(pub u32);

/// A word that comes back with the completion of what it was given for. The rail does not look into it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Cookie(pub u64);

/// Names a frame that the rail holds. Meaningful to that rail alone, until the frame is released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct FrameId(pub u64);

/// What a frame is for, which decides the room it takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Lane {
    /// Acks, credits and the like: has room of its own.
    Control,
    /// First fragments; up to [`Attributes::eager_limit`](crate::rail::Attributes::eager_limit).
    Eager,
    /// The rest of long messages; up to [`Attributes::max_send_size`](crate::rail::Attributes::max_send_size).
    Bulk,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Shape {
    /// Whose frame it is at the other side: an active-message tag (CONTRACTS B7).
    pub tag: u8,
    /// What it is for.
    pub lane: Lane,
    /// Bytes of the header, at most [`HEAD`](crate::rail::HEAD). The receiving rail may report the frame once these are in.
    pub header: u8,
    /// Bytes of header and body.
    pub len: u32,
}

/// What [`Liveness::give_up`](crate::rail::Liveness::give_up) gives up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum GiveUp {
    /// This way to the peer, for now: it may come back.
    Link,
    /// The peer: it is lost.
    Peer,
}

/// What became of a frame given to a rail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Sent {
    /// Copied; it travels without further calls.
    Done,
    /// Copied; it travels as the rail is polled. [`Rail::drained`](crate::rail::Rail::drained) tells when it has left.
    Staged,
    /// The body is read where it lies until [`Event::Sent`](crate::rail::Event::Sent).
    InPlace,
}

/// What became of a body asked for by [`Rail::deliver`](crate::rail::Rail::deliver).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Delivery {
    /// All in the sink.
    Done,
    /// Still coming in; [`Event::Delivered`](crate::rail::Event::Delivered) will tell.
    Pending,
}
