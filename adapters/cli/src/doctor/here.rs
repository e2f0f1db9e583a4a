//! The checks of this host. Each function looks at one subject; the judgement is apart from what is read, so that tests can
//! give it other machines.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use towline::Config;
use towline_net::counted;
use towline_net::interfaces::{Filter, survey};

use super::check::Check;
use super::shared_memory::{Rings, file_size, shared_memory};
use super::texts::{act, bytes};

/// Files that a process has open besides its connections.
const SPARE_FILES: u64 = 64;
/// Threads of a rank: the program, the progress thread, and one to spare.
const THREADS: u64 = 3;
/// Longest time for which reading the clock is fast.
const CLOCK_READ: Duration = Duration::from_nanos(200);
/// Memory that verbs registers for a few peers.
const LOCKED: u64 = 64 << 20;

/// All checks for `ranks` ranks on this host.
pub fn checks(config: &Config, ranks: u32) -> Vec<Check> {
    let rings = Rings::of(config, ranks);
    let ranks = u64::from(ranks);
    let mut checks = shared_memory(Path::new(&config.sm.directory), &rings, ranks);
    checks.push(files(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum, ranks));
    checks.push(file_size(getrlimit(Resource::Fsize).current, &rings));
    checks.push(locked(getrlimit(Resource::Memlock).current, cfg!(feature = "verbs")));
    checks.push(processes(free_processes(), ranks));
    checks.push(clock(read("/sys/devices/system/clocksource/clocksource0/current_clocksource"), time_of_clock()));
    checks.push(interfaces(&Filter::from_lists(&config.tcp.include, &config.tcp.exclude)));
    checks
}

/// Open files: a connection to each peer in a rank, and three files for each rank in the launcher, which raises its own
/// limit.
fn files(soft: Option<u64>, hard: Option<u64>, ranks: u64) -> Check {
    const SUBJECT: &str = "open files";
    let (rank, launcher) = (ranks + SPARE_FILES, 3 * ranks + SPARE_FILES);
    let found = format!(
        "a process may open {} (at most {}); with {}, a rank opens about {rank} and the launcher {launcher}",
        number(soft),
        number(hard),
        counted(ranks, "rank")
    );
    if hard.is_some_and(|hard| hard < launcher) {
        let change = format!("raise the hard limit (ulimit -Hn {launcher}; limits.conf: nofile), or use fewer ranks");
        Check::problem(SUBJECT, found, change)
    } else if soft.is_some_and(|soft| soft < rank) {
        Check::problem(SUBJECT, found, format!("raise the limit before the job (ulimit -Sn {rank})"))
    } else {
        Check::good(SUBJECT, found)
    }
}

/// Locked memory, which only verbs needs.
fn locked(limit: Option<u64>, verbs: bool) -> Check {
    const SUBJECT: &str = "locked memory";
    let found = limit.map_or_else(|| "no limit".into(), |limit| format!("a process may lock at most {}", bytes(limit)));
    match limit {
        Some(limit) if verbs && limit < LOCKED => {
            let change =
                "raise the limit (ulimit -l unlimited; limits.conf: memlock), since verbs locks the memory of messages";
            Check::warning(SUBJECT, found, change)
        }
        _ if verbs => Check::good(SUBJECT, found),
        _ => Check::good(SUBJECT, format!("{found}; only verbs needs it, and it is not built in")),
    }
}

/// The number of processes and threads that may be started, and what limits it. `None` if nothing does.
fn free_processes() -> Option<(u64, &'static str)> {
    // Root is not limited.
    let user = if rustix::process::geteuid().is_root() { None } else { getrlimit(Resource::Nproc).current };
    let user = user.map(|most| (most, "ulimit -u"));
    let group = read("/proc/self/cgroup").and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.to_string();
        let file = |name: &str| read(&format!("/sys/fs/cgroup{path}/{name}"))?.parse::<u64>().ok();
        Some((file("pids.max")?.saturating_sub(file("pids.current")?), "the control group's pids.max"))
    });
    [user, group].into_iter().flatten().min()
}

fn processes(free: Option<(u64, &'static str)>, ranks: u64) -> Check {
    const SUBJECT: &str = "processes";
    let needed = THREADS * ranks;
    match free {
        Some((free, limit)) if free < needed => Check::problem(
            SUBJECT,
            format!("{limit} permits {free} more processes and threads; {} about {needed}", act(ranks, "start")),
            format!("raise {limit} (containers: --pids-limit), or use fewer ranks"),
        ),
        Some((free, limit)) => Check::good(SUBJECT, format!("{limit} permits {free} processes and threads")),
        None => Check::good(SUBJECT, "no limit for this user"),
    }
}

/// The time that one reading of the clock takes.
fn time_of_clock() -> Duration {
    const READS: u32 = 1000;
    let once = || {
        let start = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(Instant::now());
        }
        start.elapsed() / READS
    };
    // The shortest of several is that of the clock itself, and not of other work on the machine.
    (0..5).map(|_| once()).min().unwrap_or_default()
}

