//! The environment variables that a launcher sets for its ranks.

use std::net::SocketAddr;

use crate::error::{EnvironmentError, Error};
use crate::{Address, JobKey};

/// The largest number of ranks in a job. The transports cannot number more.
pub const RANKS_MAX: u32 = 1 << 20;

/// Variables that make a process a rank of a job: if one of them is set, the process is not a job of its own.
const OF_A_JOB: [&str; 6] =
    ["TOWLINE_RANK", "TOWLINE_SIZE", "TOWLINE_ROOT", "TOWLINE_JOB", "TOWLINE_KEY", "TOWLINE_LISTEN"];

/// The names of all variables that [`Environment`] reads. Inputs of the fuzz target number them in this order.
pub const VARIABLES: [&str; 10] = [
    "TOWLINE_RANK",
    "TOWLINE_SIZE",
    "TOWLINE_ROOT",
    "TOWLINE_JOB",
    "TOWLINE_KEY",
    "TOWLINE_LISTEN",
    "TOWLINE_TRANSPORTS",
    "TOWLINE_LINKS",
    "TOWLINE_HOST",
    "TOWLINE_LOCAL",
];

/// The environment of one rank, read and checked. The crate's page lists the variables.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Environment {
    /// This process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Addresses of the server, in the order in which a rank tries them. Empty in a job of size 1 without a launcher.
    pub root: Vec<Address>,
    /// The address at which rank 0 itself runs the server, in a job without a launcher.
    pub listen: Option<SocketAddr>,
    /// The job's number.
    pub job: u64,
    /// The job's secret.
    pub key: JobKey,
    /// Names of the transports to use. Empty means all.
    pub transports: Vec<String>,
    /// Number of links to each peer, if the launcher set it.
    pub links: Option<u32>,
    /// Name of this host within the job.
    pub host: String,
    /// The ranks on this host in rising order, if they are known.
    pub local: Option<Vec<u32>>,
}

impl Environment {
    /// The environment of a program that was started by itself: a job of size 1 with a random number and key.
    pub fn singleton() -> Self {
        let (mut job, mut secret) = ([0; 8], [0; 32]);
        // Without random numbers the key is no secret, but a job of one rank has no connection that uses it.
        let _ = towline_net::random::fill(&mut job).and_then(|()| towline_net::random::fill(&mut secret));
        Self {
            rank: 0,
            size: 1,
            root: Vec::new(),
            listen: None,
            job: u64::from_le_bytes(job),
            key: JobKey::new(secret),
            transports: Vec::new(),
            links: None,
            host: host_name(),
            local: Some(vec![0]),
        }
    }

    /// The environment of a rank that another launcher has started: see [`Job::over`](crate::Job::over). The number and the key of
    /// the job are random. Variables of the environment choose transports, links, and the name of the host. `local`: the ranks of
    /// this host, this one included, if they are known.
    ///
    /// # Errors
    /// [`Error::Exchange`] for impossible ranks, [`Error::Environment`] for a malformed variable, [`Error::System`] if there are no
    /// random numbers.
    pub fn of_rank(rank: u32, size: u32, local: Option<Vec<u32>>) -> Result<Self, Error> {
        let mut environment = Self::singleton();
        environment.key = JobKey::random().map_err(Error::System)?;
        if size > RANKS_MAX || rank >= size {
            return Err(Error::exchange(
                "start",
                format!("there is no rank {rank} of {size} ranks, which may be {RANKS_MAX} at most"),
            ));
        }
        (environment.rank, environment.size) = (rank, size);
        environment.local = local.map(|mut ranks| {
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        });
        if let Some(ranks) = environment.local.as_deref().filter(|ranks| !is_local(ranks, rank, size)) {
            let ranks = format_ranks(ranks);
            return Err(Error::exchange(
                "start",
                format!("the ranks of this host ({ranks}) are not ranks of the job with rank {rank}"),
            ));
        }
        environment.read_choices(&process_variable)?;
        Ok(environment)
    }

    /// Whether a variable of this process says that it is a rank of a job of the bootstrap.
    pub fn is_set() -> bool {
        OF_A_JOB.iter().any(|name| std::env::var_os(name).is_some())
    }

    /// The environment of this process.
    ///
    /// # Errors
    /// [`EnvironmentError`] for the first variable that is malformed, or that is missing although other variables of
    /// the job are set.
    pub fn read() -> Result<Self, EnvironmentError> {
        Self::from_lookup(process_variable)
    }

