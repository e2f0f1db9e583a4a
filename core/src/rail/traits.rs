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
///
/// Methods are called by one thread at a time, and none blocks.
/// (Counterparts: BTL module of Open MPI, UCT interface, libfabric endpoint.)
pub trait Rail {
    /// Name, promises, limits and rank. Constant over the life of the rail.
    fn attributes(&self) -> &Attributes;

    /// The business card of this rail: the bytes that peers need to reach it, which the modex publishes. They are endian-neutral,
    /// and only rails of the same kind interpret them.
    fn card(&self) -> &[u8];

    /// Adds a peer, from the card that the peer's rail published. The call is local: the connection may come with the first use.
    ///
    /// # Errors
    /// [`Unreachable`] tells why this rail does not reach the peer. The rail is unchanged then.
    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable>;

    /// Deletes a peer, and frees everything that is kept for it. No event of the peer is reported afterwards, and the rail no
    /// longer accesses memory that was given for the peer. The peer may be added again.
    fn del_peer(&mut self, endpoint: Endpoint);

    /// Reserves room for one frame. A grant that is dropped is void: nothing is sent.
    ///
    /// # Errors
    /// [`SendError`]; nothing is reserved then.
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError>;

    /// Sends the frame that was written to a grant. The ticket is the last one that this rail gave out.
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
        let mut grant = self.reserve(to, shape)?;
        grant.write(0, header);
        // SAFETY: the caller guarantees that the body is valid until this returns.
        unsafe { grant.gather(header.len(), body) };
        let ticket = grant.finish();
        Ok(self.commit(ticket))
    }

    /// As [`send`](Self::send), for a body whose checksum is in the header, so that the other end accepts no other body. A rail
    /// that would copy the body may give the memory itself to the device instead, and count the body as copied. Then the device
    /// may read the memory, and send the bytes that it finds there, after the caller was told that the body is not read any more.
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

    /// Whether all frames that were committed to a peer are with the device, or move without further calls (CONTRACTS B17).
    fn drained(&self, to: Endpoint) -> bool;

    /// Takes in frames that arrived, and sends frames that wait. Returns at most one event. `None`: the rail is idle for now.
    fn poll(&mut self, now: Instant) -> Option<Event>;

    /// Copies bytes of a held frame, from offset `at` (header included), into `into`. Returns how many there were. Bytes that
    /// have not arrived yet are not counted.
    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize;

    /// Puts the frame's bytes from `skip` on into `sink`, and releases the frame. Bytes that do not fit the sink are dropped.
    /// After [`Delivery::Pending`] the rail writes to the sink until [`Event::Delivered`](crate::rail::Event::Delivered) with
    /// `cookie`.
    ///
    /// # Safety
    /// The sink's memory is writable, and no one else accesses it, until this returns; after `Pending` until
    /// [`Event::Delivered`](crate::rail::Event::Delivered) with `cookie`, [`Event::Lost`](crate::rail::Event::Lost) of that peer,
    /// or `del_peer`.
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery;

    /// Releases a frame that was not read, or read in part. If its body is still arriving, the rail drops the rest.
    fn release(&mut self, frame: FrameId);

    /// Sends committed frames that wait for more frames to go with, or for the next poll. For a caller that may not poll again
    /// for a while. Frames that find no room below still wait for polls.
    fn flush(&mut self) {}

    /// When `poll` must be called at the latest, although nothing arrives. Takes constant time.
    fn poll_at(&self) -> Option<Instant>;

    /// Sets whether frames of this rail wake a sleeping peer only when they are asked to, by [`signal`](Self::signal). At first
    /// all frames do. Rails that are not [`Capabilities::SIGNALED`](crate::rail::Capabilities::SIGNALED) ignore it (CONTRACTS
    /// B39).
    fn wake_on_demand(&mut self, on: bool) {
        let _ = on;
    }

    /// Wakes a peer that sleeps. Frames that were sent to it before have arrived then. For rails with
    /// [`wake_on_demand`](Self::wake_on_demand); others ignore it.
    fn signal(&mut self, to: Endpoint) {
        let _ = to;
    }

    /// Tells the rail that the caller is about to sleep on the rail's wait handle. `true`: there is nothing to do now, and
    /// any arrival will make the handle ready. `false`: there is something to do, so the caller polls first.
    fn arm(&mut self) -> bool;
}

