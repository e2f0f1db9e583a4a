//! Tests of the engine.

mod bad_memory;
mod basic;
mod churn;
mod devices;
mod failover;
mod failover_links;
mod fairness;
mod flow;
mod hostile;
mod inspect;
mod one_sided;
mod peer_loss;
mod pools;
mod rails;
mod rdma;
mod single_copy;
mod spares;
mod stall;
mod stall_rails;
mod stalled_links;
