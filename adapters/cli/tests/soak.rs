//! `towline soak` with real processes: short jobs that must pass, and their summary.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn soak(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("soak").args(arguments.split_whitespace()).output().unwrap()
}

/// Seeds of jobs in which ranks are killed and the transport has faults.
fn clean(arguments: &str, kinds: &[&str]) {
    let output = soak(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("lost 0, duplicated 0, out of order 0"), "{out}");
    for kind in kinds.iter().chain(&["one-sided operations"]) {
        // Each of these must have happened.
        let (_, after) = out.split_once(&format!("{kind} ")).unwrap_or_else(|| panic!("{kind}: {out}"));
        let count = after.split(|other: char| !other.is_ascii_digit()).next().unwrap();
        assert!(count.parse::<u64>().unwrap() > 0, "{kind}: {out}");
    }
}

#[test]
fn b10_jobs_over_sm_pass_although_ranks_stop_and_die() {
    clean("--transport sm --jobs 3 --from 1 --most 20000", &["ranks stopped", "ranks killed"]);
}

/// Jobs in which a rank is killed and restarted, over each transport.
const SEEDS: [(&str, u64); 3] = [("sm", 4), ("tcp", 5), ("udp", 5)];

/// Seeds in which a rank is killed and restarted. After that, the messages from and to it are checked like all others.
#[test]
fn p14_b10_killed_ranks_rejoin_over_each_transport() {
    for (transport, seed) in SEEDS {
        let arguments = format!("--transport {transport} --seed {seed} --most 20000");
        clean(&arguments, &["ranks killed", "ranks restarted", "messages from and to them"]);
    }
}

/// A seed whose rank is killed after the last round.
#[test]
fn b10_a_rank_that_dies_last_does_not_fail_the_job() {
    clean("--transport sm --seed 109 --most 20000", &["ranks killed"]);
}

/// A job without `towline soak`, so no process kills the rank that is to be killed.
#[test]
fn b10_the_rank_that_is_to_be_killed_waits_for_the_signal() {
    let towline = env!("CARGO_BIN_EXE_towline");
    let mut command = Command::new(towline);
    command.args(["run", "--ranks", "2", "--no-prefix", "--", towline, "soak-rank", "--seed", "1", "--rounds", "2"]);
    command.args(["--most", "100", "--victim", "1"]).stdout(Stdio::piped());
    let mut job = command.spawn().unwrap();
    let mut lines = BufReader::new(job.stdout.take().unwrap()).lines();
    let waits = lines.any(|line| line.unwrap() == "@ waits 1");
    let _ = kill_process(Pid::from_child(&job), Signal::TERM);
    job.wait().unwrap();
    assert!(waits, "the job ended");
}

#[test]
fn p14_b10_jobs_over_tcp_pass_although_connections_break() {
    clean(
        "--transport tcp --jobs 3 --from 1 --most 20000",
        &["ranks killed", "links cut", "connections through the relay", "connections cut", "links lost"],
    );
}

#[test]
fn p15_b10_jobs_over_udp_pass_although_datagrams_are_lost() {
    clean("--transport udp --jobs 2 --from 1 --most 20000", &["ranks killed", "datagrams", "times of higher loss"]);
}

/// A job of three ranks. The second one runs in an emulator with the other byte order.
#[test]
#[ignore = "takes an emulator: host-tests/scripts/machines"]
fn b36_ranks_of_different_byte_order_exchange_messages_and_access_each_others_memory() {
    let through = std::env::var("TOWLINE_TEST_THROUGH").expect("TOWLINE_TEST_THROUGH names the program");
    for transport in ["tcp", "udp"] {
        clean(
            &format!("--through {through} --transport {transport} --jobs 2 --from 1 --most 65536"),
            &["ranks killed", "big byte order", "little byte order"],
        );
    }
}

/// Jobs whose ranks, except the first, run in an emulator of another processor on this host, and share memory with the
/// first one. Seeds as [above](SEEDS).
#[test]
#[ignore = "takes an emulator: host-tests/scripts/machines"]
fn p14_b10_ranks_of_two_processors_share_a_host_and_its_memory() {
    let through = std::env::var("TOWLINE_TEST_THROUGH").expect("TOWLINE_TEST_THROUGH names the program");
    for (transport, seed) in SEEDS {
        clean(
            &format!("--through {through} --transport {transport} --seed {seed} --most 20000"),
            &["ranks killed", "ranks restarted", "messages from and to them"],
        );
    }
}

#[test]
fn a_job_that_cannot_start_is_no_other_failure() {
    let output = soak("--transport sm --seed 5 --through /nonexistent/emulator");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in ["no rank has started", "no rank finished one; faults", "cannot start `/nonexistent/emulator`"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for wrong in
        ["--transport pigeon", "--sim --minutes 1", "-n 1", "--minutes -1", "--minutes 0", "--jobs 0", "--seeds 3"]
    {
        let output = soak(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    for (wrong, words) in [
        ("--goodput --jobs 1", ["--goodput", "--jobs"]),
        ("--goodput --links 3", ["--goodput", "--links"]),
        ("--goodput --sim --threads 2", ["--goodput", "--threads"]),
        ("--reliable --jobs 1", ["--reliable", "--jobs"]),
        ("--reliable --minutes 1", ["--reliable", "--minutes"]),
        ("--seeds 3 --jobs 1", ["--seeds", "--jobs"]),
        ("--threads 3 --most 100", ["--threads", "--most"]),
        ("--sim --seed 1 --threads 2", ["--seed", "--threads"]),
        ("--links 3 --transport sm", ["--links 3", "tcp, udp and verbs"]),
        ("--links 2", ["--links 2", "tcp, udp and verbs"]),
    ] {
        let output = soak(wrong);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{wrong}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{wrong}: {said}");
    }
}
