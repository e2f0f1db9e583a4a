//! The fuzz targets as plain functions of the input's bytes. A target in `fuzz_targets/` passes its input to one of
//! them, and `tests/corpus.rs` passes the checked-in corpora on a stable toolchain.
//!
//! | target | what it feeds | what must hold |
//! |---|---|---|
//! | [`bootstrap`] | what ranks, servers, agents and strangers say to each other; hosts files, environments | nobody is let in without the key; what is read writes back the same |
//! | [`cards`] | business cards to rails and engine, interface lists | refused, or taken; the rail's own card is still taken after it |
//! | [`matcher`] | histories of receives and messages | the same matches as a plain list gives |
//! | [`convertor`] | layouts, sane and absurd, and windows on them | the same bytes as a list of positions gives |
//! | [`frames`] | frames of a hostile peer, among an honest one's traffic | no access out of bounds, nothing lost, doubled, spoilt or leaked |
//! | [`link`] | frames of a hostile peer to a link, whose checks hold, among an honest one's traffic | as for [`frames`] |
//! | [`modex`] | sets of a peer, well-formed, spoilt and raw | refused, or taken over whole; the own set stays readable |
//! | [`record`] | a stream of sealed records and sealed datagrams, changed on their way | what is opened was sealed, in its order, once |
//! | [`ring`] | marks, lengths and credit that the other side of a shared ring made up | all stays within the ring, or is called forged |
//! | [`rma`] | frames of a hostile peer, among put, get and atomics of two others | the results and the memory that a model has |
//! | [`segment`] | words that a hostile process writes to the segments of a live shared-memory rail | no access out of bounds, the honest peer is heard, the hostile one is lost |
//! | [`tcp`] | cards, hellos, verdicts and prefixes of frames | what is read writes back the same, nothing is proved |
//! | [`udp`] | cards, hellos and datagrams | what is read writes back the same, nothing is proved |
//! | [`verbs`] | cards and hellos of the verbs rail | what is read writes back the same, nothing is proved |
//!
//! `cargo install cargo-fuzz --locked`, then `cargo +nightly fuzz run matcher -- -max_total_time=60` at the top or in
//! here; new inputs land in `corpus/`. What is checked in there is the fewest inputs that reach all that a run reached:
//! `-merge=1 -set_cover_merge=1 -use_counters=0`. An input that found a fault is added to it by hand.
//!
//! A new target takes a module here with a function `run(data: &[u8])` that panics on a fault, a line in
//! [`TARGETS`], a `[[bin]]` in `Cargo.toml`, the few lines in `fuzz_targets/`, and a folder in `corpus/`.

pub mod bootstrap;
pub mod cards;
pub mod convertor;
mod device_rail;
mod exposing_rail;
pub mod frames;
pub mod link;
pub mod matcher;
pub mod modex;
pub mod record;
pub mod ring;
pub mod rma;
pub mod segment;
pub mod tcp;
pub mod udp;
pub mod verbs;

/// A target: what it does with the bytes of one input.
pub type Run = fn(&[u8]);

/// All targets by name, for runs without libFuzzer.
pub const TARGETS: &[(&str, Run)] = &[
    ("bootstrap", bootstrap::run),
    ("cards", cards::run),
    ("convertor", convertor::run),
    ("frames", frames::run),
    ("link", link::run),
    ("matcher", matcher::run),
    ("modex", modex::run),
    ("record", record::run),
    ("ring", ring::run),
    ("rma", rma::run),
    ("segment", segment::run),
    ("tcp", tcp::run),
    ("udp", udp::run),
    ("verbs", verbs::run),
];
