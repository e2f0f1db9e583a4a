//! The trait that adapters implement: a rail carries frames to and from peers.
//!
//! A frame is a tag, a short header and a body. To send, room is reserved in the rail's own memory, filled, and
//! committed; or [`Rail::send`] does all three, and may leave a long body where it is. To receive, the rail is polled:
//! it names a frame by its first bytes, and the reader then says where the rest belongs, so nothing is copied twice.
//!
//! # Contract
//! - A rail delivers each committed frame at most once, whole. A rail without `NEED_ACK` delivers it exactly once, or
//!   reports the peer lost. Frames to one peer may overtake each other.
//! - No method blocks. A full rail answers [`SendError::Busy`]; what was asked is asked again later. Room for
//!   [`Lane::Control`] is apart from the others': bulk data cannot keep control frames from leaving for ever.
//! - A frame that is not longer than [`HEAD`] is handed over whole in [`Frame::head`] and is already released.
//!   Any other stays until `deliver` or `release`; with [`Attributes::frames_kept`] of them held, `poll` yields no more
//!   frames.
//! - Bytes come from a peer that may lie. The rail checks what it needs for itself (lengths, positions); it passes
//!   on the rest unread.
//! - A rail that answers [`SendError::Unreachable`] for an endpoint that it gave out, and was not told to forget, reports
//!   [`Event::Lost`] for that peer: by polling alone, in bounded time, once, and after the frames of the peer that have
//!   arrived. The answer by itself ends nothing: whoever sends waits for the report.
//! - After [`Event::Lost`] the rail touches no memory that was given for that peer, no event of it follows, and sends to
//!   it are answered `Unreachable`.
//! - Methods are called by one thread at a time.

use core::fmt;
use core::marker::PhantomData;

use super::Attributes;
use super::access::Access;
use super::moved::{Claim, Origin, Orphan};
use super::native::{Key, Native, NativeError, Region};
use crate::convertor::Span;
use crate::error::Blame;
use crate::time::Instant;

/// Bytes of a frame that come with [`Event::Frame`]: what fits in one 64-byte slot beside the slot's own mark.
/// Headers are never longer.
pub const HEAD: usize = 56;

/// Bytes of a [`Loan`]: with the header of a rendezvous they make up one head.
pub const LOAN: usize = 16;

/// A body of up to so many bytes is always copied by [`Rail::send`]: it is never [`Sent::InPlace`].
pub const COPIED: u64 = 4096;

/// A peer as the engine numbers it: an index into its table of peers. Chosen by the engine, told to rails by
/// [`Rail::add_peer`], and named by them in what they report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Peer(pub u32);

/// A peer as one rail numbers it: given out by [`Rail::add_peer`], handed back on each transfer, otherwise opaque
/// (CHECKLIST P6).
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

/// How the other end of a rail finds memory that was lent to it (see [`Rail::lend`]). Opaque to all but that rail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Loan(pub [u8; LOAN]);

/// What a frame is for, which decides the room it takes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Lane {
    /// Acks, credits and the like: has room of its own.
    Control,
    /// First fragments; up to [`Attributes::eager_limit`].
    Eager,
    /// The rest of long messages; up to [`Attributes::max_send_size`].
    Bulk,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Shape {
    /// Whose frame it is at the other side: an active-message tag (CHECKLIST B7).
    pub tag: u8,
    /// What it is for.
    pub lane: Lane,
    /// Bytes of the header, at most [`HEAD`]. The receiving rail may report the frame once these are in.
    pub header: u8,
    /// Bytes of header and body.
    pub len: u32,
}

/// A path to peers. See the [module](self) for the contract.
pub trait Rail {
    /// Name, promises, limits and rank.
    fn attributes(&self) -> &Attributes;

    /// What peers need to reach this rail, to be published by modex: endian-neutral bytes, opaque to others.
    fn card(&self) -> &[u8];

