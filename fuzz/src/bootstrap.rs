//! Input to the bootstrap: frames and handshakes at a server and at a rank, messages of agents, hosts files, and
//! environment variables.

/// Runs one input. Its first byte chooses the entry point. The parsers are private to the crate, and so are their
/// checks.
pub fn run(data: &[u8]) {
    towline_bootstrap::fuzzing::run(data);
}
