//! What a process holds of the system for its peers: connections, segments and handles on processes. After a death nothing
//! of the dead rank's may be left.

use std::collections::{HashMap, HashSet};
use std::fs::{read_dir, read_link, read_to_string};

/// States of a TCP connection of which no end has been closed: established, two before that, listening.
const IN_ORDER: [&str; 4] = ["01", "02", "03", "0A"];
const LISTENS: &str = "0A";

/// What this process holds.
#[derive(Clone, Default, Debug)]
pub struct Held {
    /// Connections whose ends are both there.
    connections: usize,
    /// Inodes of the sockets of those of which one end is gone.
    ended: Vec<String>,
    /// Handles on processes.
    processes: usize,
    /// Names of segments that are mapped, and of pipes that are open.
    segments: Vec<String>,
    /// Other descriptors.
    rest: usize,
}

impl Held {
    pub fn now() -> Self {
        let mut held = Self::default();
        let mut sockets = Vec::new();
        for entry in read_dir("/proc/self/fd").into_iter().flatten().flatten() {
            // One that was closed meanwhile is not held.
            let Ok(target) = read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            if let Some(inode) = target.strip_prefix("socket:[") {
                sockets.push(inode.trim_end_matches(']').to_owned());
            } else if target.contains("pidfd") {
                held.processes += 1;
            } else if target.contains("/towline.") {
                held.segments.push(target.into_owned());
            } else {
                held.rest += 1;
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
                Some(LISTENS) => held.rest += 1,
                Some(state) if IN_ORDER.contains(&state) => held.connections += 1,
                None if others.contains(&inode) => held.rest += 1,
                // The kernel lists none that is quite over.
                _ => held.ended.push(inode),
            }
        }
        let maps = read_to_string("/proc/self/maps").unwrap_or_default();
        let name = |line: &str| line.find("/towline.").map(|_| line.split_whitespace().skip(5).collect());
        held.segments.extend(maps.lines().filter_map(name));
        held
    }

    /// Descriptors that are no peer's: others, and sockets that are in no table of the kernel's. A rail may keep one of these in
    /// reserve, which looks like one whose connection has ended.
    pub fn own(&self) -> [usize; 2] {
        [self.rest, self.ended.len()]
    }

    /// What is still here that has to go with rank `dead`, where so many others are left, each with so many links; nothing
    /// else may have grown since it was [`own`](Self::own).
    pub fn unreleased(&self, dead: u32, others: usize, links: usize, [rest, idle]: [usize; 2]) -> Option<String> {
        let segments: Vec<_> = self.segments.iter().filter(|name| is_of(name, dead)).collect();
        if !segments.is_empty() {
            return Some(format!("segments of rank {dead}: {segments:?}"));
        }
        if self.ended.len() > idle {
            return Some(format!("sockets of connections that have ended: {:?}", self.ended));
        }
        let most =
            [(self.connections, others * links, "connections"), (self.processes, others, "handles on processes")];
        if let Some((have, most, what)) = most.into_iter().find(|(have, most, _)| have > most) {
            return Some(format!("{have} {what}, where those who are left account for {most}"));
        }
        (self.rest > rest).then(|| format!("{} other descriptors, {rest} before", self.rest))
    }
}

/// Inodes of sockets in a table of the kernel's, each with what another column says.
fn column(table: &str, inode: usize, other: usize) -> Vec<(String, String)> {
    let table = read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
    let both = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let words: Vec<_> = words.by_ref().collect();
        Some((words.get(inode)?.clone(), words.get(other)?.clone()))
    };
    table.lines().skip(1).filter_map(both).collect()
}

/// Whether a segment is a rank's, or between it and another: `towline.USER.JOB.RANK`, `towline.USER.JOB.RANK-RANK.LANE`.
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
    fn a_connection_whose_other_end_is_gone_is_not_released() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        // Other tests of this process have connections, too.
        let name = read_link(format!("/proc/self/fd/{}", caller.as_raw_fd())).unwrap();
        let is_ended =
            |held: &Held| held.ended.iter().any(|inode| name.to_string_lossy() == format!("socket:[{inode}]"));
        let held = Held::now();
        assert!(held.connections >= 2 && !is_ended(&held), "{held:?}");
        assert_eq!(held.unreleased(1, held.connections.max(held.processes), 1, held.own()), None);
        drop(other);
        assert_eq!(caller.read(&mut [0]).unwrap(), 0);
        let held = Held::now();
        assert!(is_ended(&held), "{held:?}");
        let said = held.unreleased(1, held.connections, 1, [held.rest, 0]).unwrap();
        assert!(said.contains("have ended"), "{said}");
        drop(caller);
        assert!(!is_ended(&Held::now()));
    }

    #[test]
    fn what_is_a_dead_ranks_is_not_released() {
        let of = |names: &[&str]| Held {
            segments: names.iter().map(|name| format!("/dev/shm/towline.0.00ff.{name}")).collect(),
            ..Held::default()
        };
        for name in ["2", "2(deleted)", "2.bell", "0-2.eager", "2-1.bulk(deleted)"] {
            assert!(of(&["0", "12", name]).unreleased(2, 5, 1, [0, 0]).is_some(), "{name}");
            assert_eq!(of(&["0", name]).unreleased(3, 5, 1, [0, 0]), None, "{name}");
        }
        for (held, why) in [
            (Held { connections: 7, ..Held::default() }, "7 connections"),
            (Held { processes: 3, ..Held::default() }, "3 handles"),
            (Held { rest: 10, ..Held::default() }, "10 other"),
        ] {
            assert_eq!(held.unreleased(0, 3, 3, [10, 0]), None);
            assert!(held.unreleased(0, 2, 3, [9, 0]).unwrap().starts_with(why));
        }
    }
}