    /// Reads the environment from `lookup` instead of from the process. Tests use this, and launchers that pass the
    /// values in another way.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let mut environment = Self::singleton();
        let named = OF_A_JOB.iter().any(|name| lookup(name).is_some());
        let read = |name: &'static str| {
            lookup(name)
                .ok_or(EnvironmentError { name, why: "it is not set, although other variables of the job are".into() })
        };
        if named {
            environment.size = number("TOWLINE_SIZE", &read("TOWLINE_SIZE")?)?;
            if environment.size > RANKS_MAX {
                let why = format!("{} is more than {RANKS_MAX}, the most ranks of a job", environment.size);
                return Err(EnvironmentError { name: "TOWLINE_SIZE", why });
            }
            environment.rank = number("TOWLINE_RANK", &read("TOWLINE_RANK")?)?;
            if environment.rank >= environment.size {
                let why = format!("{} is not below TOWLINE_SIZE, {}", environment.rank, environment.size);
                return Err(EnvironmentError { name: "TOWLINE_RANK", why });
            }
            let alone = environment.size == 1 && lookup("TOWLINE_ROOT").is_none();
            if !alone {
                let root = read("TOWLINE_ROOT")?;
                let root = root.split(',').map(|address| address.trim().parse());
                environment.root =
                    root.collect::<Result<_, _>>().map_err(|why| EnvironmentError { name: "TOWLINE_ROOT", why })?;
                let job = read("TOWLINE_JOB")?;
                let why = || format!("`{job}` is not a number of up to 16 hexadecimal digits");
                environment.job =
                    u64::from_str_radix(&job, 16).map_err(|_| EnvironmentError { name: "TOWLINE_JOB", why: why() })?;
                let why = || "it is not 64 hexadecimal digits".to_string();
                environment.key = JobKey::from_hex(&read("TOWLINE_KEY")?)
                    .ok_or_else(|| EnvironmentError { name: "TOWLINE_KEY", why: why() })?;
                environment.local = None;
                if let Some(listen) = lookup("TOWLINE_LISTEN") {
                    let why = format!("`{listen}` is not an address and port, such as 0.0.0.0:4000");
                    let listen = listen.trim().parse().map_err(|_| EnvironmentError { name: "TOWLINE_LISTEN", why })?;
                    environment.listen = Some(listen);
                }
            }
        }
        environment.read_choices(&lookup)?;
        if let Some(local) = lookup("TOWLINE_LOCAL") {
            let ranks = parse_ranks(&local).filter(|ranks| is_local(ranks, environment.rank, environment.size));
            let why = format!("`{local}` is not a list of ranks of this job that contains this rank, such as 0-3,8");
            environment.local = Some(ranks.ok_or(EnvironmentError { name: "TOWLINE_LOCAL", why })?);
        }
        Ok(environment)
    }

    /// Reads the variables that any rank may have.
    fn read_choices(&mut self, lookup: &impl Fn(&str) -> Option<String>) -> Result<(), EnvironmentError> {
        if let Some(transports) = lookup("TOWLINE_TRANSPORTS") {
            self.transports =
                transports.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Into::into).collect();
        }
        if let Some(links) = lookup("TOWLINE_LINKS") {
            self.links = Some(number("TOWLINE_LINKS", &links)?);
        }
        if let Some(host) = lookup("TOWLINE_HOST") {
            self.host = host;
        }
        Ok(())
    }

    /// The variables, as names and values, from which [`read`](Self::read) gives this environment back.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let root: Vec<_> = self.root.iter().map(ToString::to_string).collect();
        let mut variables = vec![
            ("TOWLINE_RANK", self.rank.to_string()),
            ("TOWLINE_SIZE", self.size.to_string()),
            ("TOWLINE_JOB", format!("{:016x}", self.job)),
            ("TOWLINE_KEY", self.key.to_hex()),
            ("TOWLINE_HOST", self.host.clone()),
        ];
        // A job of size 1 needs no address, and an empty value would be an error.
        if !root.is_empty() {
            variables.push(("TOWLINE_ROOT", root.join(",")));
        }
        if let Some(listen) = self.listen {
            variables.push(("TOWLINE_LISTEN", listen.to_string()));
        }
        if !self.transports.is_empty() {
            variables.push(("TOWLINE_TRANSPORTS", self.transports.join(",")));
        }
        if let Some(links) = self.links {
            variables.push(("TOWLINE_LINKS", links.to_string()));
        }
        if let Some(local) = &self.local {
            variables.push(("TOWLINE_LOCAL", format_ranks(local)));
        }
        variables
    }
}

fn process_variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Whether these are ranks of a job of this size, with this one among them.
fn is_local(ranks: &[u32], rank: u32, size: u32) -> bool {
    ranks.binary_search(&rank).is_ok() && ranks.iter().all(|rank| *rank < size)
}

/// The host name that the system reports.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn number(name: &'static str, text: &str) -> Result<u32, EnvironmentError> {
    text.trim().parse().map_err(|_| EnvironmentError { name, why: format!("`{text}` is not a number") })
}