    /// Makes a peer known, from the card that its rail published. Local: the connection itself may come on first use.
    ///
    /// # Errors
    /// [`Unreachable`] says why this rail is no way to that peer; the rail is unchanged then.
    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable>;

    /// Forgets a peer and frees what was kept for it. Nothing is reported for it afterwards, and memory given for it
    /// is no longer touched. The peer may be added again.
    fn del_peer(&mut self, endpoint: Endpoint);

    /// Reserves room for one frame. A grant that is dropped is void: nothing is sent.
    ///
    /// # Errors
    /// [`SendError`]; nothing is reserved then.
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError>;

    /// Sends what was written to a grant, whole. The ticket is the last one that this rail gave out.
    fn commit(&mut self, ticket: Ticket) -> Sent;

    /// Sends one frame: header, then `body`. Where it answers [`Sent::InPlace`], the body's memory is read until
    /// [`Event::Sent`] with `cookie`. A body of up to [`COPIED`] bytes is always copied.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent and no memory is held then.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging until this returns, and after `InPlace` until [`Event::Sent`] with
    /// `cookie`, [`Event::Lost`] of that peer, or `del_peer`.
    #[inline(always)]
    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        let _ = cookie;
        let mut grant = self.reserve(to, shape)?;
        grant.write(0, header);
        // SAFETY: the caller vouches for the body until this returns.
        unsafe { grant.gather(header.len(), body) };
        let ticket = grant.finish();
        Ok(self.commit(ticket))
    }

    /// Sends a frame of the eager lane with a header of 24 bytes, given as words, least significant byte first, and a body
    /// of up to [`COPIED`] bytes, if that takes no more than to write them down. A rail may answer [`SendError::Busy`]
    /// where [`send`](Self::send) finds room, so who is told that goes there.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent then.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging until this returns.
    #[inline(always)]
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { send_by_grant(self, to, tag, header, body) }
    }

    /// Prepares the [`Attributes::cache_bytes`] of a request that enters this rail's cache (P18): once, not on each use.
    fn request_init(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    /// Undoes [`request_init`](Self::request_init), when the request leaves the cache (P19).
    fn request_fini(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    /// As [`send`](Self::send), for a request with its cache bytes; `None` where it is not cached (P16).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// As [`send`](Self::send).
    #[inline]
    unsafe fn send_request(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
        extra: Option<&mut [u8]>,
    ) -> Result<Sent, SendError> {
        let _ = extra;
        // SAFETY: passed on from the caller.
        unsafe { self.send(to, shape, header, body, cookie) }
    }

    /// As [`send`](Self::send), for a body whose sum the header tells, so that the other end believes no other. A rail may give
    /// the device the memory itself where it copies otherwise, and count that as copied: the device may read it, and send what
    /// it finds there, after the caller was told that it is read no more.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// As [`send`](Self::send).
    #[inline]
    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.send(to, shape, header, body, cookie) }
    }

    /// Lends the memory of `body` to a peer, whose rail may [`fetch`](Self::fetch) it from there. `None` where this rail
    /// cannot, or where copies through frames are the better way for so many bytes. Nothing is kept for a loan, so it need
    /// not be returned. The memory may be read until [`Event::Lost`] of that peer, `del_peer` or [`recall`](Self::recall), from
    /// which on fetching it fails at the other end; whoever wants the peer to read what is there now leaves it as it is until the
    /// peer has said that it is done with it. What others write there meanwhile makes the bytes arbitrary, and no more.
    #[inline]
    fn lend(&mut self, to: Endpoint, body: &Span) -> Option<Loan> {
        let _ = (to, body);
        None
    }

    /// Copies the first bytes of what a peer has lent into `sink`, as many as that takes, and tells whether it could: if
    /// not, they have to come in frames, and what is in the sink is void. The loan comes from a peer that may lie: a
    /// forged one brings bytes of that peer's own, or none.
    ///
    /// # Safety
    /// The sink's memory is writable, and nobody else accesses it, until this returns.
    #[inline]
    unsafe fn fetch(&mut self, from: Endpoint, loan: &Loan, sink: Span) -> bool {
        let _ = (from, loan, sink);
        false
    }

    /// Bytes that may be fetched at a time of what a peer lends; 0: nothing can be. Who may ask for a loan asks for no more.
    #[inline]
    fn fetches(&self, from: Endpoint) -> u64 {
        let _ = from;
        0
    }

    /// Recalls all that was lent so far, to whomever: from now on fetching it fails at the other end, and a fetch that is not over
    /// yet is void. For memory that is about to be used for something else.
    #[inline]
    fn recall(&mut self) {}

    /// Registers memory with the device, for one-sided operations: of peers, who get the key in whatever way, and as local memory
    /// of this side's. See [`native`](super::native) for the contract of this and the next two; rails that only send leave them.
    ///
    /// # Errors
    /// [`NativeError`]: nothing is registered then.
    ///
    /// # Safety
    /// Until it is deregistered the memory is readable and writable, and all who access it know that peers do so too.
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        let _ = (base, len, access);
        Err(NativeError::NotAvailable)
    }

    /// Takes a registration back: when this returns no peer reaches the memory by this rail any more. Not while an operation of
    /// this side uses it.
    fn deregister(&mut self, region: Region) {
        let _ = region;
    }

    /// Begins an operation on memory of a peer. `Some`: it is over already, with the old word of an atomic, else 0. `None`:
    /// [`Event::Performed`] will tell.
    ///
    /// # Errors
    /// [`NativeError`]: nothing is done then, and no memory is held.
    ///
    /// # Safety
    /// Local memory is readable and unchanging for a put, writable and nobody else's for a get, until the operation is over, or
    /// [`Event::Lost`] or [`Event::Down`] of that peer, or `del_peer`.
    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        let _ = (on, native, cookie);
        Err(NativeError::NotAvailable)
    }

    /// Whether all that was committed to a peer is with the device, or moves without further calls (CHECKLIST B17).
    fn drained(&self, to: Endpoint) -> bool;

    /// Takes in what arrived and pushes out what waits; yields at most one event. `None` means idle for now.
    fn poll(&mut self, now: Instant) -> Option<Event>;

    /// The quick part of [`poll`](Self::poll): yields a frame with `tag` of 24 to [`HEAD`] bytes, if it takes no more than
    /// to pick it up. `None` says nothing, neither that there is none nor that nothing else is to be done: `poll`.
    /// Such a frame is not held, so it may come also while no further one can be.
    #[inline(always)]
    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        let _ = tag;
        None
    }

    /// The frame that [`poll_short`](Self::poll_short) has just yielded once more, as `poll` has it: for who finds that it
    /// is not so quickly dealt with. To be called right after it: what follows another call is no news to anybody. `None`
    /// where the frame is no longer what it was, since its sender wrote over it.
    fn poll_again(&mut self) -> Option<Frame> {
        None
    }

    /// Copies bytes of a held frame, from `at` (header included), into `into`; returns how many there were.
    /// Bytes that have not arrived yet are not there.
    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize;

    /// Puts the frame's bytes from `skip` on into `sink`, and releases the frame. Bytes that do not fit the sink are
    /// dropped. With [`Delivery::Pending`] the sink is written until [`Event::Delivered`] with `cookie`.
    ///
    /// # Safety
    /// The sink's memory is writable, and nobody else accesses it, until this returns, and after `Pending` until
    /// [`Event::Delivered`] with `cookie`, [`Event::Lost`] of that peer, or `del_peer`.
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery;

    /// Gives a frame back unread or half read. One whose body is still coming in is swallowed by the rail.
    fn release(&mut self, frame: FrameId);

    /// The oldest frame to a peer that was not acknowledged, of a link that is [`Event::Down`]: for another rail to carry,
    /// by [`send_moved`](Self::send_moved). Named again until it is [`rehomed`](Self::rehomed). `None` where there is no such
    /// frame, or where the rail keeps none.
    fn orphan(&self, to: Endpoint) -> Option<Orphan> {
        let _ = to;
        None
    }

    /// The frame that [`orphan`](Self::orphan) named has left by another rail: this one is done with its body.
    fn rehomed(&mut self, to: Endpoint, origin: Origin) {
        let _ = (to, origin);
    }

    /// As [`send`](Self::send), for a frame that was given to another link first; the peer gets it as [`Event::Moved`]. Without
    /// a cookie the body is copied, however long it is, and may go when this returns. Rails that are no links answer
    /// [`SendError::Unreachable`].
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// As [`send`](Self::send).
    unsafe fn send_moved(
        &mut self,
        to: Endpoint,
        origin: Origin,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Option<Cookie>,
    ) -> Result<Sent, SendError> {
        let _ = (to, origin, shape, header, body, cookie);
        Err(SendError::Unreachable)
    }

    /// What this link knows of a frame of `from` that another has brought as [`Event::Moved`]. Each link to that peer is to
    /// be asked, and [`Claim::Awaited`] of any of them is what counts. `None`: nothing. Whoever asks has said of all frames that it
    /// got before what is to become of them: of one that it holds a link says [`Claim::Double`], also if its body is bad and would
    /// have to come once more.
    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let _ = (from, origin);
        None
    }

    /// Pushes out what was committed and waits for more to go with, or for the next poll: for a caller that may not come again
    /// for a while. What finds no room below goes on waiting for polls.
    fn flush(&mut self) {}

    /// Asks the host of a peer for a sign of life that takes no process there, and tells when the last one came: a peer that is
    /// stopped is not lost with its host. `None`: there was none, or this rail cannot ask.
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let _ = of;
        None
    }

    /// Whether the peer was there after `since`, by which it was to answer on another link that is [`Event::Silent`], and need
    /// not be kept then. What merely arrived after that does not show it, as it may have been on its way for long, but only the
    /// answer to what this link asked after it. Where there was none, the peer is asked, and the link may know better the next
    /// time. `None`: nothing was to come on the other link so far, and a peer that was not met yet is greeted; `false`.
    fn hears(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        let _ = (of, since);
        true
    }

    /// Whether the two sides have met by this link: before that, nothing that the peer sent by it has arrived. Always, for rails
    /// that are no links.
    fn knows(&self, peer: Endpoint) -> bool {
        let _ = peer;
        true
    }

    /// Takes a peer for dead, or the way to it, which this rail has not found itself: by what others know. Whether it is so
    /// from now on; nothing is reported of it.
    ///
    /// - [`GiveUp::Peer`]: forgets the peer in every way as [`del_peer`](Self::del_peer) does, but says no good-bye: if the peer is
    ///   there after all, it is to take this for an accident, and for no orderly end. Always `true`.
    /// - [`GiveUp::Link`]: a link that is [`Event::Silent`], and which another one can take the place of, is down as by
    ///   [`Event::Down`]. `false`, and nothing is changed, where it is not silent, or not for long enough, and for rails that
    ///   are no links.
    ///
    /// Rails that are no links and say no good-bye need not write this.
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        match what {
            GiveUp::Peer => self.del_peer(to),
            GiveUp::Link => return false,
        }
        true
    }

    /// When `poll` must be called at the latest, although nothing arrives. Constant time.
    fn poll_at(&self) -> Option<Instant>;

    /// Whether frames of this rail wake who sleeps at the other side only where they are asked to, by [`signal`](Self::signal).
    /// At first all do. Rails that are not [`Capabilities::SIGNALED`](super::Capabilities::SIGNALED) ignore it (CHECKLIST B39).
    fn wake_on_demand(&mut self, on: bool) {
        let _ = on;
    }

    /// Wakes a peer that sleeps; what was sent to it before is there then. For rails that are told to
    /// [`wake_on_demand`](Self::wake_on_demand); others ignore it.
    fn signal(&mut self, to: Endpoint) {
        let _ = to;
    }

    /// Says that the caller is about to sleep on the rail's wait handle. `true`: nothing is waiting now, and whatever
    /// comes will make the handle ready. `false`: there is work, poll first.
    fn arm(&mut self) -> bool;
}

