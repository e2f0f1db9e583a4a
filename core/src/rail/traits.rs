//! The trait that every rail implements, and its extensions.

use super::access::Access;
use super::attributes::Attributes;
use super::errors::{Lost, SendError, Unreachable};
use super::event::Event;
use super::frame::{Copied, Frame, Short};
use super::grant::{Grant, Ticket};
use super::migration::{Claim, Origin, UnackedFrame};
use super::native::{Key, Native, NativeError, Region};
use super::types::{Cookie, Delivery, Endpoint, FrameId, GiveUp, Lane, Peer, Sent, Shape};
use crate::convertor::Span;
use crate::time::Instant;
use crate::wire::RemoteBuffer;

/// A path to peers. See the [module](crate::rail) for the contract.
///
/// Methods are called by one thread at a time, and none blocks.
/// (Counterparts: BTL module of Open MPI, UCT interface, libfabric endpoint.)
pub trait Rail {
    /// Name, capabilities, limits and exclusivity. Constant over the life of the rail.
    fn attributes(&self) -> &Attributes;

    /// The card of this rail: the bytes that peers need to reach it, which the modex publishes. They do not depend on the byte
    /// order of the host, and only rails of the same kind interpret them.
    fn card(&self) -> &[u8];

    /// Adds a peer by the card that the peer's rail published. The call is local: the rail may connect at the first use.
    ///
    /// # Errors
    /// [`Unreachable`] says why this rail does not reach the peer. The rail is unchanged then.
    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable>;

    /// Deletes a peer, and frees everything that is kept for it. No event of the peer is reported afterwards, and the rail no
    /// longer accesses memory that was given for the peer. The peer may be added again.
    fn del_peer(&mut self, endpoint: Endpoint);

    /// Reserves room for one frame. A grant that is dropped is void: nothing is sent.
    ///
    /// # Errors
    /// [`SendError`]; nothing is reserved then.
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError>;

    /// Sends the frame that was written to a grant. `ticket` is from the last grant of this rail.
    fn commit(&mut self, ticket: Ticket) -> Sent;

    /// Sends one frame: header, then `body`. If the answer is [`Sent::InPlace`], the rail reads the body's memory until
    /// [`Event::Sent`](crate::rail::Event::Sent) with `cookie`. A body of up to [`COPIED`](crate::rail::COPIED) bytes is always
    /// copied.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent then, and the rail holds no memory.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging until this returns; after `InPlace` until
    /// [`Event::Sent`](crate::rail::Event::Sent) with `cookie`, [`Event::Lost`](crate::rail::Event::Lost) of that peer, or
    /// `del_peer`.
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
        // SAFETY: passed on from the caller.
        unsafe { send_by_grant(self, to, shape, header, body) }
    }

    /// As [`send`](Self::send), for a body whose checksum is in the header, so that the other end accepts no other body. A rail
    /// that would copy the body may give the memory itself to the device instead, and count the body as copied. Then the device
    /// may still read the memory after the rail has reported that the body is no longer read, and it sends the bytes that it
    /// finds.
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

    /// Whether the device has all frames that were committed to a peer, so that they move without further calls (CONTRACTS
    /// B17).
    fn drained(&self, to: Endpoint) -> bool;

    /// Makes progress: receives frames, sends frames that wait, and returns at most one event. `None`: the rail has nothing
    /// more to do for now. `now` is the time of a monotonic clock.
    fn poll(&mut self, now: Instant) -> Option<Event>;

    /// Copies bytes of a held frame, from offset `at` (header included), into `into`. Returns how many bytes it has copied.
    /// Bytes that have not arrived yet are not copied.
    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize;

    /// Puts the frame's bytes from `skip` on into `sink`, and releases the frame. Bytes that do not fit the sink are dropped.
    /// After [`Delivery::Pending`] the rail writes to the sink until [`Event::Delivered`](crate::rail::Event::Delivered) with
    /// `cookie`. The answer is the same if bytes are missing that will not arrive, because the connection broke a moment ago. Then
    /// [`Event::Lost`](crate::rail::Event::Lost) follows.
    ///
    /// # Safety
    /// The sink's memory is writable, and no other code accesses it, until this returns; after `Pending` until
    /// [`Event::Delivered`](crate::rail::Event::Delivered) with `cookie`, [`Event::Lost`](crate::rail::Event::Lost) of that
    /// peer, or `del_peer`.
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery;

    /// Releases a frame that was not read, or read in part. If its body is still arriving, the rail drops the rest.
    fn release(&mut self, frame: FrameId);

    /// Sends committed frames that the rail delays: to send them together with later ones, or until the next poll. For a caller
    /// that may not poll again for a while. Frames for which there is no room still wait for polls.
    fn flush(&mut self) {}

    /// When `poll` must be called at the latest, even if nothing arrives. `None`: only when something arrives. Takes constant
    /// time.
    fn poll_at(&self) -> Option<Instant>;

    /// Sets whether frames of this rail wake a sleeping peer only on demand, by [`signal`](Self::signal). Initially all frames
    /// wake it. Rails that are not [`Capabilities::SIGNALED`](crate::rail::Capabilities::SIGNALED) ignore it (CONTRACTS B39).
    fn wake_on_demand(&mut self, on: bool) {
        let _ = on;
    }

    /// Wakes a peer that sleeps. The peer then finds the frames that were sent to it before. For rails with
    /// [`wake_on_demand`](Self::wake_on_demand); others ignore it.
    fn signal(&mut self, to: Endpoint) {
        let _ = to;
    }

    /// Prepares the rail for a caller that is about to sleep on the rail's wait handle. `true`: there is nothing to do now, and
    /// any arrival will make the handle ready. `false`: there is something to do, so the caller must poll first.
    fn arm(&mut self) -> bool;
}

