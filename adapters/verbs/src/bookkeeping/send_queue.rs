//! The record of a queue pair's send queue: which work requests were posted and not completed.

use std::collections::VecDeque;

use super::resource::Resource;
use super::send_resources::SendResources;

/// The posted work requests of one queue pair, oldest first. A queue pair works in order, so the completion of one work
/// request is the completion of all before it.
#[derive(Debug)]
pub(crate) struct SendQueue {
    posted: VecDeque<Resource>,
    /// Number of the oldest work request.
    first: u32,
    /// How many work requests were posted behind the last signaled one.
    unsignaled: u32,
    /// How many completions the device will report.
    signaled: u32,
    /// How many one-sided operations are among the work requests.
    operations: u32,
}

impl SendQueue {
    /// An empty queue with room for `most` work requests.
    pub fn new(most: u32) -> Self {
        Self { posted: VecDeque::with_capacity(most as usize), first: 0, unsignaled: 0, signaled: 0, operations: 0 }
    }

    /// How many work requests are not completed.
    #[inline]
    pub fn len(&self) -> usize {
        self.posted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Number of the next work request.
    #[inline]
    pub fn next(&self) -> u32 {
        self.first.wrapping_add(self.posted.len() as u32)
    }

    /// How many work requests were posted since the last signaled one.
    #[inline]
    pub const fn unsignaled(&self) -> u32 {
        self.unsignaled
    }

    /// Whether the device will report the completion of any of the work requests.
    pub const fn awaits_completion(&self) -> bool {
        self.signaled > 0
    }

    /// The resource of the work request with this number.
    #[inline]
    pub fn at(&self, number: u32) -> Option<Resource> {
        self.posted.get(number.wrapping_sub(self.first) as usize).copied()
    }

    /// How many one-sided operations are among the work requests.
    #[inline]
    pub const fn count_operations(&self) -> u32 {
        self.operations
    }

    /// The ids of these operations.
    pub fn operations(&self) -> impl Iterator<Item = u32> {
        self.posted.iter().filter_map(|resource| if let Resource::Operation(id) = resource { Some(*id) } else { None })
    }

    /// Adds a work request that was posted.
    #[inline]
    pub fn push(&mut self, resource: Resource, signaled: bool) {
        self.posted.push_back(resource);
        self.operations += u32::from(matches!(resource, Resource::Operation(_)));
        self.signaled += u32::from(signaled);
        self.unsignaled = if signaled { 0 } else { self.unsignaled + 1 };
    }

    /// Removes the work request `number`, which the device has reported complete, and all before it; returns their resources.
    #[inline]
    pub fn complete(&mut self, number: u32, resources: &mut SendResources) {
        let count = number.wrapping_sub(self.first).wrapping_add(1) as usize;
        if count == 0 || count > self.posted.len() {
            return; // not the number of a posted work request
        }
        for resource in self.posted.drain(..count) {
            self.operations -= u32::from(matches!(resource, Resource::Operation(_)));
            resources.give_back(resource);
        }
        self.first = number.wrapping_add(1);
        self.signaled = self.signaled.saturating_sub(1);
    }

    /// Removes all work requests: the queue pair is destroyed, and the device reads none of their resources any more.
    pub fn clear(&mut self, resources: &mut SendResources) {
        self.first = self.next();
        self.posted.drain(..).for_each(|resource| resources.give_back(resource));
        (self.unsignaled, self.signaled, self.operations) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rail::{Cookie, Lane};

    use super::*;
    use crate::bookkeeping::operations::{OpKind, Operation};
    use crate::bookkeeping::resource::Buffer;

    #[test]
    fn a_completion_returns_all_resources_before_it_and_no_others() {
        let (mut resources, mut queue) = (SendResources::new(64, 1, 1, 0), SendQueue::new(64));
        queue.first = u32::MAX - 3; // numbers wrap
        for at in 0..10 {
            let buffer = resources.next(Lane::Eager).unwrap();
            assert!(resources.take(buffer));
            queue.push(Resource::Buffer(buffer), at % 4 == 3);
        }
        assert_eq!((queue.len(), queue.unsignaled(), queue.awaits_completion()), (10, 2, true));
        let free = resources.free_eager();
        queue.complete(u32::MAX, &mut resources);
        assert_eq!((queue.len(), resources.free_eager()), (6, free + 4));
        queue.complete(u32::MAX, &mut resources);
        queue.complete(77, &mut resources);
        assert_eq!((queue.len(), resources.free_eager()), (6, free + 4), "an unknown number changes nothing");
        queue.complete(3, &mut resources);
        assert_eq!((queue.len(), queue.awaits_completion(), queue.unsignaled()), (2, false, 2));
        queue.clear(&mut resources);
        assert_eq!((queue.len(), resources.free_eager(), queue.next()), (0, 64, 6));
    }

    #[test]
    fn an_operation_has_its_buffer_until_its_last_work_request_is_complete() {
        let (mut resources, mut queue) = (SendResources::new(16, 1, 1, 2), SendQueue::new(8));
        for kind in [OpKind::Put(resources.next(Lane::Bulk)), OpKind::Direct] {
            if let OpKind::Put(Some(buffer)) = kind {
                assert!(resources.take(buffer));
            }
            let id = resources.operations.next().unwrap();
            resources.operations.begin(Operation { endpoint: 1, cookie: Cookie(0), kind });
            queue.push(Resource::OperationPart(id), false);
            queue.push(Resource::Operation(id), true);
        }
        assert_eq!(
            (queue.at(0), queue.at(3), queue.at(4)),
            (Some(Resource::OperationPart(0)), Some(Resource::Operation(1)), None)
        );
        assert!(
            queue.operations().eq([0, 1])
                && queue.count_operations() == 2
                && resources.operations.any_direct(queue.operations())
        );
        queue.complete(0, &mut resources);
        assert_eq!(resources.next(Lane::Bulk), None, "another work request of the operation follows");
        queue.complete(1, &mut resources);
        assert_eq!(resources.next(Lane::Bulk), Some(Buffer::Bulk(0)));
        queue.complete(3, &mut resources);
        assert_eq!((queue.count_operations(), queue.len()), (0, 0));
        queue.clear(&mut resources);
        assert!(!resources.operations.any_direct([0, 1].into_iter()));
    }
}
