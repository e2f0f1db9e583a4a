//! Input to the bootstrap: frames and handshakes at a server and at a rank, messages of agents, hosts files, and
//! environment variables.

/// Runs one input. Its first byte chooses the entry point. The parsers are private to `towline_bootstrap`, so the module
/// `fuzzing` of that crate calls them and checks the results.
pub fn run(data: &[u8]) {
    towline_bootstrap::fuzzing::run(data);
}