/// What [`Rail::send_now`] does where a rail has no quicker way: [`Rail::reserve`], then [`Rail::commit`]. For rails on top of
/// others that are to see both.
///
/// # Errors
/// As [`Rail::reserve`].
///
/// # Safety
/// As [`Rail::send_now`].
#[inline(always)]
pub unsafe fn send_by_grant<R: Rail + ?Sized>(
    rail: &mut R,
    to: Endpoint,
    tag: u8,
    header: [u64; 3],
    body: Span,
) -> Result<Sent, SendError> {
    let (from, len) = (size_of_val(&header), (size_of_val(&header) as u32).wrapping_add(body.len() as u32));
    let mut grant = rail.reserve(to, Shape { tag, lane: Lane::Eager, header: from as u8, len })?;
    grant.write_words(0, header);
    // SAFETY: the caller vouches for the body.
    unsafe { grant.gather(from, body) };
    let ticket = grant.finish();
    Ok(rail.commit(ticket))
}

/// What [`Rail::give_up`] gives up.
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
    /// Copied; it travels as the rail is polled. [`Rail::drained`] tells when it has left.
    Staged,
    /// The body is read where it lies until [`Event::Sent`].
    InPlace,
}

/// What became of a body asked for by [`Rail::deliver`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Delivery {
    /// All in the sink.
    Done,
    /// Still coming in; [`Event::Delivered`] will tell.
    Pending,
}

