//! What strangers, ranks, servers, remote shells and people say to the bootstrap: frames and handshakes at a server and
//! at a rank, an agent's messages, files of hosts, variables of the environment.

/// Feeds the input to what its first byte names. The readers are private to the crate, and so is what looks at them.
pub fn run(data: &[u8]) {
    towline_bootstrap::fuzzing::run(data);
}
