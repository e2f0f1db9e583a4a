//! Messages that no receive has taken when the job ends. Ranks are this test program itself in a role.

use std::process::{Command, Output, Stdio};

use towline::{Config, SetupError, UnmatchedPolicy};

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];
/// Messages of each rank to each other rank in the role `all`.
const EACH: u32 = 20;

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let world = towline::init().unwrap();
    let (rank, size) = (world.rank(), world.size());
    match role.as_str() {
        "three" => {
            if rank == 0 {
                world.send(1, 5, &[1u8; 10]).unwrap();
                world.send(1, 6, &[1u8; 30]).unwrap();
                world.send(1, 7, &[1u8; 20]).unwrap();
            }
            if rank == 1 {
                world.recv(0, 7, &mut [0u8; 20]).unwrap();
                std::mem::forget(world.mprobe(0, 5).unwrap()); // taken, and neither received nor dropped
            }
        }
        "all" => {
            for other in (0..size).filter(|other| *other != rank) {
                (0..EACH).for_each(|tag| world.send(other, tag, &[rank; 3]).unwrap());
            }
        }
        "waits" => {
            if rank == 0 {
                world.send(1, 5, &[1u8; 10]).unwrap();
                world.send(1, 6, &[1u8; 20_000]).unwrap(); // returns when rank 1 finishes
                world.ssend(1, 7, &[1u8; 8]).unwrap();
            }
        }
        "communicator" => {
            let other = world.dup().unwrap();
            if rank == 0 {
                other.send(1, 3, &[1u8; 9]).unwrap();
            }
            world.barrier().unwrap();
            if rank == 1 {
                other.probe(0, 3).unwrap(); // it has arrived
            }
            drop(other);
        }
        "clean" => {
            for other in (0..size).filter(|other| *other != rank) {
                world.send(other, 1, &[rank; 3]).unwrap();
            }
            for _ in 1..size {
                world.recv(towline::Any, 1, &mut [0u32; 3]).unwrap();
            }
            world.barrier().unwrap();
        }
        "dropped" => {
            if rank == 0 {
                world.send(1, 5, &[1u8; 10]).unwrap();
            }
            world.barrier().unwrap();
            return; // the end of the test would be that of `main`
        }
        "alone" => world.send(0, 8, &[1u8; 4]).unwrap(),
        other => panic!("no role {other}"),
    }
    match world.finish() {
        Err(SetupError::Unmatched(unmatched)) => {
            eprintln!("@ {unmatched}");
            std::process::exit(if std::env::var_os("IGNORES_ERRORS").is_some() { 0 } else { 9 });
        }
        outcome => outcome.unwrap(),
    }
    std::process::exit(0);
}

fn run(ranks: u32, transport: &str, role: &str, variables: &[&str]) -> (Option<i32>, String) {
    run_by(&["run"], ranks, transport, role, variables)
}

/// Runs ranks by a command of `towline`.
fn run_by(by: &[&str], ranks: u32, transport: &str, role: &str, variables: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    // They are no settings, so ranks would warn of them.
    command.env_remove("TOWLINE_FIRMWARE_BOARD").env_remove("TOWLINE_FIRMWARE_DPU");
    command.args(by).args(["-n", &ranks.to_string(), "--transport", transport, "-e", &format!("ROLE={role}")]);
    command.args(variables.iter().flat_map(|variable| ["-e", variable]));
    let me = std::env::current_exe().unwrap();
    command.arg("--").arg(me).args(["--exact", "as_rank", "--nocapture"]).stdin(Stdio::null());
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// The lines about messages that were not received.
fn unmatched(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains("never received")).collect()
}

#[test]
fn messages_that_no_rank_has_received_are_reported_once() {
    for transport in TRANSPORTS {
        let (status, said) = run(3, transport, "three", &[]);
        let line = "towline: warning: 2 messages were never received, 40 bytes in all; the longest: 30 bytes from rank 0 to rank \
                    1 with tag 6, in the world (TOWLINE_UNMATCHED)";
        assert_eq!((status, unmatched(&said)), (Some(0), vec![line]), "{said}");
    }
}