fn clock(source: Option<String>, read: Duration) -> Check {
    const SUBJECT: &str = "clock";
    let source = source.unwrap_or_else(|| "of unknown kind".into());
    let found = format!("clock {source}; it is read in {} ns", read.as_nanos());
    if read > CLOCK_READ {
        let change = "use the processor's counter, if it is reliable (kernel options: clocksource=tsc tsc=reliable); each wait \
                      reads the clock";
        Check::warning(SUBJECT, found, change)
    } else {
        Check::good(SUBJECT, found)
    }
}

fn interfaces(filter: &Filter) -> Check {
    const SUBJECT: &str = "interfaces";
    let all = match survey(filter) {
        Ok(all) => all,
        Err(why) => {
            return Check::problem(SUBJECT, format!("cannot list them: {why}"), "check the rights of this process");
        }
    };
    let used = |loopback| {
        let used = all.iter().filter(move |(it, verdict)| verdict.is_ok() && it.loopback == loopback);
        used.map(|(it, _)| format!("{} {}", it.name, it.address)).collect::<Vec<_>>()
    };
    match (&used(false)[..], &used(true)[..]) {
        ([], []) => Check::problem(
            SUBJECT,
            "tcp and udp can use none",
            "set TOWLINE_TCP_INCLUDE and TOWLINE_TCP_EXCLUDE; `towline info interfaces` says why each one is not used",
        ),
        ([], [..]) => Check::warning(
            SUBJECT,
            "only this host can be reached",
            "for a job on several hosts, configure a network; `towline info interfaces` says why others are not used",
        ),
        (others, _) => Check::good(SUBJECT, others.join(", ")),
    }
}

/// The right to read the memory of another rank, from Yama's setting and from what two ranks really do.
pub fn single_copy(works: bool, scope: Option<u32>) -> Check {
    const SUBJECT: &str = "single copy";
    let scope = scope.map_or_else(|| "no Yama".into(), |scope| format!("kernel.yama.ptrace_scope is {scope}"));
    if works {
        return Check::good(SUBJECT, format!("the kernel copies long messages between ranks ({scope})"));
    }
    Check::warning(
        SUBJECT,
        format!("the kernel does not copy between ranks ({scope}), so long messages go through rings"),
        "permit it (sysctl kernel.yama.ptrace_scope=0; containers: --cap-add=SYS_PTRACE, or a newer system call filter), or \
         leave TOWLINE_SM_SINGLE_COPY_BYTES out",
    )
}

/// Yama's setting, if the kernel has Yama.
pub fn ptrace_scope() -> Option<u32> {
    read("/proc/sys/kernel/yama/ptrace_scope")?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

fn number(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any number".into(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict::{Good, Problem, Warning};
    use super::*;

    #[test]
    fn limits_are_judged_by_the_ranks() {
        let open = |soft, hard, ranks| files(soft, hard, ranks).verdict;
        assert_eq!(open(Some(1024), Some(4096), 16), Good);
        assert_eq!(open(Some(1024), Some(4096), 1000), Problem, "each rank");
        assert_eq!(open(Some(1024), Some(1024), 500), Problem, "the launcher");
        assert_eq!(open(None, None, 100_000), Good);
        assert_eq!([true, false].map(|verbs| locked(Some(8 << 20), verbs).verdict), [Warning, Good]);
        assert_eq!(locked(None, true).verdict, Good);
        let started = |free| processes(free, 4).verdict;
        assert_eq!([started(None), started(Some((100, "x"))), started(Some((11, "x")))], [Good, Good, Problem]);
    }

    #[test]
    fn a_slow_clock_and_a_forbidden_copy_are_warnings() {
        let read = |nanos| clock(Some("hpet".into()), Duration::from_nanos(nanos)).verdict;
        assert_eq!([read(25), read(1500)], [Good, Warning]);
        assert_eq!([single_copy(true, Some(1)).verdict, single_copy(false, None).verdict], [Good, Warning]);
    }

    #[test]
    fn without_interfaces_the_advice_names_the_command_that_says_why() {
        let none = Filter { include: vec!["none".into()], exclude: None };
        assert!(interfaces(&none).change.contains("towline info interfaces"));
    }

    #[test]
    fn bytes_are_written_for_people() {
        assert_eq!([12, 2048, 3 << 20, 5 << 29].map(bytes), ["12 B", "2.0 KiB", "3.0 MiB", "2.5 GiB"]);
    }
}
