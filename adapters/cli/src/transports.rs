//! The transports between processes, and which of them work on this host.

/// All transports, in the order in which they are listed.
pub const ALL: [&str; 6] = ["sm", "tcp", "udp", "verbs", "dpu", "dpu-frames"];
/// The transports that are used if none is named.
pub const STANDARD: [&str; 2] = ["sm", "tcp"];

/// The transports that have several links to a peer.
const WITH_LINKS: [&str; 3] = ["tcp", "udp", "verbs"];

/// The text if `links` links to each peer have no effect, since none of the named transports has more than one.
pub fn ignored_links(names: &[impl AsRef<str>], links: u32) -> Option<String> {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    let have_one = !names.is_empty() && names.iter().all(|name| ALL.contains(name) && !WITH_LINKS.contains(name));
    (have_one && links > 1).then(|| {
        format!(
            "--links {links} has no effect with --transport {}: only tcp, udp and verbs have several links; name one of them, or leave \
             --links out",
            names.join(",")
        )
    })
}

/// The transports that use a DPU of this host.
pub const OF_DPUS: [&str; 2] = ["dpu", "dpu-frames"];

/// Whether a transport works on this host: what it uses there, if there is something to say, or the reason why it does not work.
pub fn try_here(name: &str) -> Result<Option<String>, String> {
    let tried = || {
        let world = towline::Builder::new().transports(name).build()?;
        let begin = format!("{name} ");
        let line =
            world.transport_report().into_iter().find(|line| OF_DPUS.contains(&name) && line.starts_with(&begin));
        world.finish()?;
        Ok(line.map(|line| line[begin.len()..].to_string()))
    };
    tried().map_err(|why: towline::SetupError| why.to_string())
}

/// The reason why a transport does not work on this host, or `None` if it works.
pub fn why_unavailable(name: &str) -> Option<String> {
    try_here(name).err()
}
