//! The fuzz targets as plain functions of the input's bytes. A target in `fuzz_targets/` passes its input to one of
//! them. `tests/corpus.rs` runs them on the checked-in corpora with a stable toolchain.
//!
//! | target | input | what must hold |
//! |---|---|---|
//! | [`bootstrap`] | messages between ranks, servers, agents and processes without the key; hosts files, environments | no process is admitted without the key; accepted input is encoded to the same bytes |
//! | [`c_interface`] | calls of the C interface, with handles that are valid, stale or invented | each call succeeds or returns a code; no access out of bounds |
//! | [`cards`] | cards of peers for rails and engine, lists of interfaces | a card is refused or accepted; the genuine card is still accepted afterwards |
//! | [`matcher`] | sequences of receives and messages | the same matches as with a plain list |
//! | [`convertor`] | valid and invalid layouts, and ranges of them | the same bytes as with a list of positions |
//! | [`frames`] | frames of a hostile peer, during the traffic of an honest one | no access out of bounds; nothing lost, duplicated, changed or leaked |
//! | [`link`] | frames of a hostile peer to a link, with valid checksums, during the traffic of an honest one | as for [`frames`] |
//! | [`modex`] | sets of a peer: well-formed, changed and arbitrary | a set is refused, or accepted as a whole; this process's own set stays valid |
//! | [`offload`] | commands and words that a hostile host writes to the window of its device, during the traffic of two other devices | no access out of bounds; the messages of the others arrive |
//! | [`record`] | a stream of sealed records, and sealed datagrams, changed on the network | opened bytes were sealed; they are opened in order and once |
//! | [`ring`] | header words and credit that a hostile process writes to a shared ring | every access stays within the ring, or a protocol violation is reported |
//! | [`rma`] | frames of a hostile peer, during puts, gets and atomics of two others | the results and the memory are those of a model |
//! | [`segment`] | words that a hostile process writes to the segments of a live shared-memory rail | no access out of bounds; frames of the honest peer arrive; only the hostile peer is lost |
//! | [`serial`] | bytes on a serial line | only frames with a valid checksum are accepted; the frame after any input arrives |
//! | [`tcp`] | cards, hellos, verdicts and prefixes of frames | accepted input is encoded to the same bytes; nothing is accepted as authentic |
//! | [`udp`] | cards, hellos and datagrams | accepted input is encoded to the same bytes; nothing is accepted as authentic |
//! | [`verbs`] | cards, hellos and memory keys of the verbs rail | accepted input is encoded to the same bytes; nothing is accepted as authentic |
//! | [`window`] | words that either side writes to the window of a device | no access out of bounds; accepted entries are encoded to the same words |
//!
//! To run a target: `cargo install cargo-fuzz --locked`, then `cargo +nightly fuzz run matcher -- -max_total_time=60` in
//! the repository's root or in this folder. cargo-fuzz writes new inputs to `corpus/`. The checked-in corpus is the
//! smallest set of inputs that reaches all code that a run reached (`-merge=1 -set_cover_merge=1 -use_counters=0`). An
//! input that found a fault is added by hand.
//!
//! A new target needs a module here with a function `run(data: &[u8])` that panics on a fault, an entry in [`TARGETS`],
//! a `[[bin]]` in `Cargo.toml`, a file in `fuzz_targets/`, and a folder in `corpus/`.

pub mod bootstrap;
pub mod c_interface;
pub mod cards;
pub mod convertor;
mod device_rail;
mod exposing_rail;
pub mod frames;
pub mod link;
pub mod matcher;
pub mod modex;
pub mod offload;
pub mod record;
pub mod ring;
pub mod rma;
pub mod segment;
pub mod serial;
pub mod tcp;
pub mod udp;
pub mod verbs;
pub mod window;

/// The function of a target, which runs one input.
pub type Run = fn(&[u8]);

/// All targets with their names, for runs without libFuzzer.
pub const TARGETS: &[(&str, Run)] = &[
    ("bootstrap", bootstrap::run),
    ("c_interface", c_interface::run),
    ("cards", cards::run),
    ("convertor", convertor::run),
    ("frames", frames::run),
    ("link", link::run),
    ("matcher", matcher::run),
    ("modex", modex::run),
    ("offload", offload::run),
    ("record", record::run),
    ("ring", ring::run),
    ("rma", rma::run),
    ("segment", segment::run),
    ("serial", serial::run),
    ("tcp", tcp::run),
    ("udp", udp::run),
    ("verbs", verbs::run),
    ("window", window::run),
];
