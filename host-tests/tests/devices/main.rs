//! Devices that match for their hosts, and the recorded trace of matching operations: the same answers everywhere, and jobs whose
//! nodes consist of a host and a device.
//!
//! | module | subject |
//! |---|---|
//! | `network` | datagrams in virtual time, with faults by seed |
//! | `node` | a device, its window, and the host's end |
//! | `offloaded` | the contexts of a trace, by commands of hosts |
//! | `links` | devices with two links, of which one fails |
//! | `answers` | the trace has the same results everywhere |
//! | `model` | what MPI says of matching |
//! | `random_traces` | random traces, whose results are those of the model |
//! | `job` | jobs of hosts and devices that die and come back |
//! | `jobs` | such jobs by seed |
//! | `one_sided` | puts, gets and atomics between devices, with the same faults |

mod answers;
mod job;
mod jobs;
mod links;
mod model;
mod network;
mod node;
mod offloaded;
mod one_sided;
mod random_traces;
