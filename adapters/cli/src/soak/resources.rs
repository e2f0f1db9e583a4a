//! The system resources that a process holds for its peers: connections, segments and process handles. After a death no
//! resource of the dead rank may be left.

use std::collections::{HashMap, HashSet};
use std::fs::{read_dir, read_link, read_to_string};

/// States of a TCP connection of which neither end is closed: established, the two states before it, and listening.
const IN_ORDER: [&str; 4] = ["01", "02", "03", "0A"];
const LISTENS: &str = "0A";

/// Resources that this process holds.
#[derive(Clone, Default, Debug)]
pub struct Resources {
    /// Number of connections of which neither end is closed.
    connections: usize,
    /// Inodes of the sockets of connections of which an end is closed.
    ended: Vec<String>,
    /// Number of process handles.
    processes: usize,
    /// Names of mapped segments and open pipes.
    segments: Vec<String>,
    /// Number of other descriptors.
    other_descriptors: usize,
}

impl Resources {
    pub fn now() -> Self {
        let mut held = Self::default();
        let mut sockets = Vec::new();
        for entry in read_dir("/proc/self/fd").into_iter().flatten().flatten() {
            // A descriptor that was closed meanwhile is not held.
            let Ok(target) = read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            if let Some(inode) = target.strip_prefix("socket:[") {
                sockets.push(inode.trim_end_matches(']').to_owned());
            } else if target.contains("pidfd") {
                held.processes += 1;
            } else if target.contains("/towline.") {
                held.segments.push(target.into_owned());
            } else {
                held.other_descriptors += 1;
            }
        }
        let streams: HashMap<_, _> = ["tcp", "tcp6"].into_iter().flat_map(|table| column(table, 9, 3)).collect();
        let others: HashSet<_> = [("udp", 9), ("udp6", 9), ("unix", 6)]
            .into_iter()
            .flat_map(|(table, inode)| column(table, inode, 0))
            .map(|(inode, _)| inode)
            .collect();
        for inode in sockets {
            match streams.get(&inode).map(String::as_str) {
                Some(LISTENS) => held.other_descriptors += 1,
                Some(state) if IN_ORDER.contains(&state) => held.connections += 1,
                None if others.contains(&inode) => held.other_descriptors += 1,
                // The kernel does not list a socket whose connection has ended completely.
                _ => held.ended.push(inode),
            }
        }
        let maps = read_to_string("/proc/self/maps").unwrap_or_default();
        let name = |line: &str| line.find("/towline.").map(|_| line.split_whitespace().skip(5).collect());
        held.segments.extend(maps.lines().filter_map(name));
        held
    }

    /// Descriptors that belong to no peer: other ones, and sockets that are in none of the kernel's tables. A rail may
    /// keep such a socket in reserve, and it looks like one whose connection has ended.
    pub fn baseline(&self) -> [usize; 2] {
        [self.other_descriptors, self.ended.len()]
    }

    /// Describes a resource of the dead rank that is still held, if there is one. `others` ranks survive, each with
    /// `links` links. No other resource may have grown since [`baseline`](Self::baseline).
    pub fn find_leak(
        &self,
        dead: u32,
        others: usize,
        links: usize,
        [other_descriptors, idle]: [usize; 2],
    ) -> Option<String> {
        let segments: Vec<_> = self.segments.iter().filter(|name| is_of(name, dead)).collect();
        if !segments.is_empty() {
            return Some(format!("segments of rank {dead}: {segments:?}"));
        }
        if self.ended.len() > idle {
            return Some(format!("sockets of connections that have ended: {:?}", self.ended));
        }
        let most = [(self.connections, others * links, "connections"), (self.processes, others, "process handles")];
        if let Some((have, most, what)) = most.into_iter().find(|(have, most, _)| have > most) {
            return Some(format!("{have} {what}, but the surviving ranks account for {most}"));
        }
        (self.other_descriptors > other_descriptors)
            .then(|| format!("{} other descriptors, {other_descriptors} before", self.other_descriptors))
    }
}

/// Inodes of the sockets in a table of the kernel, each with the value in another column.
fn column(table: &str, inode: usize, other: usize) -> Vec<(String, String)> {
    let table = read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
    let both = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let words: Vec<_> = words.by_ref().collect();
        Some((words.get(inode)?.clone(), words.get(other)?.clone()))
    };
    table.lines().skip(1).filter_map(both).collect()
}

/// Whether a segment belongs to a rank, or to it and another rank: `towline.USER.JOB.RANK`,
/// `towline.USER.JOB.RANK-RANK.LANE`.
fn is_of(path: &str, rank: u32) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ranks = name.split('.').nth(3).unwrap_or_default();
    let ranks = ranks.split('(').next().unwrap_or_default().trim();
    ranks.split('-').any(|number| number == rank.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_connection_whose_other_end_is_closed_is_not_released() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        // Other tests in this process also have connections.
        let name = read_link(format!("/proc/self/fd/{}", caller.as_raw_fd())).unwrap();
        let is_ended =
            |held: &Resources| held.ended.iter().any(|inode| name.to_string_lossy() == format!("socket:[{inode}]"));
        let held = Resources::now();
        assert!(held.connections >= 2 && !is_ended(&held), "{held:?}");
        assert_eq!(held.find_leak(1, held.connections.max(held.processes), 1, held.baseline()), None);
        drop(other);
        assert_eq!(caller.read(&mut [0]).unwrap(), 0);
        let held = Resources::now();
        assert!(is_ended(&held), "{held:?}");
        let said = held.find_leak(1, held.connections, 1, [held.other_descriptors, 0]).unwrap();
        assert!(said.contains("have ended"), "{said}");
        drop(caller);
        assert!(!is_ended(&Resources::now()));
    }

    #[test]
    fn resources_of_a_dead_rank_are_found() {
        let of = |names: &[&str]| Resources {
            segments: names.iter().map(|name| format!("/dev/shm/towline.0.00ff.{name}")).collect(),
            ..Resources::default()
        };
        for name in ["2", "2(deleted)", "2.bell", "0-2.eager", "2-1.bulk(deleted)"] {
            assert!(of(&["0", "12", name]).find_leak(2, 5, 1, [0, 0]).is_some(), "{name}");
            assert_eq!(of(&["0", name]).find_leak(3, 5, 1, [0, 0]), None, "{name}");
        }
        for (held, why) in [
            (Resources { connections: 7, ..Resources::default() }, "7 connections"),
            (Resources { processes: 3, ..Resources::default() }, "3 process handles"),
            (Resources { other_descriptors: 10, ..Resources::default() }, "10 other"),
        ] {
            assert_eq!(held.find_leak(0, 3, 3, [10, 0]), None);
            assert!(held.find_leak(0, 2, 3, [9, 0]).unwrap().starts_with(why));
        }
    }
}
