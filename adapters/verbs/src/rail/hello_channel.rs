//! The queue pair that sends and receives hellos, with its buffers.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::queues::Queues;
use super::work_id::WorkId;
use crate::bookkeeping::hello_buffers::HelloBuffers;
use crate::device::{AddressHandle, DatagramQueuePair};
use crate::sizes::{GRH_BYTES, HELLO_RECEIVE_BUFFERS, HELLO_SEND_BUFFERS};
use crate::wire::hello::{self, Hello};

/// The queue pair of hellos.
#[derive(Debug)]
pub struct HelloChannel {
    /// Hellos that were received and not acted on yet.
    pub received: VecDeque<Hello>,
    /// Receive buffers that the device has.
    pub posted: u32,
    /// Whether the queue pair has failed. It is reset when the device has returned all buffers.
    pub is_failed: bool,
    pub queue_pair: DatagramQueuePair,
    /// Dropped after the queue pair, which must be destroyed before the address handles that its work requests name.
    pub send_buffers: HelloBuffers<AddressHandle>,
}

impl HelloChannel {
    /// Makes the queue pair at a port, with this Q_Key.
    pub fn new(queues: &Queues, port: u8, key: u32) -> io::Result<Self> {
        let sizes = (HELLO_SEND_BUFFERS, HELLO_RECEIVE_BUFFERS);
        Ok(Self {
            received: VecDeque::with_capacity(HELLO_RECEIVE_BUFFERS as usize),
            posted: 0,
            is_failed: false,
            queue_pair: DatagramQueuePair::new(&queues.region, &queues.completions, port, sizes, key)?,
            send_buffers: HelloBuffers::new(HELLO_SEND_BUFFERS),
        })
    }

    /// Posts a receive buffer.
    pub fn post(&mut self, buffer: u32, queues: &Queues) -> io::Result<()> {
        let at = queues.layout.hello_receive.at(buffer).unwrap_or(usize::MAX);
        self.queue_pair.post(WorkId::HelloReceive(buffer).word(), at, (GRH_BYTES + hello::BYTES) as u32)?;
        self.posted += 1;
        Ok(())
    }

    /// Posts all receive buffers.
    pub fn post_all(&mut self, queues: &Queues) -> io::Result<()> {
        (0..queues.layout.hello_receive.count()).try_for_each(|buffer| self.post(buffer, queues))
    }

    /// Copies the datagram of `len` bytes in a receive buffer. `None` for a length that no hello has.
    pub fn datagram(&self, buffer: u32, len: u32, queues: &Queues) -> Option<[u8; hello::BYTES]> {
        if len as usize != GRH_BYTES + hello::BYTES {
            return None;
        }
        let at = queues.layout.hello_receive.at(buffer)? + GRH_BYTES;
        let from = queues.region.pointer(at, hello::BYTES)?;
        let mut bytes = [0; hello::BYTES];
        // SAFETY: within the region, and the device has completed the buffer, which is not posted again yet.
        unsafe { from.copy_to_nonoverlapping(std::ptr::NonNull::from(&mut bytes).cast(), bytes.len()) };
        Some(bytes)
    }

    /// Sends a hello. Returns whether it was posted; if not, there is no free buffer.
    ///
    /// # Errors
    /// The device's, where it refuses the work request.
    pub fn send(&mut self, bytes: &[u8; hello::BYTES], to: &Arc<AddressHandle>, queues: &Queues) -> io::Result<bool> {
        let Some(buffer) = self.send_buffers.next() else { return Ok(false) };
        let at = queues.layout.hello_send.at(buffer).unwrap_or(usize::MAX);
        let Some(room) = queues.region.pointer(at, bytes.len()) else { return Ok(false) };
        // SAFETY: within the region, and the device has completed the buffer.
        unsafe { room.copy_from_nonoverlapping(std::ptr::NonNull::from(bytes).cast(), bytes.len()) };
        self.queue_pair.send(WorkId::HelloSend(buffer).word(), to, at, hello::BYTES as u32)?;
        self.send_buffers.posted(to);
        Ok(true)
    }

    /// Notes that the queue pair has failed, with this status. It returns all of its buffers; then it is reset.
    #[cold]
    pub fn fail(&mut self, status: u32) {
        if self.is_failed {
            return;
        }
        log::debug!("verbs: the queue pair of hellos has failed: status {status}");
        self.is_failed = true;
        // It may go on receiving although it does not send any more.
        if let Err(why) = self.queue_pair.set_error() {
            log::debug!("verbs: the queue pair of hellos cannot be moved to its error state: {why}");
        }
    }

    /// Whether the queue pair has failed and all of its buffers are returned.
    pub fn can_reset(&self) -> bool {
        self.is_failed && self.posted == 0 && self.send_buffers.is_idle()
    }

    /// Resets the queue pair after a failure.
    pub fn reset(&mut self, queues: &Queues) -> io::Result<()> {
        self.is_failed = false;
        self.queue_pair.reset()?;
        self.post_all(queues)
    }
}
