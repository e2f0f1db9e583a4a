//! The trait that every rail implements, and its extensions.

use super::access::Access;
use super::attributes::Attributes;
use super::errors::{SendError, Unreachable};
use super::event::Event;
use super::frame::{Frame, Short};
use super::grant::{Grant, Ticket};
use super::migration::{Claim, Origin, UnackedFrame};
use super::native::{Key, Native, NativeError, Region};
use super::types::{Cookie, Delivery, Endpoint, FrameId, GiveUp, Lane, Peer, Sent, Shape};
use crate::convertor::Span;
use crate::time::Instant;
use crate::wire::RemoteBuffer;

/// A path to peers. See the [module](crate::rail) for the contract.
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
    /// [`Event::Sent`](crate::rail::Event::Sent) with `cookie`. A body of up to [`COPIED`](crate::rail::COPIED) bytes is always copied.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent and no memory is held then.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging until this returns, and after `InPlace` until [`Event::Sent`](crate::rail::Event::Sent) with
    /// `cookie`, [`Event::Lost`](crate::rail::Event::Lost) of that peer, or `del_peer`.
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

    /// Whether all that was committed to a peer is with the device, or moves without further calls (CONTRACTS B17).
    fn drained(&self, to: Endpoint) -> bool;

    /// Takes in what arrived and pushes out what waits; yields at most one event. `None` means idle for now.
    fn poll(&mut self, now: Instant) -> Option<Event>;

    /// Copies bytes of a held frame, from `at` (header included), into `into`; returns how many there were.
    /// Bytes that have not arrived yet are not there.
    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize;

    /// Puts the frame's bytes from `skip` on into `sink`, and releases the frame. Bytes that do not fit the sink are
    /// dropped. With [`Delivery::Pending`] the sink is written until [`Event::Delivered`](crate::rail::Event::Delivered) with `cookie`.
    ///
    /// # Safety
    /// The sink's memory is writable, and nobody else accesses it, until this returns, and after `Pending` until
    /// [`Event::Delivered`](crate::rail::Event::Delivered) with `cookie`, [`Event::Lost`](crate::rail::Event::Lost) of that peer, or `del_peer`.
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery;

    /// Gives a frame back unread or half read. One whose body is still coming in is swallowed by the rail.
    fn release(&mut self, frame: FrameId);

    /// Pushes out what was committed and waits for more to go with, or for the next poll: for a caller that may not come again
    /// for a while. What finds no room below goes on waiting for polls.
    fn flush(&mut self) {}

    /// When `poll` must be called at the latest, although nothing arrives. Constant time.
    fn poll_at(&self) -> Option<Instant>;

    /// Whether frames of this rail wake who sleeps at the other side only where they are asked to, by [`signal`](Self::signal).
    /// At first all do. Rails that are not [`Capabilities::SIGNALED`](crate::rail::Capabilities::SIGNALED) ignore it (CONTRACTS B39).
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

/// Short messages in few instructions: a header in registers, a body that is copied at once. The defaults do the same work by
/// [`Rail::reserve`](crate::rail::Rail::reserve) and [`Rail::commit`](crate::rail::Rail::commit), or leave it to [`Rail::poll`](crate::rail::Rail::poll), so a rail without a fast path loses nothing but instructions.
pub trait FastPath: Rail {
    /// Sends a frame of the eager lane with a header of 24 bytes, given as words, least significant byte first, and a body
    /// of up to [`COPIED`](crate::rail::COPIED) bytes, if that takes no more than to write them down. A rail may answer [`SendError::Busy`](crate::rail::SendError::Busy)
    /// where [`send`](Rail::send) finds room, so who is told that goes there.
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

    /// The quick part of [`poll`](Rail::poll): yields a frame with `tag` of 24 to [`HEAD`](crate::rail::HEAD) bytes, if it takes no more than
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
}

