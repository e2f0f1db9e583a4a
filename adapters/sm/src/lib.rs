//! Towline's shared-memory rail: lock-free rings between processes of one host.
//!
//! Each rank has a *control segment*: a page in a file system in memory with its identity, its doorbell and the word that it
//! sleeps on. A sender makes a ring to a peer with its first frame, and another one with its first long message. It announces
//! each ring through the peer's doorbell; the peer maps the ring and removes its name. The receiver of a long message reads it
//! directly from the sender's memory where the kernel allows that ([`SingleCopyState`]). A long message is copied into a ring and
//! out of it where the kernel does not allow that, where many long messages follow each other, and beyond a length
//! ([`Config::single_copy_limit_bytes`]). See [`ring`] for the layout of frames in a ring, [`sleep`] for how a sleeping receiver
//! is woken without a fence on the message path, and [`Config`] for sizes and their cost.
//!
//! Rings shrink to the room that there is ([`Config::fit`]). If a ring finds none, both ends report
//! [`Event::Down`](towline_core::rail::Event::Down) with [`Lost::NoRoom`](towline_core::rail::Lost::NoRoom), and take no more frames
//! for each other. [`Rail::warning`] says what was missing.
//!
//! One-sided operations access memory that both sides map ([`SharedRegion`]).
//!
//! [`Rail`] implements [`towline_core::rail::Rail`]. It is used by one thread at a time, and may move between threads.
//!
//! A process may fork. The child does not get the shared memory, and must not use or drop a rail.
//!
//! # Source layout
//! Types stand below, behaviour above. Nothing imports from `rail`, which holds the rail's state and its behaviour. Below it are
//! `single_copy` and `rma` (access to a peer's memory), `clean_up` (files of a process that was killed), `segment` (files in shared
//! memory), `ring` (frames in slots), `host` (identities of hosts and processes), and `doorbell` and `sleep` (signals between sender
//! and receiver).
#![cfg(target_os = "linux")]

pub mod atomics;
pub mod doorbell;
pub mod ring;
pub mod sleep;

#[cfg(not(loom))]
mod card;
#[cfg(not(loom))]
mod clean_up;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod host;
#[cfg(not(loom))]
mod membarrier;
#[cfg(not(loom))]
mod rail;
#[cfg(not(loom))]
mod rma;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod single_copy;

#[cfg(not(loom))]
pub use {
    clean_up::CleanUp, config::Config, error::OpenError, rail::Rail, rma::SharedRegion, settings::Settings,
    single_copy::probe::SingleCopyState,
};