/// Short messages in few instructions: the header is in registers, and the body is copied at once. The defaults do the same work
/// by [`Rail::reserve`] and [`Rail::commit`], or leave it to [`Rail::poll`]. A rail without a fast path loses only instructions.
pub trait FastPath: Rail {
    /// Sends a frame of the eager lane with a header of 24 bytes and a body of up to [`COPIED`](crate::rail::COPIED) bytes, if
    /// it only has to write them to memory. The header is given as words, least significant byte first. A rail may answer
    /// [`SendError::Busy`](crate::rail::SendError::Busy) although [`send`](Rail::send) would find room; so the caller tries
    /// `send` next.
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent then.
    ///
    /// # Safety
    /// The body's memory is readable and unchanging until this returns.
    #[inline(always)]
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { send_now_by_grant(self, to, tag, header, body) }
    }

    /// The fast part of [`poll`](Rail::poll): yields a frame with `tag` of 24 to [`HEAD`](crate::rail::HEAD) bytes, if one is
    /// ready to be picked up. After `None` there may still be such a frame, or other work, so the caller calls `poll`. The rail
    /// does not hold such a frame, so it yields one even while the caller holds as many frames as it may.
    #[inline(always)]
    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        let _ = tag;
        None
    }

    /// As [`poll_short`](Self::poll_short), for a frame of any length of the eager lane that lies in memory in one piece. To be
    /// called before `poll`. `None` while the caller holds as many frames as it may. The rail uses the frame's memory again after
    /// its next call. A rail over another one that has a `poll` of its own must not pass this on, as for
    /// [`is_idle`](Self::is_idle).
    #[inline(always)]
    fn poll_eager(&mut self, tag: u8) -> Option<Short> {
        let _ = tag;
        None
    }

    /// The fast part of [`poll`](Rail::poll) for callers that want all bytes: copies the next frame of the eager lane to the beginning
    /// of `into`, if it fits, and if its tag is not `except`. The rail does not hold the frame. After `None` there may still be a
    /// frame, or other work, so the caller calls `poll`. The bytes of `into` behind the frame are arbitrary afterwards. A rail over
    /// another one that has a `poll` of its own must not pass this on, as for [`is_idle`](Self::is_idle).
    #[inline(always)]
    fn poll_copied(&mut self, except: u8, into: &mut [u8]) -> Option<Copied> {
        let _ = (except, into);
        None
    }

    /// The last frame that [`poll_short`](Self::poll_short) or [`poll_eager`](Self::poll_eager) yielded, in the form in which `poll`
    /// yields it: for a caller whose fast path does not take the frame. To be called directly afterwards; after any other call the
    /// result is meaningless. A frame of more than [`HEAD`](crate::rail::HEAD) bytes is held from now on. `None` if the sender has
    /// overwritten the frame since.
    fn poll_again(&mut self) -> Option<Frame> {
        None
    }

    /// Whether [`poll`](Rail::poll) would yield nothing, and would have nothing to do but take the time. The caller may then
    /// leave `poll` out, so this counts as a poll in all that a rail does once in a number of polls. `false` is always correct.
    /// A rail over another one that has a `poll` of its own must not pass this on: what it adds would be left out.
    #[inline(always)]
    fn is_idle(&mut self) -> bool {
        false
    }
}

