//! A rail whose ends lend each other memory, as shared memory does: a loopback rail, and copies from where things lie.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towline_core::convertor::Span;
use towline_core::forward_rail;
use towline_core::rail::loopback::Rail as Loopback;
use towline_core::rail::{Endpoint, REMOTE_BUFFER_BYTES, Rail, RemoteBuffer};

/// Who has lent what, until it is recalled.
type Loans = Vec<(u32, Option<Span>)>;

/// What all ends have lent, and whether it can be fetched.
#[derive(Clone, Debug, Default)]
pub struct Lent {
    all: Rc<RefCell<Loans>>,
    /// Nothing can be.
    pub refused: Rc<Cell<bool>>,
}

impl Lent {
    /// What an end without such a rail has lent, under the number 1 if it is the first. Somebody keeps it until all is over.
    pub fn expose(&self, by: u32, body: Span) {
        self.all.borrow_mut().push((by, Some(body)));
    }
}

/// An end of the mesh.
#[derive(Debug)]
pub struct Lending<'h> {
    rail: Loopback<'h>,
    me: u32,
    lent: Lent,
}

macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            Lending { rail: $rail, .. } => $call,
        }
    };
}

impl<'h> Lending<'h> {
    /// The end with number `me`, whose peers' endpoints are their numbers.
    pub fn new(rail: Loopback<'h>, me: u32, lent: Lent) -> Self {
        Self { rail, me, lent }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Rail for Lending<'_> {
    forward_rail!(below);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::FastPath for Lending<'_> {
    forward_rail!(FastPath: below);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::RequestCache for Lending<'_> {
    forward_rail!(RequestCache: below);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::SingleCopy for Lending<'_> {
    forward_rail!(SingleCopy: below, except expose, read_exposed, read_limit, revoke_exposed);

    fn expose(&mut self, _: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        body.as_contiguous()?;
        let mut all = self.lent.all.borrow_mut();
        all.push((self.me, Some(*body)));
        let mut loan = [0; REMOTE_BUFFER_BYTES];
        loan[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
        Some(RemoteBuffer(loan))
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, loan: &RemoteBuffer, sink: Span) -> bool {
        let number = u64::from_le_bytes(std::array::from_fn(|at| loan.0[at]));
        let all = self.lent.all.borrow();
        let named = number.checked_sub(1).and_then(|at| all.get(at as usize)).copied();
        // Of the one who says so, and nobody else.
        let body = named.filter(|(by, _)| *by == from.0).and_then(|(_, body)| body);
        let found = body.filter(|body| sink.len() <= body.len() && !self.lent.refused.get());
        let Some((base, len)) = found.and_then(|body| body.as_contiguous()) else { return false };
        // SAFETY: who lent it keeps it until he is answered, or recalls it; the caller vouches for the sink.
        unsafe { sink.unpack(base, len) };
        true
    }

    fn read_limit(&self, _: Endpoint) -> u64 {
        200
    }

    fn revoke_exposed(&mut self) {
        self.lent.all.borrow_mut().iter_mut().filter(|lent| lent.0 == self.me).for_each(|lent| lent.1 = None);
    }
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::DeviceMemory for Lending<'_> {
    forward_rail!(DeviceMemory: below);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::Failover for Lending<'_> {
    forward_rail!(Failover: below);
}

#[deny(clippy::missing_trait_methods)]
impl towline_core::rail::Liveness for Lending<'_> {
    forward_rail!(Liveness: below);
}