/// Parses a list such as `0-3,8` into ranks in rising order. `None` for any other text, and for a list of more than
/// [`RANKS_MAX`] ranks.
fn parse_ranks(text: &str) -> Option<Vec<u32>> {
    const MOST: usize = RANKS_MAX as usize;
    let mut ranks = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || (last - first) as usize >= MOST - ranks.len().min(MOST) {
            return None;
        }
        ranks.extend(first..=last);
    }
    ranks.sort_unstable();
    ranks.dedup();
    Some(ranks)
}

/// Formats ranks in rising order as a list such as `0-3,8`.
///
/// ```
/// assert_eq!(towline_bootstrap::format_ranks(&[0, 1, 2, 8]), "0-2,8");
/// ```
pub fn format_ranks(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.filter_map(|run| run.first().zip(run.last()));
    let runs: Vec<_> = runs.map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    runs.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(variables: &[(&'static str, &str)]) -> Result<Environment, EnvironmentError> {
        let map: HashMap<_, _> = variables.iter().copied().collect();
        Environment::from_lookup(|name| map.get(name).map(ToString::to_string))
    }

    #[test]
    fn an_empty_environment_is_a_job_of_size_1() {
        let alone = read(&[("TOWLINE_TRANSPORTS", "sm")]).unwrap();
        assert_eq!((alone.rank, alone.size, alone.root.len()), (0, 1, 0));
        assert_eq!((alone.transports, alone.local), (vec!["sm".into()], Some(vec![0])));
        assert_ne!(alone.key, read(&[]).unwrap().key);
        assert_eq!(read(&[("TOWLINE_RANK", "0"), ("TOWLINE_SIZE", "1")]).unwrap().root, []);
        for part in OF_A_JOB {
            assert!(read(&[(part, "0")]).is_err(), "{part} alone does not describe a job");
        }
    }

    #[test]
    fn variables_are_read_back() {
        let written = Environment {
            rank: 9,
            size: 12,
            root: vec!["unix:@a".parse().unwrap(), "tcp:h:1".parse().unwrap()],
            listen: Some("0.0.0.0:4000".parse().unwrap()),
            transports: vec!["sm".into(), "tcp".into()],
            links: Some(3),
            host: "node1".into(),
            local: Some(vec![1, 8, 9, 10]),
            ..Environment::singleton()
        };
        let variables = written.variables();
        assert!(variables.contains(&("TOWLINE_LOCAL", "1,8-10".into())));
        let back = Environment::from_lookup(|name| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone()));
        assert_eq!(back, Ok(written));
    }

    #[test]
    fn a_job_of_size_1_reads_its_variables_back() {
        let written = Environment { host: "node1".into(), ..Environment::singleton() };
        let variables = written.variables();
        let lookup = |name: &str| variables.iter().find(|v| v.0 == name).map(|v| v.1.clone());
        let back = Environment::from_lookup(lookup).unwrap();
        assert_eq!((back.rank, back.size, back.root, back.host), (0, 1, vec![], "node1".into()));
    }

    #[test]
    fn each_malformed_or_missing_variable_is_named() {
        let key = "0".repeat(64);
        let good = [
            ("TOWLINE_RANK", "1"),
            ("TOWLINE_SIZE", "2"),
            ("TOWLINE_ROOT", "unix:@a"),
            ("TOWLINE_JOB", "f"),
            ("TOWLINE_KEY", key.as_str()),
            ("TOWLINE_LOCAL", "0-1"),
        ];
        assert_eq!(read(&good).unwrap().job, 15);
        for (index, name) in [0, 1, 2, 3, 4].map(|index| (index, good[index].0)) {
            let mut without = good.to_vec();
            without.remove(index);
            assert_eq!(read(&without).unwrap_err().name, name);
        }
        for (name, wrong) in [
            ("TOWLINE_RANK", "2"),
            ("TOWLINE_RANK", "-1"),
            ("TOWLINE_SIZE", "many"),
            ("TOWLINE_ROOT", "unix:@a,"),
            ("TOWLINE_JOB", "xyz"),
            ("TOWLINE_KEY", "00"),
            ("TOWLINE_LINKS", "-"),
            ("TOWLINE_LISTEN", "node0"),
            ("TOWLINE_LOCAL", "0"),
            ("TOWLINE_LOCAL", "1-0,1"),
            ("TOWLINE_LOCAL", "1,2"),
            ("TOWLINE_LOCAL", "0-4294967295"),
        ] {
            let mut changed: Vec<_> = good.iter().copied().filter(|v| v.0 != name).collect();
            changed.push((name, wrong));
            assert_eq!(read(&changed).unwrap_err().name, name, "{wrong}");
        }
    }
}