/// What a rail has to report.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A frame arrived, its body perhaps not yet.
    Frame(Frame),
    /// A body that was sent in place is no longer read.
    Sent(Cookie),
    /// A body that was pending is in its sink.
    Delivered(Cookie),
    /// A one-sided operation is over ([`Rail::perform`]): with the old word of an atomic, else 0.
    Performed(Cookie, Result<u64, NativeError>),
    /// A peer cannot be reached by this rail any more. Reported once, unless the peer is deleted first.
    Lost(Peer, Lost),
    /// A link to a peer is out of order, and tries to come back. Sends to that peer are answered `Unreachable` until
    /// [`Event::Up`]; what was not acknowledged can be moved to another link ([`Rail::orphan`]). Memory given for the peer
    /// stays in use: bodies until they are rehomed or acknowledged, sinks until they are claimed or filled; or until
    /// `del_peer`.
    Down(Peer, Lost),
    /// A link that was down is in order again.
    Up(Peer),
    /// A link hears nothing of its peer, and would be out of order by now if the peer's host had not answered
    /// ([`Rail::ask_host`]): either the link is dead or the peer's process stands still. Told again and again as long as that
    /// is so; who knows that another link hears the peer gives this one up ([`Rail::give_up`]). A rail that frames are lost on
    /// tells its link so when a host has said that nobody is there, which may not be true: the link asks the peer. Also told of a
    /// link that begins to greet a peer, or is greeted, so that others do the same, and when its greetings were not answered for
    /// as long as a peer that was met may be silent, or a sixteenth of the time after which it is down. The instant is by when the
    /// peer was to have answered; `None`: nothing is wrong so far, or the rail knows no more.
    Silent(Peer, Option<Instant>),
    /// A frame arrived that was given to another link of the sender first, and may have arrived by that
    /// ([`Rail::claim`]).
    Moved(Origin, Frame),
}

