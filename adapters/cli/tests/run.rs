//! `towline run` with real processes. Ranks are shell lines, or this test program itself in a role.

mod script;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use towline_bootstrap::Job;
use towline_core::modex::{Component, Version};

const V: Version = Version::new(1, 0, 0);
const TCP: Component = Component { mca: V, kind: "btl", kind_version: V, name: "tcp", version: V };

/// Time for which the launcher waits for the cause of a failure.
const CAUSE_LIMIT: Duration = Duration::from_secs(2);

/// `towline run` with arguments that are separated by spaces.
fn towline(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.arg("run").args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Ranks that run a shell line.
fn shell(arguments: &str, line: &str) -> Output {
    towline(arguments).args(["--", "sh", "-c", line]).output().unwrap()
}

/// Ranks that run this program in a role; see `as_rank`.
fn role(arguments: &str, role: &str) -> Command {
    let mut command = towline(arguments);
    let me = std::env::current_exe().unwrap();
    command.args(["-e", &format!("ROLE={role}"), "--"]).arg(me).args(["--exact", "as_rank", "--nocapture"]);
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("towline was killed: {}", err(output)))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let mut job = Job::from_env().unwrap();
    let (rank, size) = (job.rank(), job.size());
    match role.as_str() {
        "allgather" => {
            job.publish(&TCP, format!("card {rank}").as_bytes()).unwrap();
            job.exchange(soon()).unwrap();
            for peer in 0..size {
                assert_eq!(job.card(&TCP, peer).unwrap(), format!("card {peer}").as_bytes());
            }
            assert!(job.local_ranks().unwrap().contains(&rank));
            job.fence(soon()).unwrap();
            println!("rank {rank} of {size} on {} is well", job.host());
            job.finish().unwrap();
        }
        "again" => {
            // Rank 1 dies twice, in the middle of a collective step.
            println!("incarnation {} of {rank}, alive", job.incarnation());
            job.publish(&TCP, &job.incarnation().to_le_bytes()).unwrap();
            job.exchange(soon()).unwrap();
            if rank == 1 && job.incarnation() < 3 {
                print!("last words");
                std::io::stdout().flush().unwrap();
                rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
            }
            job.fence(soon()).unwrap();
            assert_eq!(job.card(&TCP, 1).unwrap(), 3u32.to_le_bytes());
            job.finish().unwrap();
        }
        "unfinished" => {
            if rank == 0 {
                job.fence(soon()).unwrap();
            }
        }
        "deaf" => {
            if rank == 1 {
                drop(job);
                loop {
                    std::thread::park();
                }
            }
            job.fence(soon()).unwrap();
        }
        "abort" => {
            if rank == 1 {
                job.abort(7, "disk full").unwrap();
            }
            job.fence(soon()).unwrap();
        }
        "overtaken" => {
            let folder = PathBuf::from(std::env::var_os("FOLDER").unwrap());
            let [left, aborted] = ["left", "aborted"].map(|name| folder.join(name));
            let wait_for = |path: &PathBuf| {
                while !path.exists() {
                    std::thread::yield_now()
                }
            };
            job.fence(soon()).unwrap();
            if rank == 0 {
                wait_for(&left);
                job.abort(7, "rank 1 is gone").unwrap();
                fs::write(aborted, "").unwrap();
            } else {
                drop(job);
                fs::write(left, "").unwrap();
                wait_for(&aborted);
                rustix::process::kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
            }
        }
        "deserted" => {
            if rank == 1 {
                // Finishes at once, so that the fence of the other ranks never opens.
                job.finish().unwrap();
            } else {
                println!("fence: {}", job.fence(soon()).unwrap_err());
                job.finish().unwrap();
            }
        }
        other => panic!("no role {other}"),
    }
    std::process::exit(0);
}

