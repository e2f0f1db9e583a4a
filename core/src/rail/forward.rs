//! Forwarding: a rail that wraps another one passes on the methods that it does not change.

/// Writes the methods of [`Rail`](crate::rail::Rail), or of an extension, that a wrapper passes on to the rail below: all but
/// those after `except`, which the wrapper writes itself. So no method is forgotten, also if it is new or has a default. With
/// `#[deny(clippy::missing_trait_methods)]` on the implementation, clippy finds a method that this macro does not know yet.
///
/// For an extension, the first arguments are its name and a colon. The next argument is the name of a macro that finds the rail
/// below: `via!(self, rail => call)` evaluates `call`, in which `rail` is a reference to the rail below. The reference is
/// shared or exclusive as `self` is.
///
/// ```
/// use towline_core::forward_rail;
/// use towline_core::rail::{
///     DeviceMemory, Event, Failover, FastPath, FullRail, Liveness, Rail, RequestCache, SingleCopy,
/// };
/// use towline_core::time::Instant;
///
/// /// Counts events.
/// struct Counted<R> {
///     rail: R,
///     events: u64,
/// }
///
/// macro_rules! below {
///     ($self:expr, $rail:ident => $call:expr) => {
///         match $self {
///             Counted { rail: $rail, .. } => $call,
///         }
///     };
/// }
///
/// #[deny(clippy::missing_trait_methods)]
/// impl<R: FullRail> Rail for Counted<R> {
///     forward_rail!(below, except poll);
///
///     fn poll(&mut self, now: Instant) -> Option<Event> {
///         let event = self.rail.poll(now);
///         self.events += u64::from(event.is_some());
///         event
///     }
/// }
///
/// // Each event is to be counted, so the fast path is not passed on. Its defaults yield nothing, and all events come by `poll`.
/// impl<R: FullRail> FastPath for Counted<R> {}
///
/// #[deny(clippy::missing_trait_methods)]
/// impl<R: FullRail> RequestCache for Counted<R> {
///     forward_rail!(RequestCache: below);
/// }
///
/// #[deny(clippy::missing_trait_methods)]
/// impl<R: FullRail> SingleCopy for Counted<R> {
///     forward_rail!(SingleCopy: below);
/// }
///
/// #[deny(clippy::missing_trait_methods)]
/// impl<R: FullRail> DeviceMemory for Counted<R> {
///     forward_rail!(DeviceMemory: below);
/// }
///
/// #[deny(clippy::missing_trait_methods)]
/// impl<R: FullRail> Failover for Counted<R> {
///     forward_rail!(Failover: below);
/// }
///
/// #[deny(clippy::missing_trait_methods)]
/// impl<R: FullRail> Liveness for Counted<R> {
///     forward_rail!(Liveness: below);
/// }
/// ```
#[macro_export]
macro_rules! forward_rail {
    (FastPath: $via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?] send_now poll_short poll_eager poll_copied poll_again is_idle);
    };
    (RequestCache: $via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?] request_init request_fini send_request);
    };
    (SingleCopy: $via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?] expose read_exposed read_limit revoke_exposed);
    };
    (DeviceMemory: $via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?] register deregister perform);
    };
    (Failover: $via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?] next_unacked migrated send_migrated claim);
    };
    (Liveness: $via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?] ask_host answered_since is_connected give_up end_after_frames has_closed);
    };
    ($via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?]
            attributes card add_peer del_peer reserve commit send send_summed drained poll read deliver release flush poll_at
            wake_on_demand signal arm);
    };
    (@each $via:ident $own:tt $($method:ident)+) => {
        $($crate::forward_rail!(@ $method $via $own);)+
    };
    // The wrapper writes this method itself.
    (@ attributes $via:ident [attributes $($rest:ident)*]) => {};
    (@ card $via:ident [card $($rest:ident)*]) => {};
    (@ add_peer $via:ident [add_peer $($rest:ident)*]) => {};
    (@ del_peer $via:ident [del_peer $($rest:ident)*]) => {};
    (@ reserve $via:ident [reserve $($rest:ident)*]) => {};
    (@ commit $via:ident [commit $($rest:ident)*]) => {};
    (@ send $via:ident [send $($rest:ident)*]) => {};
    (@ request_init $via:ident [request_init $($rest:ident)*]) => {};
    (@ request_fini $via:ident [request_fini $($rest:ident)*]) => {};
    (@ send_request $via:ident [send_request $($rest:ident)*]) => {};
    (@ send_now $via:ident [send_now $($rest:ident)*]) => {};
    (@ send_summed $via:ident [send_summed $($rest:ident)*]) => {};
    (@ expose $via:ident [expose $($rest:ident)*]) => {};
    (@ read_exposed $via:ident [read_exposed $($rest:ident)*]) => {};
    (@ read_limit $via:ident [read_limit $($rest:ident)*]) => {};
    (@ revoke_exposed $via:ident [revoke_exposed $($rest:ident)*]) => {};
    (@ register $via:ident [register $($rest:ident)*]) => {};
    (@ deregister $via:ident [deregister $($rest:ident)*]) => {};
    (@ perform $via:ident [perform $($rest:ident)*]) => {};
    (@ next_unacked $via:ident [next_unacked $($rest:ident)*]) => {};
    (@ migrated $via:ident [migrated $($rest:ident)*]) => {};
    (@ send_migrated $via:ident [send_migrated $($rest:ident)*]) => {};
    (@ claim $via:ident [claim $($rest:ident)*]) => {};
    (@ drained $via:ident [drained $($rest:ident)*]) => {};
    (@ poll $via:ident [poll $($rest:ident)*]) => {};
    (@ poll_short $via:ident [poll_short $($rest:ident)*]) => {};
    (@ poll_eager $via:ident [poll_eager $($rest:ident)*]) => {};
    (@ poll_copied $via:ident [poll_copied $($rest:ident)*]) => {};
    (@ poll_again $via:ident [poll_again $($rest:ident)*]) => {};
    (@ is_idle $via:ident [is_idle $($rest:ident)*]) => {};
    (@ read $via:ident [read $($rest:ident)*]) => {};
    (@ deliver $via:ident [deliver $($rest:ident)*]) => {};
    (@ release $via:ident [release $($rest:ident)*]) => {};
    (@ flush $via:ident [flush $($rest:ident)*]) => {};
    (@ ask_host $via:ident [ask_host $($rest:ident)*]) => {};
    (@ answered_since $via:ident [answered_since $($rest:ident)*]) => {};
    (@ is_connected $via:ident [is_connected $($rest:ident)*]) => {};
    (@ give_up $via:ident [give_up $($rest:ident)*]) => {};
    (@ end_after_frames $via:ident [end_after_frames $($rest:ident)*]) => {};
    (@ has_closed $via:ident [has_closed $($rest:ident)*]) => {};
    (@ poll_at $via:ident [poll_at $($rest:ident)*]) => {};
    (@ wake_on_demand $via:ident [wake_on_demand $($rest:ident)*]) => {};
    (@ signal $via:ident [signal $($rest:ident)*]) => {};
    (@ arm $via:ident [arm $($rest:ident)*]) => {};
    // The wrapper writes another method itself: look at the next name.
    (@ $method:ident $via:ident [$other:ident $($rest:ident)*]) => {
        $crate::forward_rail!(@ $method $via [$($rest)*]);
    };
    (@ attributes $via:ident []) => {
        #[inline]
        fn attributes(&self) -> &$crate::rail::Attributes {
            $via!(self, rail => rail.attributes())
        }
    };
    (@ card $via:ident []) => {
        #[inline]
        fn card(&self) -> &[u8] {
            $via!(self, rail => rail.card())
        }
    };
    (@ add_peer $via:ident []) => {
        #[inline]
        fn add_peer(
            &mut self,
            peer: $crate::rail::Peer,
            card: &[u8],
        ) -> ::core::result::Result<$crate::rail::Endpoint, $crate::rail::Unreachable> {
            $via!(self, rail => rail.add_peer(peer, card))
        }
    };
    (@ del_peer $via:ident []) => {
        #[inline]
        fn del_peer(&mut self, endpoint: $crate::rail::Endpoint) {
            $via!(self, rail => rail.del_peer(endpoint))
        }
    };
    (@ reserve $via:ident []) => {
        #[inline]
        fn reserve(
            &mut self,
            to: $crate::rail::Endpoint,
            shape: $crate::rail::Shape,
        ) -> ::core::result::Result<$crate::rail::Grant<'_>, $crate::rail::SendError> {
            $via!(self, rail => rail.reserve(to, shape))
        }
    };
    (@ commit $via:ident []) => {
        #[inline]
        fn commit(&mut self, ticket: $crate::rail::Ticket) -> $crate::rail::Sent {
            $via!(self, rail => rail.commit(ticket))
        }
    };
    (@ send $via:ident []) => {
        #[inline]
        unsafe fn send(
            &mut self,
            to: $crate::rail::Endpoint,
            shape: $crate::rail::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: $crate::rail::Cookie,
        ) -> ::core::result::Result<$crate::rail::Sent, $crate::rail::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send(to, shape, header, body, cookie) })
        }
    };
    (@ request_init $via:ident []) => {
        #[inline]
        fn request_init(&mut self, extra: &mut [u8]) {
            $via!(self, rail => rail.request_init(extra))
        }
    };
    (@ request_fini $via:ident []) => {
        #[inline]
        fn request_fini(&mut self, extra: &mut [u8]) {
            $via!(self, rail => rail.request_fini(extra))
        }
    };
    (@ send_request $via:ident []) => {
        #[inline]
        unsafe fn send_request(
            &mut self,
            to: $crate::rail::Endpoint,
            shape: $crate::rail::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: $crate::rail::Cookie,
            extra: ::core::option::Option<&mut [u8]>,
        ) -> ::core::result::Result<$crate::rail::Sent, $crate::rail::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_request(to, shape, header, body, cookie, extra) })
        }
    };
    (@ send_now $via:ident []) => {
        #[inline]
        unsafe fn send_now(
            &mut self,
            to: $crate::rail::Endpoint,
            tag: u8,
            header: [u64; 3],
            body: $crate::convertor::Span,
        ) -> ::core::result::Result<$crate::rail::Sent, $crate::rail::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_now(to, tag, header, body) })
        }
    };
    (@ send_summed $via:ident []) => {
        #[inline]
        unsafe fn send_summed(
            &mut self,
            to: $crate::rail::Endpoint,
            shape: $crate::rail::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: $crate::rail::Cookie,
        ) -> ::core::result::Result<$crate::rail::Sent, $crate::rail::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_summed(to, shape, header, body, cookie) })
        }
    };
    (@ expose $via:ident []) => {
        #[inline]
        fn expose(
            &mut self,
            to: $crate::rail::Endpoint,
            body: &$crate::convertor::Span,
        ) -> ::core::option::Option<$crate::rail::RemoteBuffer> {
            $via!(self, rail => rail.expose(to, body))
        }
    };
    (@ read_exposed $via:ident []) => {
        #[inline]
        unsafe fn read_exposed(
            &mut self,
            from: $crate::rail::Endpoint,
            buffer: &$crate::rail::RemoteBuffer,
            sink: $crate::convertor::Span,
        ) -> bool {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.read_exposed(from, buffer, sink) })
        }
    };
    (@ read_limit $via:ident []) => {
        #[inline]
        fn read_limit(&self, from: $crate::rail::Endpoint) -> u64 {
            $via!(self, rail => rail.read_limit(from))
        }
    };
    (@ revoke_exposed $via:ident []) => {
        #[inline]
        fn revoke_exposed(&mut self) {
            $via!(self, rail => rail.revoke_exposed())
        }
    };
    (@ register $via:ident []) => {
        #[inline]
        unsafe fn register(
            &mut self,
            base: *mut u8,
            len: usize,
            access: $crate::rail::access::Access,
        ) -> ::core::result::Result<
            ($crate::rail::native::Region, $crate::rail::native::Key),
            $crate::rail::native::NativeError,
        > {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.register(base, len, access) })
        }
    };
    (@ deregister $via:ident []) => {
        #[inline]
        fn deregister(&mut self, region: $crate::rail::native::Region) {
            $via!(self, rail => rail.deregister(region))
        }
    };
    (@ perform $via:ident []) => {
        #[inline]
        unsafe fn perform(
            &mut self,
            on: $crate::rail::Endpoint,
            native: &$crate::rail::native::Native,
            cookie: $crate::rail::Cookie,
        ) -> ::core::result::Result<::core::option::Option<u64>, $crate::rail::native::NativeError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.perform(on, native, cookie) })
        }
    };
    (@ next_unacked $via:ident []) => {
        #[inline]
        fn next_unacked(&self, to: $crate::rail::Endpoint) -> ::core::option::Option<$crate::rail::UnackedFrame> {
            $via!(self, rail => rail.next_unacked(to))
        }
    };
    (@ migrated $via:ident []) => {
        #[inline]
        fn migrated(&mut self, to: $crate::rail::Endpoint, origin: $crate::rail::Origin) {
            $via!(self, rail => rail.migrated(to, origin))
        }
    };
    (@ send_migrated $via:ident []) => {
        #[inline]
        unsafe fn send_migrated(
            &mut self,
            to: $crate::rail::Endpoint,
            origin: $crate::rail::Origin,
            shape: $crate::rail::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: ::core::option::Option<$crate::rail::Cookie>,
        ) -> ::core::result::Result<$crate::rail::Sent, $crate::rail::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_migrated(to, origin, shape, header, body, cookie) })
        }
    };
    (@ claim $via:ident []) => {
        #[inline]
        fn claim(
            &mut self,
            from: $crate::rail::Endpoint,
            origin: $crate::rail::Origin,
        ) -> ::core::option::Option<$crate::rail::Claim> {
            $via!(self, rail => rail.claim(from, origin))
        }
    };
    (@ drained $via:ident []) => {
        #[inline]
        fn drained(&self, to: $crate::rail::Endpoint) -> bool {
            $via!(self, rail => rail.drained(to))
        }
    };
    (@ poll $via:ident []) => {
        #[inline]
        fn poll(&mut self, now: $crate::time::Instant) -> ::core::option::Option<$crate::rail::Event> {
            $via!(self, rail => rail.poll(now))
        }
    };
    (@ poll_short $via:ident []) => {
        #[inline]
        fn poll_short(&mut self, tag: u8) -> ::core::option::Option<$crate::rail::Short> {
            $via!(self, rail => rail.poll_short(tag))
        }
    };
    (@ poll_eager $via:ident []) => {
        #[inline(always)]
        fn poll_eager(&mut self, tag: u8) -> ::core::option::Option<$crate::rail::Short> {
            $via!(self, rail => rail.poll_eager(tag))
        }
    };
    (@ poll_copied $via:ident []) => {
        #[inline]
        fn poll_copied(&mut self, except: u8, into: &mut [u8]) -> ::core::option::Option<$crate::rail::Copied> {
            $via!(self, rail => rail.poll_copied(except, into))
        }
    };
    (@ poll_again $via:ident []) => {
        #[inline]
        fn poll_again(&mut self) -> ::core::option::Option<$crate::rail::Frame> {
            $via!(self, rail => rail.poll_again())
        }
    };
    (@ is_idle $via:ident []) => {
        #[inline]
        fn is_idle(&mut self) -> bool {
            $via!(self, rail => rail.is_idle())
        }
    };
    (@ read $via:ident []) => {
        #[inline]
        fn read(&self, frame: $crate::rail::FrameId, at: usize, into: &mut [u8]) -> usize {
            $via!(self, rail => rail.read(frame, at, into))
        }
    };
    (@ deliver $via:ident []) => {
        #[inline]
        unsafe fn deliver(
            &mut self,
            frame: $crate::rail::FrameId,
            skip: usize,
            sink: $crate::convertor::Span,
            cookie: $crate::rail::Cookie,
        ) -> $crate::rail::Delivery {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.deliver(frame, skip, sink, cookie) })
        }
    };
    (@ release $via:ident []) => {
        #[inline]
        fn release(&mut self, frame: $crate::rail::FrameId) {
            $via!(self, rail => rail.release(frame))
        }
    };
    (@ flush $via:ident []) => {
        #[inline]
        fn flush(&mut self) {
            $via!(self, rail => rail.flush())
        }
    };
    (@ ask_host $via:ident []) => {
        #[inline]
        fn ask_host(&mut self, of: $crate::rail::Endpoint) -> ::core::option::Option<$crate::time::Instant> {
            $via!(self, rail => rail.ask_host(of))
        }
    };
    (@ answered_since $via:ident []) => {
        #[inline]
        fn answered_since(&mut self, of: $crate::rail::Endpoint, since: Option<$crate::time::Instant>) -> bool {
            $via!(self, rail => rail.answered_since(of, since))
        }
    };
    (@ is_connected $via:ident []) => {
        #[inline]
        fn is_connected(&self, peer: $crate::rail::Endpoint) -> bool {
            $via!(self, rail => rail.is_connected(peer))
        }
    };
    (@ give_up $via:ident []) => {
        #[inline]
        fn give_up(&mut self, to: $crate::rail::Endpoint, what: $crate::rail::GiveUp) -> bool {
            $via!(self, rail => rail.give_up(to, what))
        }
    };
    (@ end_after_frames $via:ident []) => {
        #[inline]
        fn end_after_frames(&mut self, of: $crate::rail::Endpoint, why: $crate::rail::Lost) -> bool {
            $via!(self, rail => rail.end_after_frames(of, why))
        }
    };
    (@ has_closed $via:ident []) => {
        #[inline]
        fn has_closed(&mut self, of: $crate::rail::Endpoint) -> bool {
            $via!(self, rail => rail.has_closed(of))
        }
    };
    (@ poll_at $via:ident []) => {
        #[inline]
        fn poll_at(&self) -> ::core::option::Option<$crate::time::Instant> {
            $via!(self, rail => rail.poll_at())
        }
    };
    (@ wake_on_demand $via:ident []) => {
        #[inline]
        fn wake_on_demand(&mut self, on: bool) {
            $via!(self, rail => rail.wake_on_demand(on))
        }
    };
    (@ signal $via:ident []) => {
        #[inline]
        fn signal(&mut self, to: $crate::rail::Endpoint) {
            $via!(self, rail => rail.signal(to))
        }
    };
    (@ arm $via:ident []) => {
        #[inline]
        fn arm(&mut self) -> bool {
            $via!(self, rail => rail.arm())
        }
    };
}
