//! A loopback rail whose ends expose memory to each other for single copy, as shared-memory rails do. A read copies from
//! the exposed memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towline_core::convertor::Span;
use towline_core::forward_rail;
use towline_core::rail::loopback::Rail as Loopback;
use towline_core::rail::{
    DeviceMemory, Endpoint, Failover, FastPath, Liveness, REMOTE_BUFFER_BYTES, Rail, RemoteBuffer, RequestCache,
    SingleCopy,
};

/// Exposed buffers with their owners. A revoked buffer is `None`.
type Buffers = Vec<(u32, Option<Span>)>;

/// The exposed buffers of all ends, and whether they can be read.
#[derive(Clone, Debug, Default)]
pub struct ExposedBuffers {
    all: Rc<RefCell<Buffers>>,
    /// True while no buffer can be read.
    pub refused: Rc<Cell<bool>>,
}

impl ExposedBuffers {
    /// Exposes a buffer of an end that has no such rail. The first buffer has number 1. The caller keeps the buffer until
    /// no rail uses it any more.
    pub fn expose(&self, by: u32, body: Span) {
        self.all.borrow_mut().push((by, Some(body)));
    }
}

/// An end of the mesh.
#[derive(Debug)]
pub struct ExposingRail<'h> {
    rail: Loopback<'h>,
    me: u32,
    exposed: ExposedBuffers,
}

macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            ExposingRail { rail: $rail, .. } => $call,
        }
    };
}

impl<'h> ExposingRail<'h> {
    /// The end with number `me`. The endpoint of each peer must have the peer's number.
    pub fn new(rail: Loopback<'h>, me: u32, exposed: ExposedBuffers) -> Self {
        Self { rail, me, exposed }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Rail for ExposingRail<'_> {
    forward_rail!(below);
}

#[deny(clippy::missing_trait_methods)]
impl FastPath for ExposingRail<'_> {
    forward_rail!(FastPath: below);
}

#[deny(clippy::missing_trait_methods)]
impl RequestCache for ExposingRail<'_> {
    forward_rail!(RequestCache: below);
}

#[deny(clippy::missing_trait_methods)]
impl SingleCopy for ExposingRail<'_> {
    forward_rail!(SingleCopy: below, except expose, read_exposed, read_limit, revoke_exposed);

    fn expose(&mut self, _: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        body.as_contiguous()?;
        let mut all = self.exposed.all.borrow_mut();
        all.push((self.me, Some(*body)));
        let mut remote = [0; REMOTE_BUFFER_BYTES];
        remote[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
        Some(RemoteBuffer(remote))
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, remote: &RemoteBuffer, sink: Span) -> bool {
        let number = u64::from_le_bytes(std::array::from_fn(|at| remote.0[at]));
        let all = self.exposed.all.borrow();
        let named = number.checked_sub(1).and_then(|at| all.get(at as usize)).copied();
        // A peer can name its own buffers only.
        let body = named.filter(|(by, _)| *by == from.0).and_then(|(_, body)| body);
        let found = body.filter(|body| sink.len() <= body.len() && !self.exposed.refused.get());
        let Some((base, len)) = found.and_then(|body| body.as_contiguous()) else { return false };
        // SAFETY: the owner keeps the exposed memory until the read is acknowledged or the owner revokes the buffer. The
        // caller guarantees that the sink is valid.
        unsafe { sink.unpack(base, len) };
        true
    }

    fn read_limit(&self, _: Endpoint) -> u64 {
        200
    }

    fn revoke_exposed(&mut self) {
        self.exposed
            .all
            .borrow_mut()
            .iter_mut()
            .filter(|exposed| exposed.0 == self.me)
            .for_each(|exposed| exposed.1 = None);
    }
}

#[deny(clippy::missing_trait_methods)]
impl DeviceMemory for ExposingRail<'_> {
    forward_rail!(DeviceMemory: below);
}

#[deny(clippy::missing_trait_methods)]
impl Failover for ExposingRail<'_> {
    forward_rail!(Failover: below);
}

#[deny(clippy::missing_trait_methods)]
impl Liveness for ExposingRail<'_> {
    forward_rail!(Liveness: below);
}