#[test]
fn each_line_has_its_rank_and_nothing_is_lost() {
    let output = shell("-n 2", r"printf 'out\377\n\npart'; printf 'err' >&2");
    assert_eq!(code(&output), 0, "{}", err(&output));
    for rank in 0..2 {
        let lines = format!("[{rank}] ").into_bytes();
        let wanted = [&lines[..], b"out\xff\n", &lines, b"\n", &lines, b"part\n"].concat();
        let mine: Vec<u8> = output
            .stdout
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(&lines))
            .flatten()
            .copied()
            .collect();
        assert_eq!(mine, wanted);
    }
    assert_eq!(sorted(&err(&output)), ["[0] err", "[1] err"]);

    let output = shell("-n 1 --no-prefix", r"printf 'out\377\n\npart'");
    assert_eq!(output.stdout, b"out\xff\n\npart");

    let output = shell("-n 2 --no-prefix", "seq 100000");
    let lines: Vec<_> = sorted(&out(&output)).into_iter().map(str::to_string).collect();
    let mut wanted: Vec<_> = (1..=100_000).chain(1..=100_000).map(|n: u32| n.to_string()).collect();
    wanted.sort_unstable();
    assert!(lines == wanted, "{} lines", lines.len());
}

#[test]
fn output_of_a_process_that_a_rank_leaves_behind_is_printed_and_the_process_killed() {
    let marks = Hosts::new("late", "", "");
    let options = format!("-n 1 --no-prefix -e MARKS={}", marks.directory.display());
    // A busy machine may delay the process for longer than the launcher waits, which kills it then. What it has printed is not
    // lost.
    let printed = (0..10).any(|_| {
        let output = shell(&options, "(sleep 0.1; echo late && touch $MARKS/printed) & exit 0");
        assert_eq!(code(&output), 0, "{}", err(&output));
        let printed = marks.directory.join("printed").exists();
        assert!(!printed || out(&output) == "late\n", "{}", out(&output));
        printed
    });
    assert!(printed, "the process is killed before it prints");
    // A background process that never ends does not keep the launcher waiting.
    let output = shell("-n 1 --no-prefix", "echo started; sleep 1000 & exit 0");
    assert_eq!((code(&output), out(&output)), (0, "started\n".into()));
}

#[test]
fn the_exit_status_is_that_of_the_first_rank_that_fails() {
    assert_eq!(code(&shell("-n 3", "exit 0")), 0);
    assert_eq!(code(&shell("-n 3", "exit 3")), 3);
    assert_eq!(code(&shell("-n 1", "kill -SEGV $$")), 128 + 11);
    let output = towline("-n 2 -- /nonexistent/program").output().unwrap();
    assert_eq!(code(&output), 127);
    assert!(err(&output).contains("cannot start `/nonexistent/program`"), "{}", err(&output));
    let output = towline("-n 1 -- /etc/passwd").output().unwrap();
    assert_eq!(code(&output), 126);
    assert_eq!(code(&towline("-n 0 -- true").output().unwrap()), 2);
    assert_eq!(code(&towline("-- true").output().unwrap()), 2);
}

#[test]
fn with_keep_going_the_other_ranks_go_on() {
    let line = "[ $TOWLINE_RANK = 1 ] && kill -KILL $$; [ $TOWLINE_RANK = 2 ] && exit 7; sleep 0.3; echo on";
    let output = shell("-n 3 --no-prefix --keep-going --timeout 300", line);
    let told = err(&output);
    assert_eq!(out(&output), "on\n", "{told}");
    assert!(matches!(code(&output), 137 | 7), "the first that failed: {told}");
    assert!(told.contains("was killed by signal 9") && told.contains("exited with status 7"), "{told}");
    assert_eq!(told.matches("the other ranks go on").count(), 2, "{told}");
}

#[test]
fn x7_a_killed_rank_is_restarted_and_the_job_ends_well() {
    let hosts = Hosts::new("again", "node0\nnode1\nnode2\n", HERE);
    for hosts in [String::new(), format!("{} --address 127.0.0.1", hosts.arguments())] {
        let output = role(&format!("-n 3 --timeout 300 --restart 2 {hosts}"), "again").output().unwrap();
        let (told, said) = (err(&output), out(&output));
        assert_eq!(code(&output), 0, "{told}");
        for (rank, lives) in [(0, 1), (1, 3), (2, 1)] {
            assert_eq!(said.matches(&format!(" of {rank}, alive")).count(), lives, "{said}");
            assert!(said.contains(&format!("incarnation {lives} of {rank}, alive")), "{said}");
        }
        assert_eq!(said.matches("[1] last words").count(), 2, "{said}");
        assert_eq!(told.matches("was killed by signal 9 (SIGKILL); restarting it (").count(), 2, "{told}");
        assert!(told.contains("2 of at most 2)"), "{told}");
    }
}

