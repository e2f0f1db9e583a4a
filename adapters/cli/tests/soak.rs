//! `towline soak` over real processes: short jobs that must be clean, and what it says of them.

use std::process::{Command, Output};

fn soak(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("soak").args(arguments.split_whitespace()).output().unwrap()
}

/// Jobs whose seeds bring deaths and the faults of the transport.
fn clean(arguments: &str, kinds: &[&str]) {
    let output = soak(arguments);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("lost 0, doubled 0, out of order 0"), "{out}");
    for kind in kinds.iter().chain(&["one-sided operations"]) {
        // What is counted has happened.
        let (_, after) = out.split_once(&format!("{kind} ")).unwrap_or_else(|| panic!("{kind}: {out}"));
        let count = after.split(|other: char| !other.is_ascii_digit()).next().unwrap();
        assert!(count.parse::<u64>().unwrap() > 0, "{kind}: {out}");
    }
}

#[test]
fn b10_jobs_over_sm_are_clean_though_ranks_stop_and_die() {
    clean("--transport sm --jobs 3 --from 1 --most 20000", &["ranks stopped", "ranks killed"]);
}

/// Jobs in which a rank is killed and started again, over each transport.
const SEEDS: [(&str, u64); 3] = [("sm", 4), ("tcp", 5), ("udp", 5)];

/// Seeds whose rank is killed and started again: from then on all messages from and to it are exact as all others are.
#[test]
fn p14_b10_ranks_that_were_killed_are_taken_back_over_each_transport() {
    for (transport, seed) in SEEDS {
        let arguments = format!("--transport {transport} --seed {seed} --most 20000");
        clean(&arguments, &["ranks killed", "ranks started again", "messages from and to them"]);
    }
}

/// A seed whose rank is killed after the last round.
#[test]
fn b10_a_rank_that_dies_last_is_no_failure_of_a_clean_job() {
    clean("--transport sm --seed 109 --most 20000", &["ranks killed"]);
}

#[test]
fn p14_b10_jobs_over_tcp_are_clean_though_connections_break() {
    clean(
        "--transport tcp --jobs 3 --from 1 --most 20000",
        &["ranks killed", "links cut", "connections by the relay", "connections cut", "links lost"],
    );
}

#[test]
fn p15_b10_jobs_over_udp_are_clean_though_datagrams_are_lost() {
    clean("--transport udp --jobs 2 --from 1 --most 20000", &["ranks killed", "datagrams", "spells of worse loss"]);
}

/// A job whose second rank of three is started through a program that makes it one of the other byte order.
#[test]
#[ignore = "takes an emulator: host-tests/scripts/machines"]
fn b36_ranks_of_unlike_byte_order_exchange_messages_and_reach_each_others_memory() {
    let through = std::env::var("TOWLINE_TEST_THROUGH").expect("TOWLINE_TEST_THROUGH names the program");
    for transport in ["tcp", "udp"] {
        clean(
            &format!("--through {through} --transport {transport} --jobs 2 --from 1 --most 65536"),
            &["ranks killed", "big byte order", "little byte order"],
        );
    }
}

/// Jobs whose ranks but the first are started through a program that makes them ones of another processor, on this host: over
/// memory that they share, too. Seeds as [above](SEEDS).
#[test]
#[ignore = "takes an emulator: host-tests/scripts/machines"]
fn p14_b10_ranks_of_two_processors_share_a_host_and_its_memory() {
    let through = std::env::var("TOWLINE_TEST_THROUGH").expect("TOWLINE_TEST_THROUGH names the program");
    for (transport, seed) in SEEDS {
        clean(
            &format!("--through {through} --transport {transport} --seed {seed} --most 20000"),
            &["ranks killed", "ranks started again", "messages from and to them"],
        );
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for wrong in
        ["--transport pigeon", "--sim --minutes 1", "-n 1", "--minutes -1", "--minutes 0", "--jobs 0", "--seeds 3"]
    {
        let output = soak(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}
