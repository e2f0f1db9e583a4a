//! Completions of work requests, and asynchronous events of the device.

use towline_core::rail::native::NativeError;

use super::one_sided::complete_operation;
use super::state::Rail;
use super::work_id::WorkId;
use crate::bookkeeping::async_event::AsyncEvent;
use crate::bookkeeping::pending_events::{PendingEvent, ReceivedFrame};
use crate::bookkeeping::resource::Resource;
use crate::device::{COMPLETION_BATCH, Completion, CompletionBatch};
use crate::wire::hello::Hello;

impl Rail {
    /// Processes some completions. Returns whether there were any.
    #[inline]
    pub(super) fn process_completions(&mut self) -> bool {
        let mut any = false;
        let mut batch = CompletionBatch::new();
        self.queues.completions.poll(&mut batch);
        if batch.is_broken {
            self.health.fail("its completion queue has failed");
        }
        for completion in &mut batch {
            any = true;
            self.process(completion);
        }
        any
    }

    /// Processes the completions that are there: at most as many as the queue has room for, so that this ends even if new ones
    /// keep coming.
    pub(super) fn process_all_completions(&mut self) {
        for _ in 0..=self.queues.capacity / COMPLETION_BATCH as u32 {
            if !self.process_completions() {
                return;
            }
        }
    }

    #[inline]
    fn process(&mut self, completion: Completion) {
        match WorkId::of(completion.id) {
            WorkId::Receive(buffer) => {
                match self.peers.of_queue_pair(completion.queue_pair).filter(|_| completion.success) {
                    Some(endpoint) => {
                        let Completion { len, immediate, .. } = completion;
                        let frame = ReceivedFrame { endpoint, buffer, len, immediate, is_current: true };
                        self.receive.pending.push(PendingEvent::Frame(frame));
                    }
                    // The frame belongs to a connection that has ended or failed meanwhile.
                    None => self.receive.post_later(buffer, &self.queues),
                }
            }
            WorkId::Send { endpoint, number } => self.process_send(completion, endpoint, number),
            WorkId::HelloReceive(buffer) => self.process_hello(completion, buffer),
            WorkId::HelloSend(buffer) => {
                self.hellos.send_buffers.complete(buffer);
                if !completion.success {
                    self.hellos.fail(completion.status);
                }
            }
        }
    }

    /// The completion of a work request in a peer's send queue.
    #[inline]
    fn process_send(&mut self, completion: Completion, endpoint: u32, number: u32) {
        let Self { peers, send, closing, lists, queues, now, .. } = self;
        let resources = &mut send.resources;
        let connection = peers.connection_mut(endpoint);
        let Some(connection) = connection.filter(|it| it.queue_pair.number() == completion.queue_pair) else {
            return closing.flushed(completion.queue_pair, number, resources);
        };
        let resource = connection.send_queue.at(number);
        if completion.success {
            if let Some(Resource::Operation(id)) = resource {
                complete_operation(id, resources, queues);
            }
            connection.send_queue.complete(number, resources);
            connection.last_heard = *now;
        } else {
            if let Some(Resource::Operation(id) | Resource::OperationPart(id)) =
                resource.filter(|_| completion.is_refused())
            {
                resources.operations.complete(id, Err(NativeError::Refused));
            }
            connection.send_queue.complete(number, resources); // in this case, too, the device is done with the resource
            if lists.add_failed(endpoint) {
                log::debug!("verbs: a work request has failed: status {}", completion.status);
            }
        }
    }

    /// The completion of a receive buffer for hellos.
    fn process_hello(&mut self, completion: Completion, buffer: u32) {
        self.hellos.posted -= 1;
        if !completion.success {
            return self.hellos.fail(completion.status);
        }
        let datagram = self.hellos.datagram(buffer, completion.len, &self.queues);
        let hello = datagram.and_then(|bytes| Hello::decode(&bytes, &self.config.key));
        if !self.hellos.is_failed
            && let Err(why) = self.hellos.post(buffer, &self.queues)
        {
            log::error!("verbs link {}: a receive buffer for hellos is lost: {why}", self.config.link);
        }
        match hello {
            // The hello waits until all completions are processed, since it may end a connection. A hello for which there is no
            // room is dropped; its sender repeats it.
            Some(hello) if self.hellos.received.len() < self.hellos.received.capacity() => {
                self.hellos.received.push_back(hello);
            }
            Some(_) => {}
            None => self.counters.hellos_refused += 1,
        }
    }

    /// Processes the device's asynchronous events.
    pub(super) fn process_async_events(&mut self) {
        while let Some(event) = self.queues.device.next_event() {
            log::debug!("verbs link {}: event of the device: {event:?}", self.config.link);
            match event {
                AsyncEvent::LastReceiveReached(queue_pair) => self.closing.set_empty(queue_pair),
                AsyncEvent::QueuePairFailed(queue_pair) => {
                    if let Some(endpoint) = self.peers.of_queue_pair(queue_pair) {
                        self.lists.add_failed(endpoint);
                    }
                }
                AsyncEvent::Fatal(why) => self.health.fail(why),
                AsyncEvent::Other(_) => {}
            }
        }
    }
}