/// A request cache: bytes that a rail keeps with each cached request (CONTRACTS P16 to P19). The defaults keep nothing.
pub trait RequestCache: Rail {
    /// Initialises the [`Attributes::cache_bytes`](crate::rail::Attributes::cache_bytes) of a request when it enters this
    /// rail's cache, not on each use (CONTRACTS P18).
    fn request_init(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    /// Undoes [`request_init`](Self::request_init) when the request leaves the cache (CONTRACTS P19).
    fn request_fini(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    /// As [`send`](Rail::send), for a request with its cache bytes; `None` if the request is not cached (CONTRACTS P16).
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

/// Single copy of long bodies: the receiver reads the sender's memory directly, through the kernel (`process_vm_readv`) or a
/// device. By default a rail exposes nothing and reads nothing. (Counterparts: CMA and KNEM of Open MPI and UCX, UCX rkey with
/// get zcopy.)
pub trait SingleCopy: Rail {
    /// Exposes the memory of `body` to a peer, whose rail may read it by [`read_exposed`](Self::read_exposed). `None` if this
    /// rail cannot, or if copies through frames are faster for a body of this length. The rail keeps nothing for the buffer, so
    /// no call has to give it back.
    ///
    /// The memory may be read until [`Event::Lost`](crate::rail::Event::Lost) of that peer, `del_peer`, or
    /// [`revoke_exposed`](Self::revoke_exposed). After that a read of it fails at the other end. To let the peer read the
    /// present bytes, the sender leaves the memory unchanged until the peer reports that it has read them. If the memory is
    /// written to before that, the peer reads arbitrary bytes, but the access is sound.
    #[inline]
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let _ = (to, body);
        None
    }

    /// Copies the first bytes of a peer's exposed buffer into `sink`, as many as the sink takes. Returns whether that worked.
    /// If not, the bytes have to arrive in frames, and the sink's contents are undefined. The buffer's description comes from a
    /// peer that may be hostile. A forged description yields bytes of that peer's own memory, or the read fails.
    ///
    /// # Safety
    /// The sink's memory is writable, and no other code accesses it, until this returns.
    #[inline]
    unsafe fn read_exposed(&mut self, from: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        let _ = (from, buffer, sink);
        false
    }

    /// How many bytes of an exposed buffer of a peer may be read at a time; 0: none. A receiver asks the peer to expose at most
    /// that many bytes.
    #[inline]
    fn read_limit(&self, from: Endpoint) -> u64 {
        let _ = from;
        0
    }

    /// Revokes all buffers that were exposed so far, to any peer: from now on a read of them fails at the other end, and a read
    /// in progress is void. For memory that is about to be used for something else.
    #[inline]
    fn revoke_exposed(&mut self) {}
}

/// One-sided operations by the rail's device on registered memory. See [`native`](crate::rail::native) for the contract. By
/// default a rail has no such device.
pub trait DeviceMemory: Rail {
    /// Registers memory with the device, for one-sided operations of peers, and as local memory of this side's operations. The
    /// user gives the key to peers. See [`native`](crate::rail::native) for the contract of this method and the next two.
    ///
    /// # Errors
    /// [`NativeError`]: nothing is registered then.
    ///
    /// # Safety
    /// Until it is deregistered, the memory is readable and writable, and all code that accesses it takes into account that peers
    /// do so, too.
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        let _ = (base, len, access);
        Err(NativeError::NotAvailable)
    }

    /// Ends a registration. When this returns, no peer reaches the memory by this rail any more. Not to be called while an
    /// operation of this side uses the region.
    fn deregister(&mut self, region: Region) {
        let _ = region;
    }

    /// Begins an operation on memory of a peer. `Some`: the operation is over already; the value is the old word of an atomic,
    /// else 0. `None`: [`Event::Performed`](crate::rail::Event::Performed) with `cookie` will report its end.
    ///
    /// # Errors
    /// [`NativeError`]: nothing is done then, and the rail holds no memory.
    ///
    /// # Safety
    /// For a put the local memory is readable and unchanging; for a get it is writable, and no other code accesses it. This
    /// holds until the operation is over, or until [`Event::Lost`](crate::rail::Event::Lost) or
    /// [`Event::Down`](crate::rail::Event::Down) of that peer, or `del_peer`.
    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        let _ = (on, native, cookie);
        Err(NativeError::NotAvailable)
    }
}