/// A frame that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Names it to the rail; void where `len` is at most [`HEAD`].
    pub id: FrameId,
    /// Who sent it.
    pub from: Peer,
    /// Whose it is: the active-message tag.
    pub tag: u8,
    /// Bytes of `head` that are valid: at least the header, and all of a frame that is not longer than [`HEAD`].
    pub valid: u8,
    /// Bytes of header and body.
    pub len: u32,
    /// Its first bytes, copied once: no longer in reach of the peer.
    pub head: [u8; HEAD],
}

impl Frame {
    /// The first bytes that are in.
    #[inline]
    pub fn head(&self) -> &[u8] {
        self.head.get(..self.valid as usize).unwrap_or(&self.head)
    }

    /// The same as [`Rail::poll_short`] has it, with the body in this frame: `None` for one that is not of 24 to [`HEAD`]
    /// bytes.
    #[inline]
    pub fn short(&self) -> Option<Short> {
        let (header, rest) = self.head.split_first_chunk::<{ size_of::<[u64; 3]>() }>()?;
        let body = rest.get(..(self.len as usize).wrapping_sub(header.len()))?;
        // SAFETY: the body is a slice, of what `head` has behind 24 bytes at most.
        Some(unsafe { Short::new(self.from, zerocopy::transmute!(*header), body.as_ptr(), body.len()) })
    }

