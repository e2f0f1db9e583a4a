//! Operations of devices on registered memory of other nodes, in virtual time.
//!
//! A device reads the bytes of a put when it begins, and writes them later, even after its own side has deleted the
//! peer, as a write in flight would. So if memory is not deregistered before an operation on it is complete, it is
//! written late, which the checker detects.

use towline_core::rail::native::{KEY, Key, Local, Native, NativeError, Region, Work};
use towline_core::rail::{Cookie, Endpoint, Event};
use towline_core::rma::Access;

use super::devices::{DeviceOperation, Registration};
use super::endpoint::PendingEvent;
use super::state::NetworkState;

impl NetworkState {
    pub fn register(
        &mut self,
        node: u32,
        rail: u32,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<(Region, Key), NativeError> {
        if !self.rail_params[rail as usize].device.any() {
            return Err(NativeError::NotAvailable);
        }
        if self.random.chance(self.faults.unregistered) {
            self.counts.unregistered += 1;
            return Err(NativeError::NotAvailable);
        }
        let number = self.devices.number;
        self.devices.number += 1;
        let memory = Registration { node, rail, base: base as usize, len: len as u64, access };
        self.devices.regions.insert(number, memory);
        let mut key = [0x66; KEY];
        key[..8].copy_from_slice(&number.to_le_bytes());
        Ok((Region(number), Key(key)))
    }

    pub fn deregister(&mut self, region: Region) {
        self.devices.regions.remove(&region.0).expect("it is registered");
    }

    /// # Safety
    /// As for `DeviceMemory::perform`.
    pub unsafe fn perform(
        &mut self,
        node: u32,
        rail: u32,
        on: Endpoint,
        native: &Native,
        cookie: Cookie,
    ) -> Result<Option<u64>, NativeError> {
        let can = self.rail_params[rail as usize].device;
        if !can.any() {
            return Err(NativeError::NotAvailable);
        }
        let named = (on.0 < self.nodes()).then(|| self.end(node, rail).peers[on.0 as usize]).flatten();
        let Some(session) = named.and_then(|named| named.session) else { return Err(NativeError::Unreachable) };
        let (local, reach) = match native.work {
            Work::Put(local) => (local, can.put),
            Work::Get(local) => (local, can.get),
            Work::Atomic(..) => return Err(NativeError::NotAvailable),
        };
        assert!(
            reach.takes(native.offset, local.base as u64, local.len) && local.len != 0,
            "the operation exceeds the limits of the device's attributes"
        );
        if local.len >= reach.local_registration {
            let region = local.region.and_then(|region| self.devices.regions.get(&region.0)).expect("it is registered");
            let at = (local.base as usize).checked_sub(region.base).expect("the local memory lies in its registration")
                as u64;
            assert!((region.node, region.rail) == (node, rail) && at + local.len <= region.len);
            assert!(matches!(native.work, Work::Put(_)) || region.access.contains(Access::LOCAL_WRITE));
        }
        if self.random.chance(self.faults.device_busy) {
            self.counts.device_busy += 1;
            return Err(NativeError::Busy);
        }
        if self.random.chance(self.faults.device_refuses) {
            self.counts.device_refused += 1;
            return Err(NativeError::NotAvailable);
        }
        let mut bytes = vec![];
        if let Work::Put(local) = native.work {
            // SAFETY: the caller guarantees that the local memory is valid.
            bytes = unsafe { std::slice::from_raw_parts(local.base, local.len as usize) }.to_vec();
        }
        let epoch = self.end(node, rail).epochs[on.0 as usize];
        let number = self.devices.number;
        self.devices.number += 1;
        let operation = DeviceOperation { from: node, to: on.0, rail, epoch, session, native: *native, cookie, bytes };
        // A part is transferred at once, to detect a reader that reads too early.
        let _ = self.transfer_bytes(&operation, 3);
        self.devices.operations.insert(number, operation);
        let params = self.rail_params[rail as usize];
        let takes = u64::from(params.latency) + local.len * 1000 / u64::from(params.bandwidth);
        let takes = takes + self.random.below(self.faults.device_delay + 1);
        self.report_at(self.now + takes, node, rail, PendingEvent::Performed(number));
        Ok(None)
    }

    /// Completes an operation of a device, or postpones it.
    pub fn complete_operation(&mut self, number: u64) -> Option<Event> {
        let operation = self.devices.operations.remove(&number)?;
        let DeviceOperation { from, to, rail, .. } = operation;
        let epoch = self.end(from, rail).epochs[to as usize];
        if epoch != operation.epoch || self.path(from, to, rail).session != operation.session {
            // The initiator no longer waits for the operation. But its write may be in flight, and still reaches registered
            // memory.
            if matches!(operation.native.work, Work::Put(_)) {
                self.counts.late_writes += 1;
                let _ = self.transfer_bytes(&operation, 1);
            }
            return None;
        }
        let now = self.now;
        let apart = |state: &Self| {
            let nodes = [from, to];
            nodes.iter().any(|node| state.is_in_outage(*node, rail) || state.is_rail_stalled(*node, rail))
                || state.partition(from, to, rail, now).is_some()
                || state.partition(to, from, rail, now).is_some()
        };
        self.incarnation(to)?; // if the target is dead, the initiator gets a report that the peer is lost
        if from != to && apart(self) {
            let later = now + 1 + self.random.length(100_000);
            self.devices.operations.insert(number, operation);
            self.report_at(later, from, rail, PendingEvent::Performed(number));
            return None;
        }
        let breaks = self.random.chance(self.faults.device_breaks);
        let mut result = self.transfer_bytes(&operation, if breaks { 2 } else { 1 });
        match result {
            Ok(()) if breaks => {
                self.counts.device_broken += 1;
                result = Err(NativeError::Refused);
            }
            Ok(()) => self.counts.performed += 1,
            Err(_) => self.counts.not_reached += 1,
        }
        Some(Event::Performed(operation.cookie, result.map(|()| 0)))
    }

    /// Transfers the first `1 / part` of the bytes, if the memory is registered.
    fn transfer_bytes(&self, operation: &DeviceOperation, part: u64) -> Result<(), NativeError> {
        let number = u64::from_le_bytes(std::array::from_fn(|byte| operation.native.key.0[byte]));
        let memory = self.devices.regions.get(&number).ok_or(NativeError::Refused)?;
        let (right, len) = match operation.native.work {
            Work::Put(Local { len, .. }) => (Access::REMOTE_WRITE, len),
            Work::Get(Local { len, .. }) => (Access::REMOTE_READ, len),
            Work::Atomic(..) => return Err(NativeError::NotAvailable),
        };
        let inside = operation.native.offset <= memory.len && len <= memory.len - operation.native.offset;
        if (memory.node, memory.rail) != (operation.to, operation.rail) || !inside || !memory.access.contains(right) {
            return Err(NativeError::Refused);
        }
        let at = (memory.base + operation.native.offset as usize) as *mut u8;
        let count = (len / part) as usize;
        match operation.native.work {
            // SAFETY: registered memory exists until it is deregistered or its node is dead.
            Work::Put(_) => unsafe { at.copy_from(operation.bytes.as_ptr(), count) },
            // SAFETY: as above; the initiator keeps its own memory until the end is reported, or until it has deleted the
            // peer.
            Work::Get(local) => unsafe { local.base.copy_from(at, count) },
            Work::Atomic(..) => {}
        }
        Ok(())
    }
}