#[test]
fn x7_a_rank_that_fails_after_its_last_restart_ends_the_job() {
    let output = role("-n 3 --timeout 300 --restart 1", "again").output().unwrap();
    let told = err(&output);
    assert_eq!(code(&output), 137, "{told}");
    assert!(told.contains("SIGKILL); it was restarted once, which is the limit; ending the job"), "{told}");
    // The other ranks get SIGTERM then. They are not restarted either.
    assert_eq!(told.matches("restarting it").count(), 1, "{told}");
    let output = shell("-n 2 --max-restarts 3 --keep-going", "[ $TOWLINE_RANK = 1 ] && { echo try; exit 5; }; echo on");
    let told = err(&output);
    assert_eq!(code(&output), 5, "{told}");
    assert_eq!(sorted(&out(&output)), ["[0] on", "[1] try", "[1] try", "[1] try", "[1] try"]);
    assert!(told.contains("restarted 3 times, which is the limit; the other ranks go on"), "{told}");
}

#[test]
fn a_rank_that_aborts_or_cannot_be_started_is_not_restarted() {
    let output = role("-n 3 --restart 5", "abort").output().unwrap();
    assert_eq!(code(&output), 7, "{}", err(&output));
    assert!(!err(&output).contains("restarting it"), "{}", err(&output));
    let output = towline("-n 2 --restart 5 -- /nonexistent/program").output().unwrap();
    assert_eq!(code(&output), 127);
}

#[test]
fn invalid_settings_are_refused_before_a_rank_starts() {
    for (arguments, variable, words) in [
        ("--transport foo", None, ["'foo' for '--transport", "possible: sm, tcp, udp, verbs"]),
        (
            "--transport sm,tpc",
            None,
            ["'tpc' for '--transport", "(did you mean `tcp`?); possible: sm, tcp, udp, verbs"],
        ),
        ("-e TOWLINE_TRANSPORTS=tpc", None, ["TOWLINE_TRANSPORTS", "(did you mean `tcp`?); possible: sm, "]),
        ("-e TOWLINE_TRANSPORTS=sm,foo", None, ["`foo`", "sm, tcp, udp, verbs, dpu and dpu-frames"]),
        ("", Some(("TOWLINE_TRANSPORTS", "foo")), ["`foo`", "sm, tcp, udp, verbs, dpu and dpu-frames"]),
        ("--links 0", None, ["--links", "1 to 64"]),
        ("--links 65", None, ["--links", "1 to 64"]),
        ("-e TOWLINE_LINKS=0", None, ["TOWLINE_LINKS", "1 to 64"]),
        ("-e TOWLINE_LINKS=1 -e TOWLINE_LINKS=1000", None, ["TOWLINE_LINKS", "1 to 64"]),
        ("", Some(("TOWLINE_REQUESTS", "many")), ["TOWLINE_REQUESTS", "`many`"]),
    ] {
        let mut command = towline(&format!("-n 2 {arguments} -- echo started"));
        let output = command.envs(variable).output().unwrap();
        let report = err(&output);
        assert_eq!((code(&output), out(&output).as_str()), (2, ""), "{arguments} {variable:?}: {report}");
        assert!(words.iter().all(|word| report.contains(word)), "{arguments} {variable:?}: {report}");
    }
    // The command line takes precedence.
    let mut command = towline("-n 1 --no-prefix --transport tcp --links 2 -e TOWLINE_REQUESTS=10 -- echo started");
    command.envs([("TOWLINE_TRANSPORTS", "foo"), ("TOWLINE_LINKS", "0"), ("TOWLINE_REQUESTS", "many")]);
    let output = command.output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "started\n"), "{}", err(&output));
}

