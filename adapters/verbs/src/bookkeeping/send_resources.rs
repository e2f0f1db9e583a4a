//! The resources of work requests: which send buffers, markers and operations are free.

use towline_core::rail::Lane;

use super::operations::Operations;
use super::resource::{Buffer, Resource};

/// The free resources, and the operations in flight.
#[derive(Debug)]
pub(crate) struct SendResources {
    /// Indices of free eager buffers.
    eager: Vec<u32>,
    /// Indices of free bulk buffers.
    bulk: Vec<u32>,
    /// How many eager buffers only control frames may take.
    reserved: usize,
    /// Markers that may be sent.
    markers: u32,
    pub operations: Operations,
}

impl SendResources {
    /// These numbers of buffers, markers and operations, all free.
    pub fn new(eager: u32, bulk: u32, markers: u32, operations: u32) -> Self {
        let (operations, reserved) = (Operations::new(operations), eager.div_ceil(8) as usize);
        Self { eager: (0..eager).collect(), bulk: (0..bulk).collect(), reserved, markers, operations }
    }

    /// The buffer that a frame of this lane would take.
    #[inline]
    pub fn next(&self, lane: Lane) -> Option<Buffer> {
        let eager = |reserved| {
            if self.eager.len() > reserved { self.eager.last().map(|index| Buffer::Eager(*index)) } else { None }
        };
        match lane {
            Lane::Control => eager(0),
            Lane::Eager => eager(self.reserved),
            Lane::Bulk => self.bulk.last().map(|index| Buffer::Bulk(*index)),
        }
    }

    /// Takes the buffer that [`next`](Self::next) has named last. Returns `false` if it is not free any more.
    #[inline]
    pub fn take(&mut self, buffer: Buffer) -> bool {
        match buffer {
            Buffer::Eager(index) => self.eager.pop_if(|free| *free == index).is_some(),
            Buffer::Bulk(index) => self.bulk.pop_if(|free| *free == index).is_some(),
        }
    }

    /// Takes a marker. Returns `false` if none is free.
    #[inline]
    pub fn take_marker(&mut self) -> bool {
        let free = self.markers > 0;
        self.markers -= u32::from(free);
        free
    }

    /// Gives a resource back, which the device does not use any more.
    #[inline]
    pub fn give_back(&mut self, resource: Resource) {
        match resource {
            Resource::Buffer(buffer) => self.give_back_buffer(buffer),
            Resource::Marker => self.markers += 1,
            Resource::Operation(id) => {
                if let Some(buffer) = self.operations.end(id) {
                    self.give_back_buffer(buffer);
                }
            }
            Resource::OperationPart(_) => {}
        }
    }

    #[inline]
    fn give_back_buffer(&mut self, buffer: Buffer) {
        match buffer {
            Buffer::Eager(index) => self.eager.push(index),
            Buffer::Bulk(index) => self.bulk.push(index),
        }
    }

    /// Whether few buffers are left, so that it is time to ask for the completion of unsignaled frames.
    #[inline]
    pub const fn are_few(&self) -> bool {
        self.eager.len() <= 2 * self.reserved || self.bulk.is_empty()
    }

    /// How many eager buffers are free.
    #[cfg(test)]
    pub const fn free_eager(&self) -> usize {
        self.eager.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_frames_find_room_when_no_other_frame_does() {
        let mut resources = SendResources::new(16, 1, 1, 0);
        let mut taken = vec![];
        while let Some(buffer) = resources.next(Lane::Eager) {
            assert!(resources.take(buffer) && !resources.take(buffer), "twice");
            taken.push(buffer);
        }
        assert_eq!(taken.len(), 14);
        assert!(resources.are_few());
        assert!(resources.next(Lane::Control).is_some_and(|buffer| resources.take(buffer)));
        assert!(resources.next(Lane::Bulk).is_some_and(|buffer| resources.take(buffer)));
        assert_eq!(resources.next(Lane::Bulk), None);
        assert!(
            resources.take_marker() && !resources.take_marker(),
            "as many markers as the completion queue has room for"
        );
    }
}
