//! The transports between processes, and which of them work here.

/// All of them, in the order in which they are told of.
pub const ALL: [&str; 4] = ["sm", "tcp", "udp", "verbs"];
/// Those that are used where none is named.
pub const STANDARD: [&str; 2] = ["sm", "tcp"];

/// Why a transport does not work here; `None` if it does.
pub fn why_unavailable(name: &str) -> Option<String> {
    let tried = towline::Builder::new().transports(name).build().and_then(towline::World::finish);
    tried.err().map(|why| why.to_string())
}