    /// Whether all of it is in `head`, and nothing left in the rail.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.len as usize <= HEAD
    }
}

/// A frame that is not longer than [`HEAD`], as [`Rail::poll_short`] yields it: as much as fits registers.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    /// Who sent it.
    pub from: Peer,
    /// Its first 24 bytes as they lay in memory, copied once.
    pub header: [u64; 3],
    /// What lies behind the header.
    pub body: ShortBody,
}

/// The bytes of a [`Short`] behind its header, where the rail has them.
#[derive(Clone, Copy, Debug)]
pub struct ShortBody {
    base: *const u8,
    len: usize,
}

impl Short {
    /// A frame whose bytes behind the header are the `len` ones at `body`; made by rails.
    ///
    /// # Safety
    /// `len` is at most 32, and those bytes are valid for reads until the rail's next call, or as long as the frame that
    /// they are a part of. A peer may write there.
    #[inline(always)]
    pub const unsafe fn new(from: Peer, header: [u64; 3], body: *const u8, len: usize) -> Self {
        Self { from, header, body: ShortBody { base: body, len } }
    }
}

#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
impl ShortBody {
    /// How many there are.
    #[inline(always)]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Copies them, straight from the rail's memory, to where they belong; those that do not fit the sink are dropped.
    ///
    /// # Safety
    /// The rail was not called since it yielded the frame (or that of [`Frame::short`] is still there), and the sink's memory
    /// is writable and not the rail's own.
    #[inline(always)]
    pub unsafe fn deliver(&self, sink: &Span) {
        // SAFETY: the caller vouches for the sink, and who made this for the body.
        unsafe { sink.unpack(self.base, self.len) };
    }
}

/// Room for one frame in a rail's memory, write-only: a peer may be able to write there too, so nothing is read back.
#[must_use = "a grant that is not finished and committed sends nothing"]
#[derive(Debug)]
pub struct Grant<'r> {
    room: *mut u8,
    len: usize,
    ticket: Ticket,
    rail: PhantomData<&'r mut ()>,
}