/// Frames that migrate from a link that is down to another one. Only links keep frames; the defaults are for all other rails.
/// (Counterpart: `bfo` of Open MPI.)
pub trait Failover: Rail {
    /// The oldest unacknowledged frame to a peer, of a link that is [`Event::Down`]. Another link can carry it by
    /// [`send_migrated`](Self::send_migrated). The same frame is returned again until it has [`migrated`](Self::migrated).
    /// `None` if there is no such frame, or if the rail keeps none.
    fn next_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        let _ = to;
        None
    }

    /// Another link has sent the frame that [`next_unacked`](Self::next_unacked) returned: this one no longer needs its body.
    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        let _ = (to, origin);
    }

    /// As [`send`](Rail::send), for a frame that was given to another link first. The peer gets it as
    /// [`Event::Migrated`](crate::rail::Event::Migrated). Without a cookie the body is copied, however long it is, and its
    /// memory need not live longer than this call. Rails that are not links answer
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

    /// What this link knows about a frame of `from` that another link has brought as
    /// [`Event::Migrated`](crate::rail::Event::Migrated). The caller asks each link to that peer, and a [`Claim::Awaited`] of
    /// any of them decides. `None`: this link knows nothing about the frame.
    ///
    /// The caller has delivered or released all frames that it got before. A link answers [`Claim::Duplicate`] for a frame that
    /// the caller still holds, even if the frame's body is bad and would have to arrive once more.
    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let _ = (from, origin);
        None
    }
}

