//! The transports between processes, and which of them work on this host.

/// All transports, in the order in which they are listed.
pub const ALL: [&str; 4] = ["sm", "tcp", "udp", "verbs"];
/// The transports that are used if none is named.
pub const STANDARD: [&str; 2] = ["sm", "tcp"];

/// The reason why a transport does not work on this host, or `None` if it works.
pub fn why_unavailable(name: &str) -> Option<String> {
    let tried = towline::Builder::new().transports(name).build().and_then(towline::World::finish);
    tried.err().map(|why| why.to_string())
}
