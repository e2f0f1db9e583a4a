//! A stub that takes the place of the rail where verbs are not built in. Opening it fails, and the error says why.

use std::os::fd::{AsFd, BorrowedFd};

use towline_core::convertor::Span;
use towline_core::rail::{
    Attributes, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, Grant, Liveness, Peer,
    Rail as RailTrait, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::time::Instant;

use crate::{Config, Counters, SetupError};

/// One port of a device that reaches all peers. This build contains no verbs, so there is never a rail.
#[derive(Debug)]
pub enum Rail {}

impl Rail {
    /// Opens a port. Contacts no peer.
    ///
    /// # Errors
    /// Always [`SetupError::NotBuiltIn`].
    pub fn new(_config: Config) -> Result<Self, SetupError> {
        Err(SetupError::NotBuiltIn)
    }

    /// How often each event has happened so far.
    pub const fn counters(&self) -> &Counters {
        match *self {}
    }

    /// Moves the connection to a peer to its error state, as a fault of the network does: for tests.
    pub const fn inject_connection_error(&self, _to: Endpoint) {
        match *self {}
    }

    /// Moves the queue pair of hellos to its error state: for tests.
    pub const fn inject_hello_error(&self) {
        match *self {}
    }
}

impl AsFd for Rail {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        match *self {}
    }

    fn card(&self) -> &[u8] {
        match *self {}
    }

    fn add_peer(&mut self, _peer: Peer, _card: &[u8]) -> Result<Endpoint, Unreachable> {
        match *self {}
    }

    fn del_peer(&mut self, _endpoint: Endpoint) {
        match *self {}
    }

    fn reserve(&mut self, _to: Endpoint, _shape: Shape) -> Result<Grant<'_>, SendError> {
        match *self {}
    }

    fn commit(&mut self, _ticket: Ticket) -> Sent {
        match *self {}
    }

    fn drained(&self, _to: Endpoint) -> bool {
        match *self {}
    }

    fn poll(&mut self, _now: Instant) -> Option<Event> {
        match *self {}
    }

    fn read(&self, _frame: FrameId, _at: usize, _into: &mut [u8]) -> usize {
        match *self {}
    }

    unsafe fn deliver(&mut self, _frame: FrameId, _skip: usize, _sink: Span, _cookie: Cookie) -> Delivery {
        match *self {}
    }

    fn release(&mut self, _frame: FrameId) {
        match *self {}
    }

    fn poll_at(&self) -> Option<Instant> {
        match *self {}
    }

    fn arm(&mut self) -> bool {
        match *self {}
    }
}

impl FastPath for Rail {}
impl RequestCache for Rail {}
impl SingleCopy for Rail {}
impl DeviceMemory for Rail {}
impl Failover for Rail {}
impl Liveness for Rail {}
