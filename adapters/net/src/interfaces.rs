//! The addresses of this host, and the filter that allows or excludes them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use towline_settings::Values;

/// Interfaces that are excluded where no list is given: bridges and virtual pairs that containers and virtual machines create on
/// a host. They look like networks, but do not reach another host.
pub const BRIDGES: [&str; 9] =
    ["docker*", "virbr*", "cni*", "veth*", "br-*", "podman*", "lxcbr*", "lxdbr*", "flannel*"];

/// Possible texts for each list of [`Filter::from_lists`].
pub const LIST: Values = Values::Checked(
    "names of interfaces such as eth0 or eth*, addresses, and networks such as 10.0.0.0/8, with commas between them",
    |text| towline_settings::entries(text).iter().try_for_each(|entry| check_entry(entry)),
);

/// Whether an entry may match an interface of some host.
fn check_entry(entry: &str) -> Result<(), String> {
    let Some((network, bits)) = entry.split_once('/') else { return Ok(()) };
    let most = match network.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return Err(format!("has the entry `{entry}`, in which `{network}` is not an address")),
    };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= most => Ok(()),
        _ => Err(format!("has the entry `{entry}`, in which `{bits}` is not a number of bits from 0 to {most}")),
    }
}

/// An address of this host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name of the interface in the operating system.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Length of the network prefix, in bits.
    pub prefix: u8,
    /// Whether the interface reaches this host only.
    pub loopback: bool,
}

/// The interfaces that may be used, as two lists. An entry is a name, the beginning of a name followed by `*`, an address, or a
/// network such as `10.1.0.0/16`.
///
/// ```
/// use towline_net::interfaces::Filter;
///
/// let filter = Filter::default();
/// assert!(filter.verdict("eth0", "192.0.2.1".parse().unwrap()).is_ok());
/// assert!(filter.verdict("docker0", "172.17.0.1".parse().unwrap()).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// If this list is not empty, only these interfaces are used, and the default of `exclude` does not apply.
    pub include: Vec<String>,
    /// These interfaces are not used. `None` stands for [`BRIDGES`] if `include` is empty, else for no interface.
    pub exclude: Option<Vec<String>>,
}

impl Default for Filter {
    /// All interfaces but [`BRIDGES`].
    fn default() -> Self {
        Self { include: Vec::new(), exclude: None }
    }
}

impl Filter {
    /// The filter of two lists whose entries are separated by commas. An empty list of exclusions stands for the default.
    pub fn from_lists(include: &str, exclude: &str) -> Self {
        let exclude = towline_settings::entries(exclude);
        Self { include: towline_settings::entries(include), exclude: (!exclude.is_empty()).then_some(exclude) }
    }

    /// Whether the address `address` of the interface `name` may be used.
    ///
    /// # Errors
    /// The reason why it may not be used, in words for the log. Link-local addresses of IPv6 are never used.
    pub fn verdict(&self, name: &str, address: IpAddr) -> Result<(), String> {
        if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            return Err("link-local".into());
        }
        if !self.include.is_empty() && !self.include.iter().any(|entry| matches(entry, name, address)) {
            return Err("not in the include list".into());
        }
        let hit = match &self.exclude {
            Some(list) => list.iter().map(String::as_str).find(|entry| matches(entry, name, address)),
            None if self.include.is_empty() => BRIDGES.into_iter().find(|entry| matches(entry, name, address)),
            None => None,
        };
        hit.map_or(Ok(()), |entry| Err(format!("excluded by \"{entry}\"")))
    }
}

fn matches(entry: &str, name: &str, address: IpAddr) -> bool {
    if let Some(start) = entry.strip_suffix('*') {
        return name.starts_with(start);
    }
    if let Some((network, bits)) = entry.split_once('/')
        && let (Ok(network), Ok(bits)) = (network.parse(), bits.parse())
    {
        return same_network(network, address, bits);
    }
    entry == name || entry.parse() == Ok(address)
}

/// Whether two addresses are equal in their first `prefix` bits.
pub fn same_network(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            (u32::from(one) ^ u32::from(other)) & mask == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            (u128::from(one) ^ u128::from(other)) & mask == 0
        }
        _ => false,
    }
}

/// Every address of this host whose interface is up, with the filter's verdict: `Err` has the reason why it may not be used.
///
/// # Errors
/// The error of `getifaddrs(3)`.
pub fn survey(filter: &Filter) -> io::Result<Vec<(Interface, Result<(), String>)>> {
    let with_verdict = |it: Interface| {
        let verdict = filter.verdict(&it.name, it.address);
        (it, verdict)
    };
    Ok(list()?.into_iter().map(with_verdict).collect())
}