/// Bytes that a rail keeps with each cached request (CONTRACTS P16 to P19). The defaults keep nothing.
pub trait RequestCache: Rail {
    /// Prepares the [`Attributes::cache_bytes`](crate::rail::Attributes::cache_bytes) of a request that enters this rail's cache (P18): once, not on each use.
    fn request_init(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    /// Undoes [`request_init`](Self::request_init), when the request leaves the cache (P19).
    fn request_fini(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    /// As [`send`](Rail::send), for a request with its cache bytes; `None` where it is not cached (P16).
    ///
    /// # Errors
    /// As [`send`](Rail::send).
    ///
    /// # Safety
    /// As [`send`](Rail::send).
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
}

/// Single copy of long bodies: the receiver reads the sender's memory where it lies, by the kernel (`process_vm_readv`) or the
/// device. By default a rail exposes nothing and reads nothing.
pub trait SingleCopy: Rail {
    /// Lends the memory of `body` to a peer, whose rail may [`read_exposed`](Self::read_exposed) it from there. `None` where this rail
    /// cannot, or where copies through frames are the better way for so many bytes. Nothing is kept for a loan, so it need
    /// not be returned. The memory may be read until [`Event::Lost`](crate::rail::Event::Lost) of that peer, `del_peer` or [`revoke_exposed`](Self::revoke_exposed), from
    /// which on fetching it fails at the other end; whoever wants the peer to read what is there now leaves it as it is until the
    /// peer has said that it is done with it. What others write there meanwhile makes the bytes arbitrary, and no more.
    #[inline]
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
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
    unsafe fn read_exposed(&mut self, from: Endpoint, loan: &RemoteBuffer, sink: Span) -> bool {
        let _ = (from, loan, sink);
        false
    }

    /// Bytes that may be fetched at a time of what a peer lends; 0: nothing can be. Who may ask for a loan asks for no more.
    #[inline]
    fn read_limit(&self, from: Endpoint) -> u64 {
        let _ = from;
        0
    }

    /// Recalls all that was lent so far, to whomever: from now on fetching it fails at the other end, and a fetch that is not over
    /// yet is void. For memory that is about to be used for something else.
    #[inline]
    fn revoke_exposed(&mut self) {}
}

/// One-sided operations by the rail's device on registered memory. See [`native`](super::native) for the contract. By default
/// a rail has no such device.
pub trait DeviceMemory: Rail {
    /// Registers memory with the device, for one-sided operations: of peers, who get the key in whatever way, and as local memory
    /// of this side's. See [`native`](crate::rail::native) for the contract of this and the next two; rails that only send leave them.
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
    /// [`Event::Performed`](crate::rail::Event::Performed) will tell.
    ///
    /// # Errors
    /// [`NativeError`]: nothing is done then, and no memory is held.
    ///
    /// # Safety
    /// Local memory is readable and unchanging for a put, writable and nobody else's for a get, until the operation is over, or
    /// [`Event::Lost`](crate::rail::Event::Lost) or [`Event::Down`](crate::rail::Event::Down) of that peer, or `del_peer`.
    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        let _ = (on, native, cookie);
        Err(NativeError::NotAvailable)
    }
}

/// Frames that migrate from a link that is down to another one. By default a rail keeps no frames, as only links do.
pub trait Failover: Rail {
    /// The oldest frame to a peer that was not acknowledged, of a link that is [`Event::Down`]: for another rail to carry,
    /// by [`send_migrated`](Self::send_migrated). Named again until it is [`migrated`](Self::migrated). `None` where there is no such
    /// frame, or where the rail keeps none.
    fn next_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        let _ = to;
        None
    }

    /// The frame that [`next_unacked`](Self::next_unacked) named has left by another rail: this one is done with its body.
    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        let _ = (to, origin);
    }

    /// As [`send`](Rail::send), for a frame that was given to another link first; the peer gets it as [`Event::Migrated`](crate::rail::Event::Migrated). Without
    /// a cookie the body is copied, however long it is, and may go when this returns. Rails that are no links answer
    /// [`SendError::Unreachable`](crate::rail::SendError::Unreachable).
    ///
    /// # Errors
    /// As [`send`](Rail::send).
    ///
    /// # Safety
    /// As [`send`](Rail::send).
    unsafe fn send_migrated(
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

    /// What this link knows of a frame of `from` that another has brought as [`Event::Migrated`](crate::rail::Event::Migrated). Each link to that peer is to
    /// be asked, and [`Claim::Awaited`] of any of them is what counts. `None`: nothing. Whoever asks has said of all frames that it
    /// got before what is to become of them: of one that it holds a link says [`Claim::Duplicate`], also if its body is bad and would
    /// have to come once more.
    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let _ = (from, origin);
        None
    }
}

/// Whether a peer and its host still answer. By default a rail cannot tell.
pub trait Liveness: Rail {
    /// Asks the host of a peer for a sign of life that takes no process there, and tells when the last one came: a peer that is
    /// stopped is not lost with its host. `None`: there was none, or this rail cannot ask.
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let _ = of;
        None
    }

    /// Whether the peer was there after `since`, by which it was to answer on another link that is [`Event::Silent`](crate::rail::Event::Silent), and need
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
    /// - [`GiveUp::Peer`]: forgets the peer in every way as [`del_peer`](Rail::del_peer) does, but says no good-bye: if the peer is
    ///   there after all, it is to take this for an accident, and for no orderly end. Always `true`.
    /// - [`GiveUp::Link`]: a link that is [`Event::Silent`](crate::rail::Event::Silent), and which another one can take the place of, is down as by
    ///   [`Event::Down`](crate::rail::Event::Down). `false`, and nothing is changed, where it is not silent, or not for long enough, and for rails that
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
}

/// A rail with all of its extensions: what links, the engine and the BTL face work on. Every type that has [`Rail`] and the
/// extensions has it; a rail without a feature writes an empty implementation of that extension and gets its defaults.
pub trait FullRail: Rail + FastPath + RequestCache + SingleCopy + DeviceMemory + Failover + Liveness {}

impl<R: Rail + FastPath + RequestCache + SingleCopy + DeviceMemory + Failover + Liveness + ?Sized> FullRail for R {}

/// What [`FastPath::send_now`](crate::rail::FastPath::send_now) does where a rail has no quicker way: [`Rail::reserve`](crate::rail::Rail::reserve), then [`Rail::commit`](crate::rail::Rail::commit). For rails on top of
/// others that are to see both.
///
/// # Errors
/// As [`Rail::reserve`](crate::rail::Rail::reserve).
///
/// # Safety
/// As [`FastPath::send_now`](crate::rail::FastPath::send_now).
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