impl Grant<'_> {
    /// A grant over `len` bytes at `room`; made by rails.
    ///
    /// # Safety
    /// The bytes are valid for writes as long as the rail is borrowed by the grant.
    #[inline(always)]
    pub const unsafe fn new(room: *mut u8, len: usize, ticket: Ticket) -> Self {
        Self { room, len, ticket, rail: PhantomData }
    }

    /// Bytes of room.
    #[inline]
    pub const fn room(&self) -> usize {
        self.len
    }

    /// Writes `bytes` at offset `at`; what lies beyond the room is left out.
    #[inline(always)]
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        if at > self.len {
            return;
        }
        let len = bytes.len().min(self.len - at);
        // SAFETY: `at + len` is within the room, which `new` vouches for; `bytes` cannot overlap it, since the rail's
        // memory is not reachable as a slice.
        unsafe { crate::convertor::copy::copy(bytes.as_ptr(), self.room.add(at), len) }
    }

    /// Writes words, least significant byte first, at offset `at`; nothing where they do not all fit. A header that is
    /// put together in registers goes straight to the rail this way.
    #[inline(always)]
    pub fn write_words<const N: usize>(&mut self, at: usize, words: [u64; N]) {
        if self.len < at || self.len - at < N * 8 {
            return;
        }
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: `at + N * 8` is within the room, which `new` vouches for.
            unsafe { self.room.add(at + index * 8).cast::<u64>().write_unaligned(word.to_le()) }
        }
    }

    /// Packs `body` to offset `at`; what lies beyond the room is left out.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging during the call, and is not the rail's own.
    #[inline(always)]
    pub unsafe fn gather(&mut self, at: usize, body: Span) {
        if at > self.len {
            return;
        }
        // SAFETY: the room is writable from `at` for the rest of `len`; the caller vouches for the body.
        unsafe { body.pack(self.room.add(at), self.len - at) };
    }

    /// Ends the borrow of the rail, to commit what was written.
    #[inline]
    pub fn finish(self) -> Ticket {
        self.ticket
    }
}

/// Proof of a finished grant, for [`Rail::commit`]. What the numbers mean is the rail's own affair.
#[must_use = "a ticket that is not committed sends nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The rail's number of the peer.
    pub endpoint: Endpoint,
    /// Where the room lies.
    pub position: u64,
    /// What was asked for.
    pub len: u32,
    /// A word of the rail's own.
    pub extra: u32,
}

/// A frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// No room now, or still connecting: try again after polling.
    Busy,
    /// The peer was lost, or is not known here. In the first case [`Event::Lost`] was reported or will be.
    Unreachable,
    /// Longer than the lane takes, or a header longer than [`HEAD`].
    TooLong,
}

impl SendError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::TooLong => Blame::Caller,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the rail is full: poll, then try again",
            Self::Unreachable => "the peer is lost or was never added to this rail",
            Self::TooLong => "the frame is longer than the lane's limit: split it",
        })
    }
}

impl core::error::Error for SendError {}

/// Why a rail is no way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Unreachable {
    /// The peer has no such rail.
    NoCard,
    /// The peer's card cannot be understood.
    BadCard,
    /// The peer speaks another version of the rail's protocol.
    Version,
    /// The peer is on another host, and this rail does not leave the host.
    OtherHost,
    /// The peer is another process, and this rail does not leave the process.
    OtherProcess,
    /// No network of both sides is allowed by the lists of interfaces.
    NoNetwork,
    /// The rail's tables are full.
    Full,
    /// The operating system refused; the adapter logged what.
    System,
    /// The rail takes all peers in one call, which was made.
    TooLate,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCard => "the peer published no card for this rail",
            Self::BadCard => "the peer's card cannot be understood",
            Self::Version => "the peer speaks another version",
            Self::OtherHost => "the peer is on another host",
            Self::OtherProcess => "the peer is another process",
            Self::NoNetwork => "no network in common that the interface lists allow",
            Self::Full => "the rail's tables are full",
            Self::System => "the operating system refused, see the log",
            Self::TooLate => "the rail takes all peers in one call, which was made: add all of them at once",
        })
    }
}

impl core::error::Error for Unreachable {}

/// Why a peer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Lost {
    /// The peer closed in good order.
    Closed,
    /// The connection broke, or the process is gone.
    Broken,
    /// A deadline passed.
    TimedOut,
    /// The peer broke the protocol.
    Misbehaved,
    /// The peer is there, but gave no sign of life for as long as the stall time-out says: it computes, or is stopped.
    Stalled,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the peer closed",
            Self::Broken => "the connection broke or the process is gone",
            Self::TimedOut => "a deadline passed",
            Self::Misbehaved => "the peer broke the protocol",
            Self::Stalled => "the peer gave no sign of life within the stall time-out",
        })
    }
}
