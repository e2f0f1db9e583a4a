//! A loopback rail with a device that accesses registered memory of the other ends. The device copies the bytes of an
//! operation when the rail is polled.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use towline_core::forward_rail;
use towline_core::rail::loopback::Rail as Loopback;
use towline_core::rail::native::{KEY, Key, Native, NativeError, OneSided, Pipeline, Reach, Region, Work};
use towline_core::rail::{
    Attributes, Cookie, DeviceMemory, Endpoint, Event, Failover, FastPath, Liveness, Rail, RequestCache, SingleCopy,
};
use towline_core::rma::Access;
use towline_core::time::Instant;

/// Registered memory of all ends, by its number: the owning end, the address, the length in bytes, and the permitted
/// kinds of access. Deregistered memory is `None`.
pub type Memory = Rc<RefCell<Vec<Option<(u32, usize, u64, Access)>>>>;

/// The device transfers messages of at least 200 bytes, in pieces of 150. Frames carry the first 50 bytes that follow the
/// first fragment.
const CAPABILITIES: OneSided = OneSided {
    put: Reach { limit: 1000, alignment: 1, local_registration: 100 },
    get: Reach { limit: 1000, alignment: 1, local_registration: 100 },
    pipeline: Pipeline { least: 200, by_frames: 50, piece: 150, gets: false },
    ..OneSided::NONE
};

/// An end of the mesh.
pub struct DeviceRail<'h> {
    rail: Loopback<'h>,
    me: u32,
    attributes: Attributes,
    memory: Memory,
    /// Operations in progress, with their targets.
    operations: VecDeque<(Endpoint, Native, Cookie)>,
}

macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            DeviceRail { rail: $rail, .. } => $call,
        }
    };
}

impl<'h> DeviceRail<'h> {
    /// The attributes of such a rail. The receiver's device gets if `gets` is true; otherwise the sender's device puts.
    pub fn attributes(attributes: Attributes, gets: bool) -> Attributes {
        let pipeline = Pipeline { gets, ..CAPABILITIES.pipeline };
        Attributes { one_sided: OneSided { pipeline, ..CAPABILITIES }, ..attributes }
    }

    /// The end with number `me`. The endpoint of each peer must have the peer's number.
    pub fn new(rail: Loopback<'h>, me: u32, memory: Memory, gets: bool) -> Self {
        let attributes = Self::attributes(*rail.attributes(), gets);
        Self { rail, me, attributes, memory, operations: VecDeque::new() }
    }

    fn execute(&self, on: Endpoint, native: &Native) -> Result<u64, NativeError> {
        let number = u64::from_le_bytes(std::array::from_fn(|at| native.key.0[at]));
        let all = self.memory.borrow();
        // An endpoint gives access to the memory of its own peer only.
        let found = all.get(number as usize).copied().flatten().filter(|(owner, ..)| *owner == on.0);
        let (_, base, len, access) = found.ok_or(NativeError::Refused)?;
        let (local, right) = match native.work {
            Work::Put(local) => (local, Access::REMOTE_WRITE),
            Work::Get(local) => (local, Access::REMOTE_READ),
            Work::Atomic(..) => return Err(NativeError::NotAvailable),
        };
        if !access.contains(right) || native.offset > len || local.len > len - native.offset {
            return Err(NativeError::Refused);
        }
        let at = (base + native.offset as usize) as *mut u8;
        match native.work {
            // SAFETY: the remote memory is registered. The initiator keeps the local memory until it takes the
            // completion or deletes the peer.
            Work::Put(_) => unsafe { at.copy_from(local.base, local.len as usize) },
            // SAFETY: as for a put.
            _ => unsafe { local.base.copy_from(at, local.len as usize) },
        }
        Ok(0)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Rail for DeviceRail<'_> {
    forward_rail!(below, except attributes, del_peer, poll);

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.operations.retain(|operation| operation.0 != endpoint);
        self.rail.del_peer(endpoint);
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        if let Some((on, native, cookie)) = self.operations.pop_front() {
            return Some(Event::Performed(cookie, self.execute(on, &native)));
        }
        self.rail.poll(now)
    }
}

// The defaults, since `poll` has events of its own.
impl FastPath for DeviceRail<'_> {}

#[deny(clippy::missing_trait_methods)]
impl RequestCache for DeviceRail<'_> {
    forward_rail!(RequestCache: below);
}

#[deny(clippy::missing_trait_methods)]
impl SingleCopy for DeviceRail<'_> {
    forward_rail!(SingleCopy: below);
}

#[deny(clippy::missing_trait_methods)]
impl DeviceMemory for DeviceRail<'_> {
    forward_rail!(DeviceMemory: below, except register, deregister, perform);

    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        let mut all = self.memory.borrow_mut();
        let number = all.len() as u64;
        all.push(Some((self.me, base as usize, len as u64, access)));
        let mut key = [0; KEY];
        key[..8].copy_from_slice(&number.to_le_bytes());
        Ok((Region(number), Key(key)))
    }

    fn deregister(&mut self, region: Region) {
        self.memory.borrow_mut()[region.0 as usize].take().expect("memory that is registered");
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        if self.operations.len() >= 2 {
            return Err(NativeError::Busy);
        }
        if let Work::Put(local) | Work::Get(local) = native.work
            && let Some(region) = local.region
        {
            let memory = self.memory.borrow();
            let (_, base, len, _) = memory[region.0 as usize].expect("registered memory of this rail");
            let first = local.base as usize;
            assert!(
                base <= first && first + local.len as usize <= base + len as usize,
                "the operation uses memory outside of its registration"
            );
        }
        self.operations.push_back((on, *native, cookie));
        Ok(None)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Failover for DeviceRail<'_> {
    forward_rail!(Failover: below);
}

#[deny(clippy::missing_trait_methods)]
impl Liveness for DeviceRail<'_> {
    forward_rail!(Liveness: below);
}