/// Whether a peer and its host still answer, and what becomes of a peer that does not. By default a rail cannot tell.
pub trait Liveness: Rail {
    /// Probes the host of a peer, whose kernel answers even if the peer's process is stopped, and returns when the last answer
    /// arrived. So a peer whose process is stopped does not count as lost as long as its host answers. `None`: no answer has
    /// arrived, or this rail cannot probe hosts.
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let _ = of;
        None
    }

    /// Whether this link proves that the peer was alive after `since`: the time at which an answer was due on another link that
    /// is [`Event::Silent`](crate::rail::Event::Silent). If so, the other link can be given up. An arrival after `since` is no
    /// proof, as the frame may have been on its way for long. Only the answer to a probe that this link sent after `since` is
    /// one. If there is no such answer, this probes the peer, and a later call may return `true`. `since` is `None` if no
    /// answer was due on the other link so far. Then this sends a hello to a peer that is not connected, and returns `false`.
    fn answered_since(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        let _ = (of, since);
        true
    }

    /// Whether the handshake of the two sides of this link is over. Before that, no frame of the peer has arrived by this link.
    /// Always `true` for rails that are not links.
    fn is_connected(&self, peer: Endpoint) -> bool {
        let _ = peer;
        true
    }

    /// Declares a peer or a link to it as failed, for a caller that knows of the failure by other rails. Returns whether the
    /// peer or the link counts as failed from now on. No event reports it.
    ///
    /// - [`GiveUp::Peer`]: deletes the peer as [`del_peer`](Rail::del_peer) does, but without a goodbye. If the peer is alive
    ///   after all, it must take this for a failure, not for an orderly end. Always `true`.
    /// - [`GiveUp::Link`]: a link that has reported [`Event::Silent`](crate::rail::Event::Silent), while the caller has another
    ///   link to the peer, goes down as with [`Event::Down`](crate::rail::Event::Down). `false`, and nothing changes, if the
    ///   link is not silent, or not for long enough, or if the rail is no link.
    ///
    /// Rails that are not links, and have no goodbye, need not implement this.
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        match what {
            GiveUp::Peer => self.del_peer(to),
            GiveUp::Link => return false,
        }
        true
    }

    /// Another rail has lost a peer that this rail reaches, too. Frames of the peer may have arrived by this rail that were not
    /// polled yet. `true`: this rail reports [`Event::Lost`](crate::rail::Event::Lost) with `why` when all of them were polled, so
    /// the caller waits for that. `false`: this rail has no such frames, or cannot tell.
    fn end_after_frames(&mut self, of: Endpoint, why: Lost) -> bool {
        let _ = (of, why);
        false
    }

    /// Whether a peer has closed in order, and all its frames were polled. The rail looks at once, so it may see this before
    /// [`Event::Lost`](crate::rail::Event::Lost) reports it. The caller may delete the peer then, and the loss is not reported any
    /// more. Frames that the caller has polled and not released are its own affair. `false`: the peer goes on or has failed, or the
    /// rail can tell in [`poll`](Rail::poll) only.
    fn has_closed(&mut self, of: Endpoint) -> bool {
        let _ = of;
        false
    }
}

/// A rail with all extensions. Links, the engine and the BTL face require it. Every type that implements [`Rail`] and all
/// extensions implements it. A rail without a feature has an empty implementation of that extension, with the defaults.
pub trait FullRail: Rail + FastPath + RequestCache + SingleCopy + DeviceMemory + Failover + Liveness {}

impl<R: Rail + FastPath + RequestCache + SingleCopy + DeviceMemory + Failover + Liveness + ?Sized> FullRail for R {}

/// [`Rail::send`] by [`Rail::reserve`] and [`Rail::commit`]: the body is copied.
///
/// # Errors
/// As [`Rail::reserve`].
///
/// # Safety
/// The body's memory is readable and unchanging until this returns.
#[inline(always)]
pub unsafe fn send_by_grant<R: Rail + ?Sized>(
    rail: &mut R,
    to: Endpoint,
    shape: Shape,
    header: &[u8],
    body: Span,
) -> Result<Sent, SendError> {
    let mut grant = rail.reserve(to, shape)?;
    grant.write(0, header);
    // SAFETY: the caller guarantees that the body is valid.
    unsafe { grant.gather(header.len(), body) };
    let ticket = grant.finish();
    Ok(rail.commit(ticket))
}

/// [`FastPath::send_now`] for rails without a faster way: [`Rail::reserve`], then [`Rail::commit`]. Also for a wrapper that has
/// to see both calls.
///
/// # Errors
/// As [`Rail::reserve`].
///
/// # Safety
/// As [`FastPath::send_now`].
#[inline(always)]
pub unsafe fn send_now_by_grant<R: Rail + ?Sized>(
    rail: &mut R,
    to: Endpoint,
    tag: u8,
    header: [u64; 3],
    body: Span,
) -> Result<Sent, SendError> {
    let (from, len) = (size_of_val(&header), (size_of_val(&header) as u32).wrapping_add(body.len() as u32));
    let mut grant = rail.reserve(to, Shape { tag, lane: Lane::Eager, header: from as u8, len })?;
    grant.write_words(0, header);
    // SAFETY: the caller guarantees that the body is valid.
    unsafe { grant.gather(from, body) };
    let ticket = grant.finish();
    Ok(rail.commit(ticket))
}
