//! Forwarding: what a rail on top of others does not change, it passes on.

/// Writes those methods of [`Rail`](crate::btl::Rail) that a wrapper passes on to the rail below: all but the named
/// ones, which it writes itself. So none is forgotten, neither a new one nor one with a default; put
/// `#[deny(clippy::missing_trait_methods)]` on the implementation, and clippy finds what this macro does not know yet.
///
/// The first argument is a macro that finds the rail below: `via!(self, rail => call)` evaluates `call` with `rail`
/// being a reference to it, shared or not as `self` is.
///
/// ```
/// use towline_core::btl::{Event, Rail};
/// use towline_core::forward_rail;
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
/// impl<R: Rail> Rail for Counted<R> {
///     forward_rail!(below, except poll);
///
///     fn poll(&mut self, now: Instant) -> Option<Event> {
///         let event = self.rail.poll(now);
///         self.events += u64::from(event.is_some());
///         event
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_rail {
    ($via:ident $(, except $($own:ident),+)?) => {
        $crate::forward_rail!(@each $via [$($($own)+)?]
            attributes card add_peer del_peer reserve commit send request_init request_fini
            send_request send_now send_summed lend fetch fetches recall register deregister perform orphan rehomed send_moved claim drained poll poll_short poll_again read deliver release flush ask_host hears knows give_up poll_at wake_on_demand signal arm);
    };
    (@each $via:ident $own:tt $($method:ident)+) => {
        $($crate::forward_rail!(@ $method $via $own);)+
    };
    // The wrapper's own.
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
    (@ lend $via:ident [lend $($rest:ident)*]) => {};
    (@ fetch $via:ident [fetch $($rest:ident)*]) => {};
    (@ fetches $via:ident [fetches $($rest:ident)*]) => {};
    (@ recall $via:ident [recall $($rest:ident)*]) => {};
    (@ register $via:ident [register $($rest:ident)*]) => {};
    (@ deregister $via:ident [deregister $($rest:ident)*]) => {};
    (@ perform $via:ident [perform $($rest:ident)*]) => {};
    (@ orphan $via:ident [orphan $($rest:ident)*]) => {};
    (@ rehomed $via:ident [rehomed $($rest:ident)*]) => {};
    (@ send_moved $via:ident [send_moved $($rest:ident)*]) => {};
    (@ claim $via:ident [claim $($rest:ident)*]) => {};
    (@ drained $via:ident [drained $($rest:ident)*]) => {};
    (@ poll $via:ident [poll $($rest:ident)*]) => {};
    (@ poll_short $via:ident [poll_short $($rest:ident)*]) => {};
    (@ poll_again $via:ident [poll_again $($rest:ident)*]) => {};
    (@ read $via:ident [read $($rest:ident)*]) => {};
    (@ deliver $via:ident [deliver $($rest:ident)*]) => {};
    (@ release $via:ident [release $($rest:ident)*]) => {};
    (@ flush $via:ident [flush $($rest:ident)*]) => {};
    (@ ask_host $via:ident [ask_host $($rest:ident)*]) => {};
    (@ hears $via:ident [hears $($rest:ident)*]) => {};
    (@ knows $via:ident [knows $($rest:ident)*]) => {};
    (@ give_up $via:ident [give_up $($rest:ident)*]) => {};
    (@ poll_at $via:ident [poll_at $($rest:ident)*]) => {};
    (@ wake_on_demand $via:ident [wake_on_demand $($rest:ident)*]) => {};
    (@ signal $via:ident [signal $($rest:ident)*]) => {};
    (@ arm $via:ident [arm $($rest:ident)*]) => {};
    // Another of the wrapper's own: look further.
    (@ $method:ident $via:ident [$other:ident $($rest:ident)*]) => {
        $crate::forward_rail!(@ $method $via [$($rest)*]);
    };
    (@ attributes $via:ident []) => {
        #[inline]
        fn attributes(&self) -> &$crate::btl::Attributes {
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
            peer: $crate::btl::Peer,
            card: &[u8],
        ) -> ::core::result::Result<$crate::btl::Endpoint, $crate::btl::Unreachable> {
            $via!(self, rail => rail.add_peer(peer, card))
        }
    };
    (@ del_peer $via:ident []) => {
        #[inline]
        fn del_peer(&mut self, endpoint: $crate::btl::Endpoint) {
            $via!(self, rail => rail.del_peer(endpoint))
        }
    };
    (@ reserve $via:ident []) => {
        #[inline]
        fn reserve(
            &mut self,
            to: $crate::btl::Endpoint,
            shape: $crate::btl::Shape,
        ) -> ::core::result::Result<$crate::btl::Grant<'_>, $crate::btl::SendError> {
            $via!(self, rail => rail.reserve(to, shape))
        }
    };
    (@ commit $via:ident []) => {
        #[inline]
        fn commit(&mut self, ticket: $crate::btl::Ticket) -> $crate::btl::Sent {
            $via!(self, rail => rail.commit(ticket))
        }
    };
    (@ send $via:ident []) => {
        #[inline]
        unsafe fn send(
            &mut self,
            to: $crate::btl::Endpoint,
            shape: $crate::btl::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: $crate::btl::Cookie,
        ) -> ::core::result::Result<$crate::btl::Sent, $crate::btl::SendError> {
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
            to: $crate::btl::Endpoint,
            shape: $crate::btl::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: $crate::btl::Cookie,
            extra: ::core::option::Option<&mut [u8]>,
        ) -> ::core::result::Result<$crate::btl::Sent, $crate::btl::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_request(to, shape, header, body, cookie, extra) })
        }
    };
    (@ send_now $via:ident []) => {
        #[inline]
        unsafe fn send_now(
            &mut self,
            to: $crate::btl::Endpoint,
            tag: u8,
            header: [u64; 3],
            body: $crate::convertor::Span,
        ) -> ::core::result::Result<$crate::btl::Sent, $crate::btl::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_now(to, tag, header, body) })
        }
    };
    (@ send_summed $via:ident []) => {
        #[inline]
        unsafe fn send_summed(
            &mut self,
            to: $crate::btl::Endpoint,
            shape: $crate::btl::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: $crate::btl::Cookie,
        ) -> ::core::result::Result<$crate::btl::Sent, $crate::btl::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_summed(to, shape, header, body, cookie) })
        }
    };
    (@ lend $via:ident []) => {
        #[inline]
        fn lend(
            &mut self,
            to: $crate::btl::Endpoint,
            body: &$crate::convertor::Span,
        ) -> ::core::option::Option<$crate::btl::Loan> {
            $via!(self, rail => rail.lend(to, body))
        }
    };
    (@ fetch $via:ident []) => {
        #[inline]
        unsafe fn fetch(
            &mut self,
            from: $crate::btl::Endpoint,
            loan: &$crate::btl::Loan,
            sink: $crate::convertor::Span,
        ) -> bool {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.fetch(from, loan, sink) })
        }
    };
    (@ fetches $via:ident []) => {
        #[inline]
        fn fetches(&self, from: $crate::btl::Endpoint) -> u64 {
            $via!(self, rail => rail.fetches(from))
        }
    };
    (@ recall $via:ident []) => {
        #[inline]
        fn recall(&mut self) {
            $via!(self, rail => rail.recall())
        }
    };
    (@ register $via:ident []) => {
        #[inline]
        unsafe fn register(
            &mut self,
            base: *mut u8,
            len: usize,
            access: $crate::btl::access::Access,
        ) -> ::core::result::Result<
            ($crate::btl::native::Region, $crate::btl::native::Key),
            $crate::btl::native::NativeError,
        > {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.register(base, len, access) })
        }
    };
    (@ deregister $via:ident []) => {
        #[inline]
        fn deregister(&mut self, region: $crate::btl::native::Region) {
            $via!(self, rail => rail.deregister(region))
        }
    };
    (@ perform $via:ident []) => {
        #[inline]
        unsafe fn perform(
            &mut self,
            on: $crate::btl::Endpoint,
            native: &$crate::btl::native::Native,
            cookie: $crate::btl::Cookie,
        ) -> ::core::result::Result<::core::option::Option<u64>, $crate::btl::native::NativeError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.perform(on, native, cookie) })
        }
    };
    (@ orphan $via:ident []) => {
        #[inline]
        fn orphan(&self, to: $crate::btl::Endpoint) -> ::core::option::Option<$crate::btl::Orphan> {
            $via!(self, rail => rail.orphan(to))
        }
    };
    (@ rehomed $via:ident []) => {
        #[inline]
        fn rehomed(&mut self, to: $crate::btl::Endpoint, origin: $crate::btl::Origin) {
            $via!(self, rail => rail.rehomed(to, origin))
        }
    };
    (@ send_moved $via:ident []) => {
        #[inline]
        unsafe fn send_moved(
            &mut self,
            to: $crate::btl::Endpoint,
            origin: $crate::btl::Origin,
            shape: $crate::btl::Shape,
            header: &[u8],
            body: $crate::convertor::Span,
            cookie: ::core::option::Option<$crate::btl::Cookie>,
        ) -> ::core::result::Result<$crate::btl::Sent, $crate::btl::SendError> {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.send_moved(to, origin, shape, header, body, cookie) })
        }
    };
    (@ claim $via:ident []) => {
        #[inline]
        fn claim(
            &mut self,
            from: $crate::btl::Endpoint,
            origin: $crate::btl::Origin,
        ) -> ::core::option::Option<$crate::btl::Claim> {
            $via!(self, rail => rail.claim(from, origin))
        }
    };
    (@ drained $via:ident []) => {
        #[inline]
        fn drained(&self, to: $crate::btl::Endpoint) -> bool {
            $via!(self, rail => rail.drained(to))
        }
    };
    (@ poll $via:ident []) => {
        #[inline]
        fn poll(&mut self, now: $crate::time::Instant) -> ::core::option::Option<$crate::btl::Event> {
            $via!(self, rail => rail.poll(now))
        }
    };
    (@ poll_short $via:ident []) => {
        #[inline]
        fn poll_short(&mut self, tag: u8) -> ::core::option::Option<$crate::btl::Short> {
            $via!(self, rail => rail.poll_short(tag))
        }
    };
    (@ poll_again $via:ident []) => {
        #[inline]
        fn poll_again(&mut self) -> ::core::option::Option<$crate::btl::Frame> {
            $via!(self, rail => rail.poll_again())
        }
    };
    (@ read $via:ident []) => {
        #[inline]
        fn read(&self, frame: $crate::btl::FrameId, at: usize, into: &mut [u8]) -> usize {
            $via!(self, rail => rail.read(frame, at, into))
        }
    };
    (@ deliver $via:ident []) => {
        #[inline]
        unsafe fn deliver(
            &mut self,
            frame: $crate::btl::FrameId,
            skip: usize,
            sink: $crate::convertor::Span,
            cookie: $crate::btl::Cookie,
        ) -> $crate::btl::Delivery {
            // SAFETY: passed on from the caller.
            $via!(self, rail => unsafe { rail.deliver(frame, skip, sink, cookie) })
        }
    };
    (@ release $via:ident []) => {
        #[inline]
        fn release(&mut self, frame: $crate::btl::FrameId) {
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
        fn ask_host(&mut self, of: $crate::btl::Endpoint) -> ::core::option::Option<$crate::time::Instant> {
            $via!(self, rail => rail.ask_host(of))
        }
    };
    (@ hears $via:ident []) => {
        #[inline]
        fn hears(&mut self, of: $crate::btl::Endpoint, since: Option<$crate::time::Instant>) -> bool {
            $via!(self, rail => rail.hears(of, since))
        }
    };
    (@ knows $via:ident []) => {
        #[inline]
        fn knows(&self, peer: $crate::btl::Endpoint) -> bool {
            $via!(self, rail => rail.knows(peer))
        }
    };
    (@ give_up $via:ident []) => {
        #[inline]
        fn give_up(&mut self, to: $crate::btl::Endpoint, what: $crate::btl::GiveUp) -> bool {
            $via!(self, rail => rail.give_up(to, what))
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
        fn signal(&mut self, to: $crate::btl::Endpoint) {
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
