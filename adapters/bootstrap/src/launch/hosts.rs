//! Places ranks on hosts.

use std::fmt;

use super::cores::Mapping;
use crate::environment::host_name;

/// A host that may run ranks.
///
/// ```
/// use towline_bootstrap::launch::Host;
///
/// let hosts = Host::parse_list("node0 slots=2  # the big one\n\n# node1 is broken\nnode2\n").unwrap();
/// assert_eq!(hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect::<Vec<_>>(), [("node0", 2), ("node2", 1)]);
/// assert!(Host::parse_list("node0 slots=two").unwrap_err().to_string().contains("line 1"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Its name, as the remote shell command takes it.
    pub name: String,
    /// Maximum number of ranks that run on it.
    pub slots: u32,
}

impl Host {
    /// Parses a hosts file: one host on each line, followed by `slots=N` if it has other than 1 slot. `#` starts a
    /// comment.
    ///
    /// # Errors
    /// [`HostsError`] with the first malformed line.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, HostsError> {
        let mut hosts: Vec<Self> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |why: String| HostsError { line: number, why };
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let Some(name) = words.next() else { continue };
            let mut slots = 1;
            for word in words {
                let count =
                    word.strip_prefix("slots=").ok_or_else(|| wrong(format!("`{word}` is not of the form slots=N")))?;
                slots = count.parse().map_err(|_| wrong(format!("`{count}` is not a number of slots")))?;
            }
            // The remote shell command would take it for an option.
            if name.starts_with('-') {
                return Err(wrong(format!("`{name}` is not a host name")));
            }
            if hosts.iter().any(|host| host.name == name) {
                return Err(wrong(format!("`{name}` is listed twice")));
            }
            hosts.push(Self { name: name.into(), slots });
        }
        Ok(hosts)
    }
}

/// Whether a name in a hosts file is that of this host. Its ranks need no remote shell.
pub fn is_this_host(name: &str) -> bool {
    name == "localhost" || name == host_name()
}

/// A malformed line of a hosts file.
#[derive(Clone, PartialEq, Eq)]
pub struct HostsError {
    /// The line's number, from 1.
    pub line: usize,
    /// Why the line is invalid.
    pub why: String,
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; write `host` or `host slots=N`", self.line, self.why)
    }
}

impl std::error::Error for HostsError {}

towline_core::debug_as_display!(HostsError);

/// Places ranks on the hosts, up to their slots. Hosts without a rank are left out. The error is the total number of
/// slots.
pub(crate) fn place(hosts: &[Host], size: u32, mapping: Mapping) -> Result<Vec<(String, Vec<u32>)>, u32> {
    if mapping == Mapping::Node {
        return place_in_turns(hosts, size);
    }
    let mut next = 0u32;
    let mut placed = Vec::new();
    for host in hosts {
        let last = size.min(next.saturating_add(host.slots));
        if next < last {
            placed.push((host.name.clone(), (next..last).collect()));
        }
        next = last;
    }
    if next < size { Err(next) } else { Ok(placed) }
}

/// One rank for each host in turn, as long as it has slots.
fn place_in_turns(hosts: &[Host], size: u32) -> Result<Vec<(String, Vec<u32>)>, u32> {
    let mut placed: Vec<_> = hosts.iter().map(|host| (host.name.clone(), Vec::new())).collect();
    let mut next = 0;
    while next < size {
        let before = next;
        for (host, (_, ranks)) in hosts.iter().zip(&mut placed) {
            if next < size && (ranks.len() as u64) < u64::from(host.slots) {
                ranks.push(next);
                next += 1;
            }
        }
        if next == before {
            return Err(next);
        }
    }
    placed.retain(|(_, ranks)| !ranks.is_empty());
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lines_are_named() {
        for (text, line) in [("a\nb slots=x", 2), ("a slots", 1), ("a\n\na", 3), ("-oProxyCommand=x", 1), ("a b", 1)] {
            assert_eq!(Host::parse_list(text).unwrap_err().line, line, "{text}");
        }
        assert_eq!(Host::parse_list("# nothing\n").unwrap(), []);
    }

    #[test]
    fn ranks_fill_the_hosts_in_order() {
        let hosts = Host::parse_list("a slots=2\nb slots=0\nc slots=3\nd").unwrap();
        for mapping in [Mapping::Slot, Mapping::Core] {
            assert_eq!(place(&hosts, 4, mapping), Ok(vec![("a".into(), vec![0, 1]), ("c".into(), vec![2, 3])]));
            assert_eq!(place(&hosts, 6, mapping).unwrap().len(), 3);
            assert_eq!(place(&hosts, 7, mapping), Err(6));
        }
    }

    #[test]
    fn ranks_go_to_the_hosts_in_turns() {
        let hosts = Host::parse_list("a slots=2\nb slots=0\nc slots=3\nd").unwrap();
        let on = |size| place(&hosts, size, Mapping::Node);
        assert_eq!(on(2), Ok(vec![("a".into(), vec![0]), ("c".into(), vec![1])]));
        assert_eq!(on(6), Ok(vec![("a".into(), vec![0, 3]), ("c".into(), vec![1, 4, 5]), ("d".into(), vec![2])]));
        assert_eq!(on(7), Err(6));
    }
}