/// Short messages in few instructions: the header is in registers, and the body is copied at once. The defaults do the same work by
/// [`Rail::reserve`] and [`Rail::commit`], or leave it to [`Rail::poll`]. A rail without a fast path loses only instructions.
pub trait FastPath: Rail {
    /// Sends a frame of the eager lane with a header of 24 bytes and a body of up to [`COPIED`](crate::rail::COPIED) bytes, if it
    /// takes no more than to write them down. The header is given as words, least significant byte first. A rail may answer
    /// [`SendError::Busy`](crate::rail::SendError::Busy) where [`send`](Rail::send) finds room; then the caller calls that.
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

    /// The fast part of [`poll`](Rail::poll): yields a frame with `tag` of 24 to [`HEAD`](crate::rail::HEAD) bytes, if it takes
    /// no more than to pick it up. `None` tells nothing, neither that there is no such frame nor that nothing else is to be done;
    /// `poll` tells that. Such a frame is not held, so it may arrive also while no further frame can be held.
    #[inline(always)]
    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        let _ = tag;
        None
    }

    /// The last frame that [`poll_short`](Self::poll_short) yielded, as `poll` yields it: for a caller that finds that the fast
    /// path cannot take the frame. To be called right after `poll_short`; after another call the answer means nothing. `None` if
    /// the frame has changed, since its sender overwrote it.
    fn poll_again(&mut self) -> Option<Frame> {
        None
    }
}

/// Bytes that a rail keeps with each cached request (CONTRACTS P16 to P19). The defaults keep nothing.
pub trait RequestCache: Rail {
    /// Prepares the [`Attributes::cache_bytes`](crate::rail::Attributes::cache_bytes) of a request that enters this rail's cache
    /// (CONTRACTS P18): once, not on each use.
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

/// Single copy of long bodies: the receiver reads the sender's memory directly, by the kernel (`process_vm_readv`) or a device. By
/// default a rail exposes nothing and reads nothing. (Counterparts: CMA and KNEM of Open MPI and UCX, UCX rkey with get zcopy.)
pub trait SingleCopy: Rail {
    /// Exposes the memory of `body` to a peer, whose rail may read it by [`read_exposed`](Self::read_exposed). `None` if this
    /// rail cannot, or if copies through frames are faster for so many bytes. The rail keeps nothing for the buffer, so it need
    /// not be returned.
    ///
    /// The memory may be read until [`Event::Lost`](crate::rail::Event::Lost) of that peer, `del_peer`, or
    /// [`revoke_exposed`](Self::revoke_exposed). From then on a read of it fails at the other end. A sender whose peer is to read
    /// the present bytes leaves the memory unchanged until the peer has told that it is done. If the memory is written to
    /// meanwhile, the peer reads arbitrary bytes, and no more harm is done.
    #[inline]
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let _ = (to, body);
        None
    }

    /// Copies the first bytes of a peer's exposed buffer into `sink`, as many as the sink takes. Returns whether that was possible:
    /// if not, the bytes have to arrive in frames, and the sink's contents are void. The buffer's description comes from a peer
    /// that may be hostile. A forged one yields bytes of that peer's own memory, or none.
    ///
    /// # Safety
    /// The sink's memory is writable, and no one else accesses it, until this returns.
    #[inline]
    unsafe fn read_exposed(&mut self, from: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        let _ = (from, buffer, sink);
        false
    }

    /// How many bytes of an exposed buffer of a peer may be read at a time; 0: none. A receiver asks the peer to expose no more.
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

    /// Takes a registration back. When this returns, no peer reaches the memory by this rail any more. Not to be called while an
    /// operation of this side uses it.
    fn deregister(&mut self, region: Region) {
        let _ = region;
    }

    /// Begins an operation on memory of a peer. `Some`: the operation is over already; the value is the old word of an atomic,
    /// else 0. `None`: [`Event::Performed`](crate::rail::Event::Performed) will tell its end.
    ///
    /// # Errors
    /// [`NativeError`]: nothing is done then, and the rail holds no memory.
    ///
    /// # Safety
    /// For a put the local memory is readable and unchanging, for a get it is writable and no one else's, until the operation is
    /// over, or [`Event::Lost`](crate::rail::Event::Lost) or [`Event::Down`](crate::rail::Event::Down) of that peer, or
    /// `del_peer`.
    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        let _ = (on, native, cookie);
        Err(NativeError::NotAvailable)
    }
}

