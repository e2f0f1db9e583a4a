//! Two simulated hosts, which are network namespaces, with cables between them.

use std::process::Command;

/// The hosts. They are removed when this value is dropped.
pub struct Hosts {
    pub names: [String; 2],
    /// The ends of each cable.
    ends: Vec<[String; 2]>,
    net: u8,
}

impl Hosts {
    /// Hosts with this number of cables, at 10.`net`.CABLE.1 and 2. `None` without the rights to make them. Each pair of hosts in
    /// a process needs a `kind` of its own.
    pub fn new(kind: &str, net: u8, cables: usize) -> Option<Self> {
        let id = format!("{kind}{}", std::process::id());
        let names = ["a", "b"].map(|at| format!("towline{id}{at}"));
        let mut this = Self { names, ends: Vec::new(), net };
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
            this.ends.push([va, vb]);
        }
        lines.iter().all(|line| Self::ip(line)).then_some(this)
    }

    fn ip(line: &str) -> bool {
        Command::new("ip").args(line.split(' ')).output().is_ok_and(|output| output.status.success())
    }

    /// Pulls a cable, or plugs it in again.
    pub fn set(&self, cable: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        assert!(Self::ip(&format!("-n {} link set {} {state}", self.names[1], self.ends[cable][1])));
    }

    /// Tells the hosts that the path over a cable has an MTU of this many bytes, less than the MTU of its ends.
    #[allow(dead_code)]
    pub fn narrow(&self, cable: usize, bytes: u32) {
        for (name, end) in self.names.iter().zip(&self.ends[cable]) {
            let route = format!("10.{}.{cable}.0/24 dev {end} scope link", self.net);
            assert!(Self::ip(&format!("-n {name} route replace {route} mtu {bytes}")));
        }
    }

    /// How many datagrams a host has fragmented.
    #[allow(dead_code)]
    pub fn fragmented(&self, host: usize) -> u64 {
        let line = format!("netns exec {} cat /proc/net/snmp", self.names[host]);
        let text = Command::new("ip").args(line.split(' ')).output().unwrap().stdout;
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.split(' ').position(|name| name == "FragOKs").unwrap();
        values.split(' ').nth(place).unwrap().parse().unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            Self::ip(&format!("netns del {name}"));
        }
    }
}