/// The addresses of this host that a filter allows. The others are logged with the reason, beside the name of the rail's
/// transport and the number of its link.
///
/// # Errors
/// The error of `getifaddrs(3)`.
pub fn allowed(filter: &Filter, transport: &str, link: u8) -> io::Result<Vec<Interface>> {
    let mut allowed = Vec::new();
    for (it, verdict) in survey(filter)? {
        match verdict {
            Ok(()) => allowed.push(it),
            Err(why) => log::debug!("{transport} link {link}: {} at {} is not used: {why}", it.name, it.address),
        }
    }
    Ok(allowed)
}

/// All addresses of this host whose interface is up.
///
/// # Errors
/// The error of `getifaddrs(3)`.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a valid place for the pointer that the call writes.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: `at` is an entry of the list that getifaddrs made, which is not freed yet.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: both pointers are null or point to socket addresses of the list.
        let (address, mask) = unsafe { (ip(entry.ifa_addr), ip(entry.ifa_netmask)) };
        let Some(address) = address else { continue };
        // SAFETY: the name is a C string of the list.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let prefix = match mask {
            Some(IpAddr::V4(mask)) => u32::from(mask).leading_ones() as u8,
            Some(IpAddr::V6(mask)) => u128::from(mask).leading_ones() as u8,
            None => 0,
        };
        let loopback = address.is_loopback() || entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
        found.push(Interface { name, address, prefix, loopback });
    }
    // SAFETY: the list came from getifaddrs, and no borrow of it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The IP address in a socket address; `None` for null and for other families.
///
/// # Safety
/// The pointer is null, or points to a socket address that is as long as its family requires.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it points to a socket address, which starts with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that the address has this type.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the address has this type.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}

/// A number of this host: a hash of the boot id and the network namespace. Two processes have the same number if they have
/// the same loopback interface, so each container with a network of its own counts as a host.
pub fn host_id() -> u64 {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(boot) => hash.update(&boot),
        Err(_) => hash.update(std::fs::read("/etc/hostname").unwrap_or_default()),
    }
    if let Ok(namespace) = std::fs::read_link("/proc/self/ns/net") {
        hash.update(namespace.as_os_str().as_encoded_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(filter: &Filter, name: &str, address: &str) -> bool {
        filter.verdict(name, address.parse().unwrap()).is_ok()
    }

    #[test]
    fn bridges_are_excluded_unless_a_list_says_otherwise() {
        let default = Filter::default();
        for bridge in ["docker0", "virbr0", "cni0", "veth12ab", "br-0f1e"] {
            assert!(!allowed(&default, bridge, "172.17.0.1"), "{bridge}");
        }
        assert!(allowed(&default, "br0", "10.0.0.1") && allowed(&default, "lo", "127.0.0.1"));
        let named = Filter { include: vec!["docker0".into()], exclude: None };
        assert!(allowed(&named, "docker0", "172.17.0.1") && !allowed(&named, "eth0", "10.0.0.1"));
        let none = Filter { include: vec![], exclude: Some(vec![]) };
        assert!(allowed(&none, "docker0", "172.17.0.1"));
    }

    #[test]
    fn entries_are_names_beginnings_addresses_or_networks() {
        let filter = Filter { include: vec!["10.1.0.0/16".into(), "ib*".into(), "fd00::/8".into()], exclude: None };
        assert!(allowed(&filter, "eth0", "10.1.2.3") && !allowed(&filter, "eth0", "10.2.2.3"));
        assert!(allowed(&filter, "ib1", "192.0.2.1") && allowed(&filter, "eth0", "fd12::1"));
        let filter = Filter { include: vec![], exclude: Some(vec!["10.1.2.3".into(), "0.0.0.0/0".into()]) };
        assert!(!allowed(&filter, "eth0", "10.1.2.3") && !allowed(&filter, "eth0", "192.0.2.1"));
        assert!(allowed(&filter, "eth0", "fd00::1") && !allowed(&filter, "eth0", "fe80::1"));
    }

    #[test]
    fn a_malformed_network_is_refused_and_not_taken_for_a_name() {
        for good in ["", "eth0,ib*", "10.0.0.0/8, fd00::/8", "192.0.2.1"] {
            assert_eq!(LIST.check(good), Ok(()), "{good}");
        }
        for wrong in ["10.0.0/8", "10.0.0.0/33", "eth0,10.0.0.0/", "fd00::/129", "eth0/8"] {
            assert!(LIST.check(wrong).is_err_and(|why| why.contains("has the entry")), "{wrong}");
        }
    }

    #[test]
    fn this_host_has_a_loopback() {
        let found = list().unwrap();
        assert!(found.iter().any(|it| it.loopback && it.address == IpAddr::V4(Ipv4Addr::LOCALHOST) && it.prefix == 8));
        assert_eq!(host_id(), host_id());
    }
}
