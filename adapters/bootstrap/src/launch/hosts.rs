//! Which rank runs where.

use std::fmt;

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
    /// The most ranks on it.
    pub slots: u32,
}

impl Host {
    /// The hosts of a file: one a line, with `slots=N` behind it for other numbers than 1; `#` starts a comment.
    ///
    /// # Errors
    /// [`HostsError`] with the first line that cannot be understood.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, HostsError> {
        let mut hosts: Vec<Self> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |why: String| HostsError { line: number, why };
            let mut words = line.split('#').next().unwrap_or("").split_whitespace();
            let Some(name) = words.next() else { continue };
            let mut slots = 1;
            for word in words {
                let count = word.strip_prefix("slots=").ok_or_else(|| wrong(format!("`{word}` is no slots=N")))?;
                slots = count.parse().map_err(|_| wrong(format!("`{count}` is no number of slots")))?;
            }
            // It would be taken for an option by the remote shell command.
            if name.starts_with('-') {
                return Err(wrong(format!("`{name}` is no host name")));
            }
            if hosts.iter().any(|host| host.name == name) {
                return Err(wrong(format!("`{name}` is there twice")));
            }
            hosts.push(Self { name: name.into(), slots });
        }
        Ok(hosts)
    }
}

/// A line of a hosts file that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostsError {
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for HostsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; write `host` or `host slots=N`", self.line, self.why)
    }
}

impl std::error::Error for HostsError {}

/// Fills the hosts one after another, up to their slots; hosts that get nothing are left out. The error is the number
/// of slots that there are.
pub(super) fn place(hosts: &[Host], size: u32) -> Result<Vec<(String, Vec<u32>)>, u32> {
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
        assert_eq!(place(&hosts, 4), Ok(vec![("a".into(), vec![0, 1]), ("c".into(), vec![2, 3])]));
        assert_eq!(place(&hosts, 6).unwrap().len(), 3);
        assert_eq!(place(&hosts, 7), Err(6));
    }
}