#[test]
fn all_messages_that_were_sent_have_arrived_when_they_are_counted() {
    for transport in TRANSPORTS {
        for _ in 0..3 {
            let (status, said) = run(4, transport, "all", &[]);
            let count = 4 * 3 * EACH;
            let start = format!("towline: warning: {count} messages were never received, {} bytes in all", count * 12);
            assert_eq!((status, unmatched(&said).len()), (Some(0), 1), "{said}");
            assert!(unmatched(&said)[0].starts_with(&start), "{said}");
        }
    }
}

#[test]
fn a_job_whose_messages_were_all_received_says_nothing() {
    for transport in TRANSPORTS {
        let (status, said) = run(4, transport, "clean", &["TOWLINE_UNMATCHED=error"]);
        assert_eq!((status, unmatched(&said)), (Some(0), vec![]), "{said}");
    }
}

#[test]
fn the_strict_setting_makes_them_an_error_of_the_rank_and_of_the_job() {
    let (status, said) = run(2, "sm", "three", &["TOWLINE_UNMATCHED=error"]);
    assert_eq!(status, Some(9), "{said}");
    assert!(said.contains("[1] @ 2 messages were never received, 40 bytes in all"), "{said}");
    // Also if the program ignores the error of `finish`.
    let (status, said) = run(2, "sm", "three", &["TOWLINE_UNMATCHED=error", "IGNORES_ERRORS=1"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("towline: error: 2 messages were never received"), "{said}");
    let (status, said) = run(2, "sm", "three", &["TOWLINE_UNMATCHED=ignore"]);
    assert_eq!((status, unmatched(&said)), (Some(0), vec![]), "{said}");
    let wrong = |name: &str| (name == "TOWLINE_UNMATCHED").then(|| "sometimes".to_string());
    assert!(Config::default().settings_from(wrong).unwrap_err().to_string().contains("TOWLINE_UNMATCHED"));
    assert_eq!(Config::default().unmatched, UnmatchedPolicy::Warn);
}

#[test]
fn messages_of_dropped_communicators_and_of_dropped_worlds_count() {
    let (status, said) = run(2, "tcp", "communicator", &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        unmatched(&said)[0]
            .contains("1 message was never received: 9 bytes from rank 0 to rank 1 with tag 3, in communicator")
    );
    let (status, said) = run(2, "sm", "dropped", &[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        unmatched(&said)[0].contains("1 message was never received: 10 bytes from rank 0 to rank 1 with tag 5"),
        "{said}"
    );
}

/// Ranks whose messages their DPUs have, and ranks whose DPUs are rails. A sender that waits for a DPU's receive goes on.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn messages_that_dpus_have_are_reported_once() {
    let [board, firmware] = ["TOWLINE_FIRMWARE_BOARD", "TOWLINE_FIRMWARE_DPU"].map(|name| std::env::var(name).unwrap());
    let by = ["dpu", "up", "--board", &board, "--firmware", &firmware, "--timeout", "60"];
    for transport in ["dpu", "dpu-frames"] {
        let (status, said) = run_by(&by, 3, transport, "all", &[]);
        let count = 3 * 2 * EACH;
        let start = format!("towline: warning: {count} messages were never received, {} bytes in all", count * 12);
        assert_eq!((status, unmatched(&said).len()), (Some(0), 1), "{said}");
        assert!(unmatched(&said)[0].starts_with(&start), "{said}");
        let (status, said) = run_by(&by, 3, transport, "clean", &["TOWLINE_UNMATCHED=error"]);
        assert_eq!((status, unmatched(&said)), (Some(0), vec![]), "{said}");
    }
    let (status, said) = run_by(&by, 2, "dpu", "waits", &[]);
    let line = "towline: warning: 3 messages were never received, 20018 bytes in all; the longest: 20000 bytes from rank 0 to rank \
                1 with tag 6, in the world (TOWLINE_UNMATCHED)";
    assert_eq!((status, unmatched(&said)), (Some(0), vec![line]), "{said}");
}

#[test]
fn a_program_without_a_launcher_prints_them_itself() {
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new(me);
    let Output { status, stderr, .. } =
        command.args(["--exact", "as_rank", "--nocapture"]).env("ROLE", "alone").output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    let line = "towline: warning: 1 message was never received: 4 bytes from rank 0 to rank 0 with tag 8, in the world \
                (TOWLINE_UNMATCHED)";
    assert_eq!((status.code(), unmatched(&said)), (Some(0), vec![line]), "{said}");
}
