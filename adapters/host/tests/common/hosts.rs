//! Two hosts, for which network namespaces stand, with cables between them.

use std::process::Command;

/// The hosts; they go away with this value.
pub struct Hosts {
    pub names: [String; 2],
    /// The end of each cable at the second host.
    ends: Vec<String>,
}

impl Hosts {
    /// Hosts with these many cables, at 10.`net`.CABLE.1 and 2. `None` without the rights to make them. No two of a process are of
    /// one kind.
    pub fn new(kind: &str, net: u8, cables: usize) -> Option<Self> {
        let id = format!("{kind}{}", std::process::id());
        let names = ["a", "b"].map(|at| format!("towline{id}{at}"));
        let mut this = Self { names, ends: Vec::new() };
        let [a, b] = this.names.clone();
        let mut lines = vec![format!("netns add {a}"), format!("netns add {b}")];
        lines.extend([&a, &b].map(|host| format!("-n {host} link set lo up")));
        for cable in 0..cables {
            let [va, vb] = ["a", "b"].map(|at| format!("t{id}{cable}{at}"));
            lines.push(format!("link add {va} netns {a} type veth peer name {vb} netns {b}"));
            for (host, end, last) in [(&a, &va, 1), (&b, &vb, 2)] {
                lines.push(format!("-n {host} addr add 10.{net}.{cable}.{last}/24 dev {end}"));
                lines.push(format!("-n {host} link set {end} up"));
            }
            this.ends.push(vb);
        }
        lines.iter().all(|line| Self::ip(line)).then_some(this)
    }

    fn ip(line: &str) -> bool {
        Command::new("ip").args(line.split(' ')).output().is_ok_and(|output| output.status.success())
    }

    /// Pulls a cable, or plugs it in again.
    pub fn set(&self, cable: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        assert!(Self::ip(&format!("-n {} link set {} {state}", self.names[1], self.ends[cable])));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            Self::ip(&format!("netns del {name}"));
        }
    }
}
