//! The port that a rail uses, and the limits of its device.

use towline_core::rail::atomics::AtomicSupport;

use crate::address::Mtu;
use crate::port::GidChoice;

/// The port that was chosen.
#[derive(Debug)]
pub(crate) struct Port {
    /// Its name, as in `TOWLINE_VERBS_DEVICES`.
    pub name: String,
    pub number: u8,
    pub lid: u16,
    pub mtu: Mtu,
    pub address: GidChoice,
    /// Whether its device is Soft-RoCE: the kernel's own, over a network interface.
    pub is_soft_roce: bool,
    /// Most work requests of a queue pair's send queue.
    pub max_work_requests: u32,
    /// Most buffers of a shared receive queue.
    pub max_shared_receives: u32,
    /// Most entries of a completion queue.
    pub max_completions: u32,
    /// Bytes of the longest message.
    pub max_message_bytes: u32,
    /// Most reads and atomics that a queue pair has in flight.
    pub max_reads_out: u8,
    /// Most reads and atomics of its peer that a queue pair executes at a time.
    pub max_reads_in: u8,
    /// Which atomics there are, and whether they are atomic with respect to the processor's.
    pub atomics: AtomicSupport,
}
