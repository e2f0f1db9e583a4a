//! The checks of other hosts: this program, started there by the remote shell, makes those of its host.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use towline_bootstrap::launch::{self, is_this_host, remote_command};
use towline_core::wire;

use super::arguments::Arguments;
use super::check::{Check, Host, Verdict};
use crate::run::hosts_of;
use crate::version;

/// Time in which a host must answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Difference of two clocks that log files show.
const CLOCK_DIFFERENCE_MS: u64 = 1000;

/// The results of all hosts in the file, and of a job over all of them.
///
/// # Errors
/// If the file cannot be used.
pub(super) fn examine(arguments: &Arguments, path: &Path) -> Result<Vec<Host>, String> {
    let hosts = hosts_of(path)?;
    let shell: Vec<String> = arguments.rsh.split_whitespace().map(Into::into).collect();
    let me = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let program = arguments.remote_path.clone().unwrap_or_else(|| me.into());
    let others: Vec<_> = hosts.iter().filter(|host| !is_this_host(&host.name)).collect();
    // A slow host does not delay the others.
    let mut all: Vec<Host> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            others.iter().map(|host| scope.spawn(|| ask(&shell, host, arguments.ranks, &program))).collect();
        let answers = others.iter().zip(asked);
        answers
            .map(|(host, asked)| Host { name: host.name.clone(), checks: asked.join().unwrap_or_default() })
            .collect()
    });
    let mut options: Vec<OsString> = vec!["--hosts".into(), path.into(), "--rsh".into(), arguments.rsh.clone().into()];
    options.extend(["--map-by", "node", "--timeout", "60", "-n"].map(Into::into));
    let used = hosts.iter().filter(|host| host.slots != 0).count();
    options.push(used.to_string().into());
    for (option, value) in
        [("--remote-path", &arguments.remote_path), ("--address", &arguments.address.clone().map(Into::into))]
    {
        value.iter().for_each(|value| options.extend([option.into(), value.clone()]));
    }
    if used != 0 {
        all.push(Host { name: "all hosts".into(), checks: vec![job_over_all(&options, &program)] });
    }
    Ok(all)
}

/// A job with a rank on each host.
fn job_over_all(options: &[OsString], program: &OsString) -> Check {
    const SUBJECT: &str = "a job";
    let change = "see the problems above; ranks need tcp connections to the launcher and to each other, which a firewall may \
                  forbid; --address, TOWLINE_TCP_INCLUDE and TOWLINE_TCP_PORTS select addresses and ports";
    match job(options, program) {
        Ok(output) if output.status.success() => {
            Check::good(SUBJECT, "a rank on each host exchanged 1 MiB with rank 0")
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Check::problem(SUBJECT, if said.is_empty() { output.status.to_string() } else { said }, change)
        }
        Err(why) => Check::problem(SUBJECT, format!("cannot start it: {why}"), change),
    }
}

/// A job of `towline run` with these options, whose ranks run a hidden subcommand of this program.
fn job(options: &[OsString], program: &OsString) -> io::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("run").args(options).arg("--").arg(program).arg("doctor-rank").stdin(Stdio::null()).output()
}

/// Runs this program on a host, and reads its results.
fn ask(shell: &[String], host: &launch::Host, ranks: Option<u32>, program: &OsString) -> Vec<Check> {
    const SUBJECT: &str = "remote shell";
    let ranks = ranks.unwrap_or(host.slots.max(1)).to_string();
    let words = [program.clone(), "doctor".into(), "--json".into(), "--ranks".into(), ranks.into()];
    let said = shell.join(" ");
    let call = format!("check that `{said} {} true` runs without asking for a password or a host key", host.name);
    let before = now_ms();
    let (status, out, err) = match output(shell, &host.name, &words) {
        Ok(Some(ended)) => ended,
        Ok(None) => {
            let found = format!("`{said} {}` did not answer within {} s", host.name, LIMIT.as_secs());
            return vec![Check::problem(SUBJECT, found, call)];
        }
        Err(why) => {
            return vec![Check::problem(SUBJECT, format!("cannot run `{said}`: {why}"), "name another with --rsh")];
        }
    };
    let after = now_ms();
    // The remote shell may print a greeting before.
    let answer = out.find('{').and_then(|at| serde_json::from_str::<Value>(&out[at..]).ok());
    let Some(answer) = answer else {
        let why = err.trim().lines().last().map_or_else(|| status.to_string(), str::to_string);
        let found = format!("`{said} {}` does not run {}: {why}", host.name, program.display());
        let change = format!("{call}, and that towline is there; name its path with --remote-path");
        return vec![Check::problem(SUBJECT, found, change)];
    };
    let mut checks = vec![Check::good(SUBJECT, format!("`{said} {}` runs towline", host.name)), same_version(&answer)];
    checks.push(clocks(answer["time_ms"].as_u64().unwrap_or(0), before, after));
    let there = answer["hosts"][0]["checks"].as_array().into_iter().flatten();
    checks.extend(there.filter_map(Check::from_json));
    checks
}

