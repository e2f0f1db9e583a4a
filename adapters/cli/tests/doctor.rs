//! `towline doctor` on this host, with limits that the tests set.

mod script;

use std::process::{Command, Output, Stdio};

use script::Folder;
use serde_json::Value;

const TOWLINE: &str = env!("CARGO_BIN_EXE_towline");

/// Runs the command after a shell line that changes limits.
fn doctor(before: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}\nexec \"$0\" doctor \"$@\""), TOWLINE]).args(arguments);
    command.stdin(Stdio::null()).output().unwrap()
}

/// The checks of each host: name, subject, verdict, and what to change.
fn checks(output: &Output) -> Vec<[String; 4]> {
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", text(output)));
    let hosts = answer["hosts"].as_array().unwrap();
    let rows = hosts.iter().flat_map(|host| {
        let of_host = move |check: &Value| {
            let get = |key: &str| check[key].as_str().unwrap().to_string();
            [host["host"].as_str().unwrap_or("").to_string(), get("subject"), get("verdict"), get("change")]
        };
        host["checks"].as_array().unwrap().iter().map(of_host)
    });
    rows.collect()
}

/// The verdict and the advice for a subject.
fn verdict(output: &Output, host: &str, subject: &str) -> (String, String) {
    let all = checks(output);
    let found = all.iter().find(|[of, what, ..]| of == host && what == subject);
    let [_, _, verdict, change] = found.unwrap_or_else(|| panic!("no {subject} of {host} in {all:?}")).clone();
    (verdict, change)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

#[test]
fn everything_is_named_with_a_verdict_and_problems_decide_the_exit_status() {
    let output = doctor("", &["--json", "-n", "2"]);
    let all = checks(&output);
    let subjects = ["shared memory", "open files", "file size", "locked memory", "processes", "clock", "interfaces"];
    for subject in subjects.into_iter().chain(["shared inodes", "a job here"]) {
        let (verdict, change) = verdict(&output, "", subject);
        assert_eq!(verdict == "good", change.is_empty(), "{subject}: {all:?}");
    }
    let problem = all.iter().any(|[_, _, verdict, _]| verdict == "problem");
    assert_eq!(output.status.code(), Some(i32::from(problem)), "{all:?}");
    let output = doctor("", &["-n", "2"]);
    assert!(
        text(&output).contains("shared memory   /dev/shm has") && text(&output).contains(" problem"),
        "{}",
        text(&output)
    );
}

#[test]
fn low_limits_are_problems_with_advice() {
    for (before, subject, advice) in [
        ("ulimit -f 8", "file size", "ulimit -f unlimited"),
        ("ulimit -n 200", "open files", "ulimit -Hn"),
        ("export TOWLINE_SM_DIRECTORY=/nowhere/at/all", "shared memory", "TOWLINE_SM_DIRECTORY"),
        ("export TOWLINE_TCP_INCLUDE=none0", "interfaces", "TOWLINE_TCP_INCLUDE"),
        ("export TOWLINE_LINKS=many", "settings", "unset"),
    ] {
        let output = doctor(before, &["--json", "-n", "64"]);
        let (verdict, change) = verdict(&output, "", subject);
        assert!(verdict == "problem" && change.contains(advice), "{before}: {verdict}, {change}");
        assert_eq!(output.status.code(), Some(1), "{before}");
    }
}

/// Jobs work there. The shell counts in blocks of 512 bytes, and the shortest ring takes 8 KiB.
#[test]
fn a_limit_of_file_sizes_to_which_rings_shrink_is_a_warning() {
    let output = doctor("ulimit -f 16", &["--json", "-n", "2"]);
    let (of_size, change) = verdict(&output, "", "file size");
    assert!(of_size == "warning" && change.contains("ulimit -f unlimited"), "{of_size}: {change}");
    assert_eq!(verdict(&output, "", "a job here").0, "good");
    assert!(text(&output).contains("to 4.0 KiB and 4.0 KiB"), "{}", text(&output));
}

#[test]
fn one_rank_is_no_ranks() {
    let output = doctor("", &["-n", "1"]);
    assert!(text(&output).contains("1 rank takes at most") && !text(&output).contains("1 ranks"), "{}", text(&output));
}

/// A mount namespace with a small file system, which needs the right to make one.
#[test]
fn small_shared_memory_is_a_warning_while_there_is_room_for_a_ring() {
    let namespace = |size: &str| {
        let line = format!("mount -t tmpfs -o {size} tmpfs /dev/shm && exec \"$0\" doctor --json -n 16");
        Command::new("unshare").args(["-m", "sh", "-c", &line, TOWLINE]).stdin(Stdio::null()).output().unwrap()
    };
    let output = namespace("size=64M");
    if output.stdout.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        let _ =
            std::io::Write::write_all(&mut std::io::stderr(), format!("skipped a test of mounts: {why}").as_bytes());
        return;
    }
    let (of_bytes, change) = verdict(&output, "", "shared memory");
    assert!(of_bytes == "warning" && change.contains("--shm-size="), "{of_bytes}: {change}");
    assert_eq!(verdict(&namespace("size=256K"), "", "shared memory").0, "warning");
    assert_eq!(verdict(&namespace("size=64K"), "", "shared memory").0, "problem");
    let (of_files, change) = verdict(&namespace("nr_inodes=8"), "", "shared inodes");
    assert!(of_files == "problem" && change.contains("nr_inodes="), "{of_files}: {change}");
}

#[test]
fn other_hosts_are_checked_and_a_job_over_all_of_them() {
    let folder = Folder::new("doctor", "node0 slots=2\nnode1\n");
    let hosts = folder.hosts();
    let arguments = ["--json", &hosts[0], &hosts[1], &hosts[2], &hosts[3], "--address", "127.0.0.1"];
    let output = doctor("", &arguments);
    for host in ["node0", "node1"] {
        for subject in ["remote shell", "version", "time", "shared memory", "a job here"] {
            assert_eq!(verdict(&output, host, subject).0, "good", "{host} {subject}: {}", text(&output));
        }
    }
    assert_eq!(verdict(&output, "all hosts", "a job").0, "good", "{}", text(&output));

    // One host cannot be reached, and the path on the other one is wrong.
    script::write(
        folder.path("rsh").as_ref(),
        "#!/bin/sh\n[ $1 = node1 ] && { echo no route >&2; exit 255; }\nshift; exec \"$@\"\n",
    );
    let output = doctor("", &arguments);
    let (of_shell, change) = verdict(&output, "node1", "remote shell");
    assert!(of_shell == "problem" && change.contains("password"), "{of_shell}: {change}");
    assert!(text(&output).contains("no route"), "{}", text(&output));
    let (of_job, change) = verdict(&output, "all hosts", "a job");
    assert!(of_job == "problem" && change.contains("firewall"), "{of_job}: {change}");
    assert_eq!(output.status.code(), Some(1));
    let output = doctor("", &[&arguments[..], &["--remote-path", "/nowhere/towline"]].concat());
    let (of_shell, change) = verdict(&output, "node0", "remote shell");
    assert!(of_shell == "problem" && change.contains("--remote-path"), "{of_shell}: {change}");
}

#[test]
fn a_missing_hosts_file_is_an_error() {
    let output = doctor("", &["--hosts", "/nowhere/hosts"]);
    assert!(output.status.code() == Some(2) && text(&output).contains("/nowhere/hosts"), "{}", text(&output));
}