#[test]
fn more_ranks_than_a_job_can_have_are_an_error() {
    let output = towline("-n 4294967295 -- true").output().unwrap();
    assert_eq!(code(&output), 2, "{}", err(&output));
    assert!(err(&output).contains("possible: 1 to 1048576"), "{}", err(&output));
    let me = std::env::current_exe().unwrap();
    let mut rank = Command::new(me);
    rank.args(["--exact", "as_rank", "--nocapture"]).env("ROLE", "allgather");
    rank.envs([("TOWLINE_RANK", "7"), ("TOWLINE_SIZE", "4294967295"), ("TOWLINE_ROOT", "unix:@nobody")]);
    rank.envs([("TOWLINE_JOB", "1".to_string()), ("TOWLINE_KEY", "0".repeat(64))]);
    let output = rank.output().unwrap();
    assert!(err(&output).contains("TOWLINE_SIZE") && code(&output) == 101, "{}", err(&output));
}

#[test]
fn a_dead_rank_ends_the_job_with_a_report() {
    let output = shell("-n 4", "[ $TOWLINE_RANK = 2 ] && exit 5; exec sleep 1000");
    assert_eq!(code(&output), 5);
    let report = err(&output);
    assert!(report.contains("rank 2 (pid ") && report.contains("exited with status 5; ending the job"), "{report}");

    let output = shell("-n 3", "[ $TOWLINE_RANK = 1 ] && kill -KILL $$; exec sleep 1000");
    assert_eq!(code(&output), 128 + 9);
    let report = err(&output);
    assert!(report.contains("rank 1 (pid ") && report.contains("was killed by signal 9 (SIGKILL)"), "{report}");
    assert_eq!(report.lines().count(), 1, "{report}");
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_after_the_grace_time() {
    let marks = Hosts::new("grace", "", "");
    let line = "cd $MARKS
        if [ $TOWLINE_RANK = 0 ]; then trap '' TERM; touch deaf; while :; do sleep 0.01; done; fi
        until [ -e deaf ]; do sleep 0.01; done; exit 4";
    let output = shell(&format!("-n 2 --grace 0.1 -e MARKS={}", marks.directory.display()), line);
    assert_eq!(code(&output), 4);
    assert!(err(&output).contains("not all ranks ended within 0.1 s: killing rank 0 (pid "), "{}", err(&output));
}

#[test]
fn the_time_limit_ends_the_job() {
    let output = towline("-n 2 --timeout 0.1 -- sleep 1000").output().unwrap();
    assert_eq!(code(&output), 124);
    assert!(err(&output).contains("time limit of 0.1 s"), "{}", err(&output));
}

/// Starts ranks that print a line when they are ready, and waits for all of them.
fn started(mut command: Command, ranks: usize) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    for _ in 0..ranks {
        line.clear();
        lines.read_line(&mut line).unwrap();
        assert!(line.ends_with("ready\n"), "{line}");
    }
    (child, lines)
}