fn same_version(answer: &Value) -> Check {
    const SUBJECT: &str = "version";
    let text = |key: &str| answer[key].as_str().unwrap_or("unknown").to_string();
    let found = format!("{}, commit {}, wire version {}", text("version"), text("commit"), answer["wire_version"]);
    if answer["wire_version"] != wire::VERSION {
        let change = format!("install the version of this host there, which has wire version {}", wire::VERSION);
        Check::problem(SUBJECT, found, change)
    } else if text("version") != version::NUMBER || text("commit") != version::COMMIT {
        let change = format!("install version {}, commit {}, of this host there", version::NUMBER, version::COMMIT);
        Check { verdict: Verdict::Warning, ..Check::problem(SUBJECT, found, change) }
    } else {
        Check::good(SUBJECT, found)
    }
}

/// Towline does not compare the clocks of hosts, but people compare times in logs. The other host has read its clock between two
/// times of this one, which are far apart if it is slow to answer.
fn clocks(there: u64, before: u64, after: u64) -> Check {
    const SUBJECT: &str = "time";
    let difference = before.saturating_sub(there).max(there.saturating_sub(after));
    let found = format!("differs from this host by about {:.1} s", difference as f64 / 1e3);
    if difference > CLOCK_DIFFERENCE_MS {
        let change = "synchronise the clocks (NTP); Towline does not need it, but times in logs do not agree";
        Check::warning(SUBJECT, found, change)
    } else {
        Check::good(SUBJECT, found)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Runs a command on a host. Returns its status, output and errors; `None` if it does not end in time.
fn output(shell: &[String], host: &str, words: &[OsString]) -> io::Result<Option<(ExitStatus, String, String)>> {
    let mut command = remote_command(shell, host, words)?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (tell, told) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] =
        [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
    for (at, mut stream) in streams.into_iter().flatten().enumerate() {
        let tell = tell.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            let _ = tell.send((at, String::from_utf8_lossy(&bytes).into_owned()));
        });
    }
    let mut texts = [String::new(), String::new()];
    for _ in 0..2 {
        let Ok((at, text)) = told.recv_timeout(LIMIT) else {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        };
        texts[at] = text;
    }
    let [out, err] = texts;
    Ok(Some((child.wait()?, out, err)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared() {
        use serde_json::json;
        let answer = |version: &str, commit: &str, wire: u64| json!({"version": version, "commit": commit, "wire_version": wire});
        let wire_version = u64::from(wire::VERSION);
        let verdict = |answer: Value| same_version(&answer).verdict;
        assert_eq!(verdict(answer(version::NUMBER, version::COMMIT, wire_version)), Verdict::Good);
        assert_eq!(verdict(answer("0.0.9", version::COMMIT, wire_version)), Verdict::Warning);
        assert_eq!(verdict(answer(version::NUMBER, version::COMMIT, wire_version + 1)), Verdict::Problem);
        assert_eq!(verdict(serde_json::json!({})), Verdict::Problem);
    }

    #[test]
    fn times_are_compared() {
        assert_eq!(
            [clocks(5000, 5500, 5600), clocks(5000, 9000, 9100), clocks(5000, 900, 1000)].map(|check| check.verdict),
            [Verdict::Good, Verdict::Warning, Verdict::Warning]
        );
        assert_eq!(clocks(5000, 1000, 9000).verdict, Verdict::Good, "a slow answer");
        assert_eq!([clocks(5000, 5000, 5000), clocks(5000, 4500, 4800)].map(|check| check.verdict), [Verdict::Good; 2]);
    }
}
