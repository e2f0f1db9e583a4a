//! `towline doctor`: checks what a job needs on this host and on others, and says what to change.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use towline::Config;
use towline_core::wire;
use towline_net::counted;

use crate::stdout::out;
use crate::{info, version};
pub use arguments::Arguments;
use check::{Check, Host, Verdict};

mod arguments;
mod check;
mod here;
mod hosts;
mod shared_memory;
mod texts;

/// Makes the checks. Returns the exit status.
pub fn run(arguments: &Arguments) -> ExitCode {
    match examine(arguments) {
        Ok(hosts) => {
            let text = if arguments.json { format!("{:#}\n", json(&hosts)) } else { text(&hosts) };
            out!("{text}");
            let worst = hosts.iter().flat_map(|host| &host.checks).map(|check| check.verdict).max();
            u8::from(worst == Some(Verdict::Problem)).into()
        }
        Err(why) => {
            eprintln!("towline: {why}");
            2.into()
        }
    }
}

/// Runs a rank of the job over all hosts: each one exchanges a long message with rank 0.
pub fn rank() -> ExitCode {
    let exchange = || -> Result<(), Box<dyn std::error::Error>> {
        let world = towline::init()?;
        let mut bytes = vec![1u8; 1 << 20];
        if world.rank() == 0 {
            for peer in 1..world.size() {
                world.recv(peer, 1, &mut bytes[..])?;
                world.send(peer, 1, &bytes[..])?;
            }
        } else {
            world.send(0, 1, &bytes[..])?;
            world.recv(0, 1, &mut bytes[..])?;
        }
        Ok(world.finish()?)
    };
    match exchange() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("towline: {why}");
            ExitCode::FAILURE
        }
    }
}

fn examine(arguments: &Arguments) -> Result<Vec<Host>, String> {
    let mut all = vec![Host { name: String::new(), checks: here(arguments) }];
    if let Some(path) = &arguments.hosts {
        all.extend(hosts::examine(arguments, path)?);
    }
    Ok(all)
}

/// The checks of this host.
fn here(arguments: &Arguments) -> Vec<Check> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let mut checks = Vec::new();
    let config = Config::default().with_environment().unwrap_or_else(|why| {
        checks.push(Check::problem("settings", why.to_string(), "correct or unset the variable"));
        Config::default()
    });
    checks.extend(here::checks(&config, arguments.ranks.unwrap_or(processors)));
    checks.extend(job_here(config.sm.single_copy_bytes != 0));
    checks
}

/// A job of two ranks, and where single copies are switched on, whether the kernel copied between them.
fn job_here(copies_once: bool) -> Vec<Check> {
    const SUBJECT: &str = "a job here";
    let chosen = info::chosen_here(None);
    let between = chosen.iter().find(|(whom, _)| *whom == "same host").map_or("", |(_, what)| what);
    if let Some(why) = between.strip_prefix("none: ") {
        return vec![Check::problem(SUBJECT, format!("two ranks cannot talk: {why}"), "see the problems above")];
    }
    let mut taken = between.split(", ").filter_map(|transport| transport.split_once(" taken"));
    let Some((name, _)) = taken.find(|(name, _)| !name.ends_with(" not")) else {
        return vec![Check::problem(
            SUBJECT,
            format!("two ranks have no transport: {between}"),
            "see the problems above",
        )];
    };
    let mut checks = vec![Check::good(SUBJECT, format!("two ranks talk over {name}"))];
    if name == "sm" && copies_once {
        checks.push(here::single_copy(between.contains("in a single copy"), here::ptrace_scope()));
    }
    checks
}

fn text(hosts: &[Host]) -> String {
    let mut text = String::new();
    for host in hosts {
        if hosts.len() > 1 {
            let name = if host.name.is_empty() { "this host" } else { &host.name };
            text += &format!("{}{name}:\n", if text.is_empty() { "" } else { "\n" });
        }
        host.checks.iter().for_each(|check| text += &check.text());
    }
    let count = |verdict| hosts.iter().flat_map(|host| &host.checks).filter(|check| check.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem) as u64, count(Verdict::Warning) as u64);
    text + &format!("\n{}, {}\n", counted(problems, "problem"), counted(warnings, "warning"))
}

fn json(hosts: &[Host]) -> Value {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    let host = |host: &Host| {
        let checks: Vec<_> = host.checks.iter().map(Check::json).collect();
        json!({"host": if host.name.is_empty() { Value::Null } else { json!(host.name) }, "checks": checks})
    };
    json!({
        "version": version::NUMBER,
        "commit": version::COMMIT,
        "wire_version": wire::VERSION,
        "time_ms": time,
        "hosts": hosts.iter().map(host).collect::<Vec<_>>(),
    })
}