fn signal(child: &Child, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

fn rest(mut from: impl Read) -> String {
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn signals_are_forwarded() {
    let line = "trap 'echo usr1' USR1; trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut command = towline("-n 2");
    command.args(["--", "sh", "-c", line]);
    let (mut child, mut lines) = started(command, 2);
    signal(&child, Signal::USR1);
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.ends_with("] usr1\n"), "{line}");
    }
    signal(&child, Signal::TERM);
    assert_eq!(sorted(&rest(lines)), ["[0] term", "[1] term"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let mut command = towline("-n 2");
    command.args(["--", "sh", "-c", "echo ready; exec sleep 1000"]);
    let (mut child, _lines) = started(command, 2);
    signal(&child, Signal::INT);
    let report = rest(child.stderr.take().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 2));
    assert!(report.contains("was killed by signal 2 (SIGINT)"), "{report}");
}

/// `towline run`, started by a program that ignores or blocks signals.
fn towline_under(env: &[&str], arguments: &str) -> Command {
    let mut command = Command::new("env");
    let towline = towline(arguments);
    // An ignored hangup stays ignored, and these tests may run under `nohup`.
    command
        .arg("--default-signal=HUP")
        .args(env)
        .arg(towline.get_program())
        .args(towline.get_args())
        .stdin(Stdio::null());
    command
}

/// Shells do this to background processes, and many job runners do so too.
#[test]
fn signals_that_the_launcher_ignores_or_blocks_reach_the_ranks() {
    for ways in [["--ignore-signal=INT,QUIT,TERM,PIPE,CHLD,USR1,USR2,ALRM,TSTP"], ["--block-signal"]] {
        // A shell can trap only signals that were not ignored when it started.
        let line = "trap 'echo usr1' USR1; trap 'echo int; exit 0' INT
            grep -E '^Sig(Blk|Ign)' /proc/self/status; echo ready; while :; do sleep 0.01; done";
        let mut command = towline_under(&ways, "-n 1 --no-prefix --timeout 300");
        command.args(["--", "sh", "-c", line]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        for what in ["SigBlk", "SigIgn"] {
            let line = lines.next().unwrap();
            let set = line.strip_prefix(what).and_then(|rest| rest.strip_prefix(":\t")).expect(&line);
            // Signals 32 and 33 belong to the C library, which lets no program change them.
            let set = u64::from_str_radix(set, 16).unwrap() & !(0b11 << 31);
            assert_eq!(set, 0, "{ways:?}: {line}");
        }
        assert_eq!(lines.next().unwrap(), "ready");
        signal(&child, Signal::USR1);
        assert_eq!(lines.next().unwrap(), "usr1");
        signal(&child, Signal::INT);
        assert_eq!(lines.next().unwrap(), "int");
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn under_nohup_a_hangup_ends_neither_the_launcher_nor_its_ranks() {
    let mut command = towline_under(&["--ignore-signal=HUP"], "-n 1 --no-prefix --timeout 300");
    command.args(["--", "sh", "-c", "trap 'echo usr1' USR1; kill -HUP $$; echo ready; while :; do sleep 0.01; done"]);
    let (mut child, mut lines) = started(command, 1);
    signal(&child, Signal::HUP);
    // If the hangup were forwarded, it would have arrived before the next signal.
    signal(&child, Signal::USR1);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "usr1\n");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn a_second_signal_kills() {
    let mut command = towline("-n 1 --grace 1000");
    command.args(["--", "sh", "-c", "trap 'echo once' TERM; echo ready; while :; do sleep 0.01; done"]);
    let (mut child, mut lines) = started(command, 1);
    signal(&child, Signal::TERM);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "[0] once\n");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
}

#[test]
fn ranks_die_with_the_launcher() {
    let mut command = towline("-n 2 --no-prefix");
    // Each rank holds the write end of the pipe that this test reads to its end.
    command.args(["--", "sh", "-c", "echo $$ ready; exec sleep 1000"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut pid = || -> Pid {
        let line = lines.next().unwrap().unwrap();
        Pid::from_raw(line.split(' ').next().unwrap().parse().unwrap()).unwrap()
    };
    let pids = [pid(), pid()];
    let watched = pids.map(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap());
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    for rank in &watched {
        // Becomes readable when the process has ended.
        let mut fds = [rustix::event::PollFd::new(rank, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1);
    }
}

#[test]
fn x3_allgather_of_processes() {
    for size in [1, 2, 16, 64] {
        let output = role(&format!("-n {size}"), "allgather").output().unwrap();
        assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
        assert_eq!(out(&output).matches(" is well").count(), size);
    }
}

#[test]
fn a_program_without_a_launcher_is_a_job_of_one() {
    let me = std::env::current_exe().unwrap();
    let output =
        Command::new(me).args(["--exact", "as_rank", "--nocapture"]).env("ROLE", "allgather").output().unwrap();
    assert!(output.status.success() && out(&output).contains("rank 0 of 1"), "{}", err(&output));
}

#[test]
fn a_rank_that_exits_with_0_without_finishing_has_failed() {
    let output = role("-n 2", "unfinished").output().unwrap();
    assert_eq!(code(&output), 1);
    assert!(
        err(&output).contains("rank 1 (pid ") && err(&output).contains("without calling `finish`"),
        "{}",
        err(&output)
    );
}

#[test]
fn a_rank_that_closes_its_connection_and_runs_on_has_failed() {
    let output = role("-n 2", "deaf").output().unwrap();
    assert_eq!(code(&output), 1);
    let report = err(&output);
    assert!(report.contains("rank 1 (pid ") && report.contains("closed its connection without"), "{report}");
}

#[test]
fn an_abort_ends_the_job_with_its_code_and_message() {
    let output = role("-n 3", "abort").output().unwrap();
    assert_eq!(code(&output), 7);
    let report = err(&output);
    assert!(report.contains("rank 1 (pid ") && report.contains("aborted the job with code 7: disk full"), "{report}");
}

/// A killed rank closes its connections before it has ended, so other ranks may abort first because they lost it.
#[test]
fn a_killed_rank_is_named_although_others_abort_before_it_has_ended() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("overtaken.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    // If a busy machine delays a rank for longer than the launcher waits for the cause, the launcher names another one.
    let is_right = |output: &Output| {
        let report = err(output);
        let named = report.contains("rank 1 (pid ") && report.contains("was killed by signal 9");
        (code(output), named) == (128 + 9, true)
    };
    let output = (0..10).find_map(|_| {
        for mark in ["left", "aborted"] {
            let _ = fs::remove_file(folder.join(mark));
        }
        let started = Instant::now();
        let output = role("-n 2", "overtaken").env("FOLDER", &folder).output().unwrap();
        (is_right(&output) || started.elapsed() < CAUSE_LIMIT).then_some(output)
    });
    fs::remove_dir_all(&folder).unwrap();
    let output = output.expect("each job took longer than the launcher waits");
    assert!(is_right(&output), "{}", err(&output));
}

#[test]
fn a_fence_that_can_never_open_fails_at_once() {
    let output = role("-n 2", "deserted").output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(out(&output).contains("fence: fence: rank 1 has ended"), "{}", out(&output));
}

#[test]
fn ranks_get_their_settings_and_the_key_is_on_no_command_line() {
    let line = "echo $TOWLINE_TRANSPORTS $TOWLINE_LINKS $A $B $HOME_OF; tr '\\0' ' ' </proc/$PPID/cmdline";
    let output = towline("-n 1 --no-prefix --transport sm,tcp --links 3 -e A=1 --env B=x=y -e HOME_OF -e UNSET_HERE")
        .env("HOME_OF", "me")
        .args(["--", "sh", "-c", line])
        .output()
        .unwrap();
    let out = out(&output);
    assert!(out.starts_with("sm,tcp 3 1 x=y me\n"), "{out}");
    assert!(!out.split_whitespace().any(|word| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit())));
}

#[test]
fn rank_0_reads_standard_input() {
    let mut command = towline("-n 2 --no-prefix");
    command.args(["--", "sh", "-c", "cat; echo end"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"some input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(sorted(&out(&output)), ["end", "end", "some input"]);
}

/// A directory with a hosts file, and a remote shell that runs everything on this host.
struct Hosts {
    directory: PathBuf,
}

impl Hosts {
    fn new(name: &str, hosts: &str, script: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        // A process with the same number may have left one.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("hosts"), hosts).unwrap();
        let rsh = directory.join("rsh");
        script::write(&rsh, script);
        Self { directory }
    }

    fn arguments(&self) -> String {
        let directory = self.directory.display();
        format!("--hosts {directory}/hosts --rsh {directory}/rsh")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

const HERE: &str = "#!/bin/sh\nhost=$1; shift; echo \"welcome to $host\"; exec \"$@\"\n";

#[test]
fn several_hosts_over_a_remote_shell() {
    let hosts = Hosts::new("several", "node0 slots=2 # first\nlocalhost\nnode1 slots=5\n", HERE);
    let output = role(&format!("-n 6 {}", hosts.arguments()), "allgather").output().unwrap();
    assert_eq!(code(&output), 0, "{}{}", out(&output), err(&output));
    for (rank, host) in [(0, "node0"), (1, "node0"), (2, "localhost"), (3, "node1"), (5, "node1")] {
        assert!(out(&output).contains(&format!("[{rank}] rank {rank} of 6 on {host} is well")), "{}", out(&output));
    }
    assert!(err(&output).contains("node1 says: welcome to node1"), "{}", err(&output));

    let line = "echo $TOWLINE_LOCAL $A $(pwd); tr '\\0' ' ' </proc/$PPID/cmdline";
    let output = shell(&format!("--no-prefix -e A=b {}", hosts.arguments()), line);
    assert!(out(&output).contains(&format!("3-7 b {}", std::env::current_dir().unwrap().display())));
    let is_key = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(!out(&output).split_whitespace().any(is_key));
}

#[test]
fn a_dead_rank_on_another_host_ends_the_job() {
    let hosts = Hosts::new("dead", "node0 slots=2\nnode1 slots=2\n", HERE);
    let output = shell(&hosts.arguments(), "[ $TOWLINE_RANK = 3 ] && kill -KILL $$; exec sleep 1000");
    assert_eq!(code(&output), 128 + 9);
    let report = err(&output);
    assert!(report.contains("rank 3 (pid ") && report.contains("on node1) was killed by signal 9"), "{report}");

    let output =
        shell(&hosts.arguments(), "printf partial; [ $TOWLINE_RANK = 1 ] && exec /nonexistent; exec sleep 1000");
    assert_eq!(code(&output), 127);
    assert!(out(&output).contains("[1] partial\n"), "{}", out(&output));
    let output = towline(&format!("{} -- /nonexistent", hosts.arguments())).output().unwrap();
    assert_eq!(code(&output), 127);
    assert!(err(&output).contains("cannot start `/nonexistent`"), "{}", err(&output));
}

#[test]
fn signals_reach_other_hosts() {
    let hosts = Hosts::new("signals", "node0\nnode1\n", HERE);
    let line = "trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.01; done";
    let mut command = towline(&hosts.arguments());
    command.args(["--", "sh", "-c", line]);
    let (mut child, lines) = started(command, 2);
    signal(&child, Signal::TERM);
    assert_eq!(sorted(&rest(lines)), ["[0] term", "[1] term"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_host_that_cannot_be_reached_or_is_lost_ends_the_job() {
    let unreachable = Hosts::new("unreachable", "localhost\nnode1\n", "#!/bin/sh\necho 'no route' >&2; exit 255\n");
    let output = towline(&format!("{} -- sleep 1000", unreachable.arguments())).output().unwrap();
    assert_eq!(code(&output), 1);
    let report = err(&output);
    assert!(report.contains("no route") && report.contains("host node1 is lost, and rank 1 with it"), "{report}");

    // Without a remote shell, no job can begin.
    for shell in ["/nonexistent/rsh", "/etc/passwd", ""] {
        let hosts = unreachable.directory.join("hosts");
        let mut command = towline("--hosts");
        let output = command.arg(hosts).args(["--rsh", shell, "--", "true"]).output().unwrap();
        let report = err(&output);
        assert_eq!(code(&output), 2, "{shell}: {report}");
        assert!(report.contains(&format!("`{shell}` of --rsh")), "{shell}: {report}");
    }

    // The agent dies while the job runs, and the remote shell ends. A shell gives a background process no input, except by
    // another descriptor. It may write the agent's process id later than the agent starts the rank.
    let script = "#!/bin/sh\nshift; exec 3<&0; \"$@\" <&3 3<&- &\necho $! >\"$(dirname \"$0\")/agent\"; wait\n";
    let lost = Hosts::new("lost", "node0\n", script);
    let line = "touch \"$DIRECTORY/started\"; until [ -s \"$DIRECTORY/agent\" ]; do sleep 0.01; done
        kill -KILL $(cat \"$DIRECTORY/agent\"); exec sleep 1000";
    let directory = lost.directory.display();
    let output = shell(&format!("{} -e DIRECTORY={directory}", lost.arguments()), line);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("host node0 is lost, and rank 0 with it"), "{}", err(&output));
    assert!(lost.directory.join("started").exists(), "no rank was started: {}", err(&output));
}

#[test]
fn a_malformed_hosts_file_is_reported_with_its_line() {
    let hosts = Hosts::new("wrong", "node0\nnode1 slots=many\n", HERE);
    let output = towline(&format!("{} -- true", hosts.arguments())).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("hosts: line 2"), "{}", err(&output));
    let hosts = Hosts::new("few", "node0\n", HERE);
    let output = towline(&format!("-n 2 {} -- true", hosts.arguments())).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("1 slot for 2 ranks"), "{}", err(&output));
}