/// Frames that migrate from a link that is down to another one. By default a rail keeps no frames, as only links do.
/// (Counterpart: `bfo` of Open MPI.)
pub trait Failover: Rail {
    /// The oldest frame to a peer that was not acknowledged, of a link that is [`Event::Down`], for another rail to carry by
    /// [`send_migrated`](Self::send_migrated). The same frame is returned again until it has [`migrated`](Self::migrated). `None`
    /// if there is no such frame, or if the rail keeps none.
    fn next_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        let _ = to;
        None
    }

    /// The frame that [`next_unacked`](Self::next_unacked) returned was sent by another rail: this one is done with its body.
    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        let _ = (to, origin);
    }

    /// As [`send`](Rail::send), for a frame that was given to another link first. The peer gets it as
    /// [`Event::Migrated`](crate::rail::Event::Migrated). Without a cookie the body is copied, however long it is, and may end
    /// when this returns. Rails that are not links answer [`SendError::Unreachable`](crate::rail::SendError::Unreachable).
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

    /// This link's knowledge of a frame of `from` that another link has brought as
    /// [`Event::Migrated`](crate::rail::Event::Migrated). Each link to that peer is to be asked, and [`Claim::Awaited`] of any of
    /// them decides. `None`: the link knows nothing.
    ///
    /// The caller has delivered or released all frames that it got before. A link answers [`Claim::Duplicate`] for a frame that
    /// the caller still holds, even if the frame's body is bad and would have to arrive once more.
    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let _ = (from, origin);
        None
    }
}

/// Whether a peer and its host still answer. By default a rail cannot tell.
pub trait Liveness: Rail {
    /// Probes the host of a peer, which answers without a process, and returns when its last answer arrived. So a peer whose
    /// process is stopped does not count as lost as long as its host answers. `None`: there was no answer, or this rail cannot
    /// probe hosts.
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let _ = of;
        None
    }

    /// Whether the peer was alive after `since`, by which it was to have answered on another link that is
    /// [`Event::Silent`](crate::rail::Event::Silent). If so, the other link need not be kept. An arrival after `since` is no
    /// proof, as the frame may have been on its way for long; only the answer to a probe that this link sent after `since` is. If
    /// there was none, the peer is probed, and a later call may know better. `since` is `None` where no answer was due on the
    /// other link so far; then a peer that is not connected is sent a hello, and the answer is `false`.
    fn answered_since(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        let _ = (of, since);
        true
    }

    /// Whether the handshake of the two sides by this link is over. Before that, nothing that the peer sent by it has arrived.
    /// Always `true` for rails that are not links.
    fn is_connected(&self, peer: Endpoint) -> bool {
        let _ = peer;
        true
    }

    /// Declares a peer or a link to it as failed. Other rails have detected the failure, and this rail has not. Returns whether it
    /// counts as failed from now on. No event reports it.
    ///
    /// - [`GiveUp::Peer`]: deletes the peer as [`del_peer`](Rail::del_peer) does, but without a goodbye. If the peer is there
    ///   after all, it must take this for a failure, not for an orderly end. Always `true`.
    /// - [`GiveUp::Link`]: a link that is [`Event::Silent`](crate::rail::Event::Silent), and has another link beside it, is down
    ///   as after [`Event::Down`](crate::rail::Event::Down). `false`, and nothing is changed, if it is not silent, or not for
    ///   long enough, and for rails that are not links.
    ///
    /// Rails that are not links, and have no goodbye, need not implement this.
    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        match what {
            GiveUp::Peer => self.del_peer(to),
            GiveUp::Link => return false,
        }
        true
    }
}

/// A rail with all extensions. Links, the engine and the BTL face ask for this. Every type that has [`Rail`] and the extensions
/// has it; a rail without a feature writes an empty implementation of that extension, and gets its defaults.
pub trait FullRail: Rail + FastPath + RequestCache + SingleCopy + DeviceMemory + Failover + Liveness {}

impl<R: Rail + FastPath + RequestCache + SingleCopy + DeviceMemory + Failover + Liveness + ?Sized> FullRail for R {}

/// [`FastPath::send_now`] for rails without a faster way: [`Rail::reserve`], then [`Rail::commit`]. Also for rails on top of
/// others that are to see both calls.
///
/// # Errors
/// As [`Rail::reserve`].
///
/// # Safety
/// As [`FastPath::send_now`].
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
    // SAFETY: the caller guarantees that the body is valid.
    unsafe { grant.gather(from, body) };
    let ticket = grant.finish();
    Ok(rail.commit(ticket))
}
