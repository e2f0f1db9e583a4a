//! How ranks end, over each transport: with an error, by a panic, early or killed; what the other ranks notice, and which rank
//! the launcher names as the cause. Ranks are this test program itself in a role.

mod port;
mod script;

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use towline::{Any, Error, World};

/// The transports.
const WAYS: [&str; 3] = ["sm", "tcp", "udp"];
/// The time for a rank to notice that another one has left, in milliseconds. The promise is a second; a busy machine may take
/// longer, but not as long as the time limits that a rank would wait for otherwise.
const NOTICE_LIMIT_MS: u128 = 30_000;
/// The least time for which the launcher waits until a rank that fails has ended, and for the cause of a failure.
const LAUNCHER_WAITS: Duration = Duration::from_secs(1);
/// How often a job is run that takes longer than that.
const TRIES: u32 = 10;

type Outcome = Result<(), Box<dyn StdError>>;

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let status = match role.as_str() {
        "error" => code(towline::run(error)),
        "panic" => code(towline::run(panics)),
        "contexts" => code(towline::Builder::new().run_contexts(2, context_fails)),
        "well" => code(towline::run(well)),
        "question-mark" => main_with_question_mark(error),
        "init-panic" => {
            let world = towline::init().unwrap();
            panics(&world).unwrap();
            0
        }
        "abort" => {
            let world = towline::init().unwrap();
            match error(&world) {
                Ok(()) => 0,
                Err(why) => world.abort(1, &why.to_string()),
            }
        }
        "exit" => {
            let world = towline::init().unwrap();
            match error(&world) {
                Ok(()) => 0,
                // Without the destructor of the world.
                Err(_) => std::process::exit(3),
            }
        }
        "leave" => main_that_drops(leave),
        "leave-unmet" => main_that_drops(leave_unmet),
        "leave-unreceived" => main_that_drops(leave_unreceived),
        "all-others-leave" => main_that_drops(all_others_leave),
        "leave-as-server" => main_that_drops(leave_as_server),
        "fails-once" => code(towline::run(fails_once)),
        "outlived" => outlived(),
        "late-sends" => code(towline::run(late_sends)),
        "killed" => code(towline::run(killed)),
        "no-world" => code(towline::Builder::new().transports("pigeon").run(|_| Ok(()))),
        other => panic!("no role {other}"),
    };
    std::process::exit(status);
}

/// The exit status that `main` would have.
fn code(code: ExitCode) -> i32 {
    i32::from(format!("{code:?}") != format!("{:?}", ExitCode::SUCCESS))
}

/// A `main` of programs without `towline::run`: the world is dropped before the error is printed.
fn main_with_question_mark(program: fn(&World) -> Outcome) -> i32 {
    let main = || -> Outcome {
        let world = towline::init()?;
        program(&world)?;
        world.finish()?;
        Ok(())
    };
    match main() {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("Error: {why}");
            1
        }
    }
}

/// A `main` in which rank 1 ends without `finish`.
fn main_that_drops(program: fn(&World) -> Outcome) -> i32 {
    let world = towline::init().unwrap();
    program(&world).unwrap();
    let leaver = u32::from(std::env::var("TOWLINE_LISTEN").is_err());
    if world.rank() == leaver || std::env::var("ROLE").is_ok_and(|role| role == "all-others-leave" && world.rank() != 0)
    {
        let started = Instant::now();
        drop(world);
        assert!(started.elapsed().as_millis() < NOTICE_LIMIT_MS);
    } else {
        world.finish().unwrap();
    }
    0
}

/// Rank 1 fails while the others wait for it.
fn error(world: &World) -> Outcome {
    if world.rank() == 1 {
        return Err("the input makes no sense".into());
    }
    world.recv(1, 7, &mut [0u8; 8])?;
    Ok(())
}

fn panics(world: &World) -> Outcome {
    world.barrier()?;
    assert!(world.rank() != 1, "the input makes no sense");
    world.recv(1, 7, &mut [0u8; 8]).unwrap();
    Ok(())
}

fn context_fails(world: &World) -> Outcome {
    world.all_contexts().barrier()?;
    if world.address() == (1, 1).into() {
        return Err("the input makes no sense".into());
    }
    world.all_contexts().recv(3, 7, &mut [0u8; 8])?;
    Ok(())
}

fn well(world: &World) -> Outcome {
    let (next, before) = ((world.rank() + 1) % world.size(), (world.rank() + world.size() - 1) % world.size());
    let mut word = 0u32;
    world.sendrecv(&world.rank(), next, 1, &mut word, before, 1)?;
    assert_eq!(word, before);
    Ok(())
}

/// Rank 1 sends, and leaves without an error. The others receive what it has sent, and notice that nothing more comes.
fn leave(world: &World) -> Outcome {
    const LEN: usize = 100_000;
    if world.rank() == 1 {
        for other in [0, 2] {
            for tag in 0..50u32 {
                world.send(other, tag, &[tag; 4])?;
            }
            // Its request is dropped, and the other ranks receive it.
            drop(world.isend(other, 60, vec![9u8; LEN])?);
        }
        return Ok(());
    }
    let mut long = vec![0u8; LEN];
    world.recv(1, 60, &mut long[..])?;
    assert!(long == vec![9u8; LEN]);
    for tag in (0..50u32).rev() {
        let mut words = [0u32; 4];
        world.recv(1, tag, &mut words)?;
        assert_eq!(words, [tag; 4]);
    }
    left(world)
}

/// Rank 1 leaves without a message, so that no connection reports its end.
fn leave_unmet(world: &World) -> Outcome {
    if world.rank() == 1 { Ok(()) } else { left(world) }
}

/// All ranks but rank 0 leave. Rank 0 waits for a message from any rank.
fn all_others_leave(world: &World) -> Outcome {
    if world.rank() != 0 {
        world.send(0, 5, &world.rank())?;
        return Ok(());
    }
    let mut word = 0u32;
    for _ in 1..world.size() {
        world.recv(Any, 5, &mut word)?;
    }
    let waits = world.irecv(Any, Any, [0u8; 8])?;
    assert!(matches!(world.recv(Any, 5, &mut word), Err(Error::PeerFinished { tag: Some(5), bytes: None, .. })));
    assert!(matches!(world.probe(Any, 6), Err(Error::PeerFinished { .. })));
    assert!(matches!(waits.wait().unwrap_err().error, Error::PeerFinished { tag: None, .. }));
    // A message to itself that is there is received.
    world.send(0, 7, &9u32)?;
    world.recv(Any, 7, &mut word)?;
    assert_eq!(word, 9);
    Ok(())
}

/// Rank 0 leaves, which runs the server of a job without a launcher. Its server stays for the others.
fn leave_as_server(world: &World) -> Outcome {
    if world.rank() == 0 {
        return Ok(());
    }
    let started = Instant::now();
    let gone = Error::PeerFinished { rank: 0, tag: Some(7), bytes: None };
    assert_eq!(world.recv(0, 7, &mut [0u8; 8]).unwrap_err(), gone);
    assert!(started.elapsed().as_millis() < NOTICE_LIMIT_MS);
    Ok(())
}

/// Communicators that live longer than the world report that it has ended.
fn outlived() -> i32 {
    for leaves in [false, true] {
        let world = towline::init().unwrap();
        let (same, next) = (world.dup().unwrap(), (world.rank() + 1) % world.size());
        if leaves {
            drop(world)
        } else {
            world.finish().unwrap()
        }
        assert_eq!(same.send(next, 1, b"too late"), Err(Error::Finished));
        assert_eq!(same.recv(next, 1, &mut [0u8; 8]), Err(Error::Finished));
        assert_eq!(same.probe(next, 1), Err(Error::Finished));
        assert!(same.size() == 1 || same.barrier() == Err(Error::Finished));
        if std::env::var("TOWLINE_RANK").is_ok() {
            break; // a rank joins its job once
        }
    }
    0
}

/// Rank 1 sends a message that nobody receives, and leaves: it does not wait for the program of rank 0.
fn leave_unreceived(world: &World) -> Outcome {
    if world.rank() == 1 {
        drop(world.isend(0, 60, vec![9u8; 1_000_000])?);
        return Ok(());
    }
    left(world)
}

/// Rank 1 sends, and fails once. The others receive what it has sent, and accept its new process.
fn fails_once(world: &World) -> Outcome {
    if world.rank() == 1 {
        for other in [0, 2] {
            world.send(other, 5, &world.incarnation())?;
        }
        return if world.incarnation() == 1 { Err(TEXT.into()) } else { Ok(()) };
    }
    let mut word = 0u32;
    world.recv(1, 5, &mut word)?;
    assert_eq!(word, 1);
    let started = Instant::now();
    assert_eq!(world.recv(1, 5, &mut word).unwrap_err(), Error::PeerFailed { rank: 1 });
    assert!(started.elapsed().as_millis() < NOTICE_LIMIT_MS);
    world.rejoin(1, std::time::Duration::from_secs(300))?;
    world.recv(1, 5, &mut word)?;
    assert_eq!(word, 2);
    Ok(())
}

/// Rank 0 sends messages to a rank that has finished.
fn late_sends(world: &World) -> Outcome {
    if world.rank() != 0 {
        return Ok(());
    }
    let long = vec![1u8; 1_000_000];
    let gone = |tag, bytes| Error::PeerFinished { rank: 1, tag: Some(tag), bytes: Some(bytes) };
    assert_eq!(world.send(1, 5, &long[..]), Err(gone(5, 1_000_000)));
    assert_eq!(world.ssend(1, 6, &[1u8; 3]), Err(gone(6, 3)));
    assert_eq!(world.isend(1, 7, long.clone())?.wait().unwrap_err().error, gone(7, 1_000_000));
    assert_eq!(world.scope(|s| s.isend(1, 8, &long[..]).map(drop)), Err(gone(8, 1_000_000)));
    // More than the credit. A send that waits for credit fails instead.
    let mut sends = (0..20_000).map(|_| world.send(1, 9, &[1u8; 8]));
    assert!(sends.all(|sent| sent == Ok(()) || sent == Err(gone(9, 8))));
    Ok(())
}

/// Rank 1 is killed. All others wait for it, and fail with a text that does not say so.
fn killed(world: &World) -> Outcome {
    world.barrier()?;
    if world.rank() == 1 {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    }
    world.recv(1, 7, &mut [0u8; 8]).map(drop).map_err(|_| "cannot go on".into())
}

/// Rank 1 has left: operations with it fail at once, and the others go on.
fn left(world: &World) -> Outcome {
    let started = Instant::now();
    let gone = |tag, bytes| Error::PeerFinished { rank: 1, tag, bytes };
    assert_eq!(world.recv(1, 7, &mut [0u8; 8]).unwrap_err(), gone(Some(7), None));
    let waited = started.elapsed().as_millis();
    println!("\n@ waited {waited} ms");
    assert!(waited < NOTICE_LIMIT_MS, "{waited} ms");
    assert_eq!(world.recv(1, Any, &mut [0u8; 8]).unwrap_err(), gone(None, None));
    assert!(matches!(world.probe(1, 7).unwrap_err(), Error::PeerFinished { rank: 1, .. }));
    assert_eq!(world.send(1, 8, &[0u8; 100]).unwrap_err(), gone(Some(8), Some(100)));
    let failed = world.isend(1, 8, vec![0u8; 1_000_000]).map(drop).unwrap_err();
    assert_eq!(failed.error, gone(Some(8), Some(1_000_000)));
    let text = failed.to_string();
    assert!(text.contains("rank 1 has finished") && text.contains("1000000 bytes with tag 8"), "{text}");
    let other = 2 - world.rank();
    let mut word = 0u32;
    world.sendrecv(&world.rank(), other, 9, &mut word, other, 9)?;
    assert_eq!(word, other);
    Ok(())
}

/// Ranks in a role, with options of `towline run`.
fn job(ranks: u32, role: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(["run", "-n", &ranks.to_string(), "--timeout", "300"]).args(options);
    // Many messages are not received on purpose. A busy machine may delay a rank by seconds.
    let quiet = ["-e", "TOWLINE_UNMATCHED=ignore", "-e", "TOWLINE_FINISH_REPORT_MS=0"];
    command.args(quiet).args(["-e", &format!("ROLE={role}"), "-e", "RUST_BACKTRACE=0", "--"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "as_rank", "--nocapture"]).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of the launcher.
fn launcher(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter_map(|line| line.strip_prefix("towline: ").map(str::to_owned)).collect()
}

/// Runs a job, and checks its output. If a busy machine delays a rank for longer than the launcher waits, the launcher names
/// another rank, or one that still runs. So the output of a job that takes so long may be wrong, and the job is run again then.
fn checked(mut job: Command, check: impl Fn(&Output)) -> Output {
    for _ in 1..TRIES {
        let started = Instant::now();
        let output = job.output().unwrap();
        let is_fast = started.elapsed() < LAUNCHER_WAITS;
        match catch_unwind(AssertUnwindSafe(|| check(&output))) {
            Ok(()) => return output,
            Err(wrong) if is_fast => resume_unwind(wrong),
            Err(_) => {}
        }
    }
    let output = job.output().unwrap();
    check(&output);
    output
}

/// A job fails with `status`, and the launcher's first line names rank 1 with `words`. Later lines are about consequences.
fn names_rank_1(role: &str, options: &[&str], status: i32, words: &[&str]) -> Output {
    checked(job(3, role, options), |output| {
        let (lines, all) = (launcher(output), text(&output.stderr));
        assert_eq!(output.status.code(), Some(status), "{role} {options:?}: {all}");
        let first = lines.first().unwrap_or_else(|| panic!("{role} {options:?}: {all}"));
        assert!(first.starts_with("rank 1 (pid "), "{role} {options:?}: {all}");
        assert!(words.iter().all(|word| first.contains(word)), "{role} {options:?}: {all}");
        let consequences = |line: &String| line.contains(" failed as a consequence");
        assert!(lines[1..].iter().all(consequences) && lines.len() <= 2, "{role} {options:?}: {all}");
    })
}

const TEXT: &str = "the input makes no sense";

/// The text is there at once, and not when the other ranks have ended.
#[test]
fn an_error_is_printed_at_once_with_its_rank_and_the_launcher_names_it() {
    for way in WAYS {
        for _ in 0..7 {
            let output = names_rank_1("error", &["--transport", way], 1, &["exited with status 1", TEXT]);
            assert!(text(&output.stderr).contains(&format!("[1] rank 1: {TEXT}\n")), "{}", text(&output.stderr));
        }
    }
}

#[test]
fn an_error_of_a_program_that_drops_its_world_is_printed_soon_and_the_launcher_names_it() {
    for way in WAYS {
        for _ in 0..7 {
            let output = names_rank_1("question-mark", &["--transport", way], 1, &["exited with status 1"]);
            assert!(text(&output.stderr).contains(&format!("[1] Error: {TEXT}\n")), "{}", text(&output.stderr));
        }
    }
}

#[test]
fn a_rank_that_panics_is_named_before_the_ranks_that_lost_it() {
    for way in WAYS {
        for _ in 0..7 {
            names_rank_1("panic", &["--transport", way], 101, &["exited with status 101", "it panicked: ", TEXT]);
            names_rank_1("init-panic", &["--transport", way], 101, &["exited with status 101"]);
        }
    }
}

#[test]
fn a_killed_rank_is_named_before_the_ranks_that_lost_it() {
    for way in WAYS {
        for _ in 0..3 {
            names_rank_1("killed", &["--transport", way], 128 + 9, &["was killed by signal 9 (SIGKILL)"]);
        }
    }
}

#[test]
fn a_rank_that_aborts_or_exits_is_named_before_the_ranks_that_lost_it() {
    for way in WAYS {
        names_rank_1("abort", &["--transport", way], 1, &["aborted the job with code 1: ", TEXT]);
        names_rank_1("exit", &["--transport", way], 3, &["exited with status 3"]);
    }
}

#[test]
fn a_context_that_fails_is_named_with_its_text() {
    for way in WAYS {
        let output = checked(job(2, "contexts", &["--transport", way]), |output| {
            let lines = launcher(output);
            assert_eq!(output.status.code(), Some(1), "{lines:?}");
            assert!(lines[0].starts_with("rank 1 (pid ") && lines[0].contains(TEXT), "{lines:?}");
        });
        assert!(text(&output.stderr).contains(&format!("[1] rank 1, context 1: {TEXT}\n")), "{}", text(&output.stderr));
    }
}

/// Ranks on other hosts report their ends to agents, and what they have lost to the launcher itself.
#[test]
fn the_cause_is_named_if_it_is_on_another_host() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ends-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Everything runs on this host.
    let (hosts, shell) = (folder.join("hosts"), folder.join("rsh"));
    std::fs::write(&hosts, "node0\nnode1\nnode2\n").unwrap();
    script::write(&shell, "#!/bin/sh\nshift; exec \"$@\"\n");
    let [hosts, shell] = [&hosts, &shell].map(|path| path.to_str().unwrap());
    let options = ["--hosts", hosts, "--rsh", shell, "--address", "127.0.0.1"];
    for _ in 0..5 {
        names_rank_1("error", &options, 1, &["on node1", "exited with status 1", TEXT]);
        names_rank_1("init-panic", &options, 101, &["on node1", "exited with status 101"]);
        names_rank_1("killed", &options, 128 + 9, &["on node1", "was killed by signal 9"]);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// With `--keep-going` each failure has its line, the cause first; with `--restart` nothing is a consequence of an earlier life.
#[test]
fn the_cause_comes_first_with_keep_going_and_restarts() {
    for _ in 0..5 {
        checked(job(3, "panic", &["--keep-going"]), |output| {
            let lines = launcher(output);
            assert_eq!(output.status.code(), Some(101), "{lines:?}");
            assert_eq!(lines.len(), 3, "{lines:?}");
            assert!(lines.iter().all(|line| line.ends_with("; the other ranks go on")), "{lines:?}");
            assert!(lines[0].starts_with("rank 1 (pid ") && lines[0].contains(TEXT), "{lines:?}");
            assert!(lines[1..].iter().all(|line| line.contains(", after operations with rank")), "{lines:?}");
        });
    }
    let output = job(1, "no-world", &["--restart", "1"]).output().unwrap();
    let lines = launcher(&output);
    assert_eq!((output.status.code(), lines.len()), (Some(1), 2), "{lines:?}");
    assert!(
        lines[1].contains("exited with status 1; it was restarted once, which is the limit; ending the job"),
        "{lines:?}"
    );
    let all = text(&output.stderr);
    assert_eq!(all.matches("[0] towline: ").count(), 2, "{all}");
    assert_eq!(all.matches("`pigeon`").count(), 2, "{all}");
}

#[test]
fn a_job_whose_ranks_end_well_succeeds_in_silence() {
    for way in WAYS {
        let output = job(3, "well", &["--transport", way]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{way}");
    }
}

/// A rank that leaves without an error is no failure. What it has sent arrives, and the others learn that nothing more comes.
#[test]
fn a_rank_may_leave_early_and_the_others_notice_it_within_a_second() {
    for way in WAYS {
        for role in ["leave", "leave-unmet", "leave-unreceived", "all-others-leave"] {
            let output = job(3, role, &["--transport", way]).output().unwrap();
            let (said, told) = (text(&output.stdout), text(&output.stderr));
            assert_eq!((output.status.code(), told.as_str()), (Some(0), ""), "{way} {role}: {said}");
            for line in said.lines().filter(|line| line.contains("@ waited ")) {
                println!("{way} {role}: {line}");
            }
        }
    }
}

/// A program that returns an error has failed, for the other ranks and for `--restart`.
#[test]
fn a_rank_that_returns_an_error_is_restarted() {
    for way in WAYS {
        checked(job(3, "fails-once", &["--transport", way, "--restart", "1"]), |output| {
            let all = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{way}: {all}");
            assert_eq!(launcher(output).len(), 1, "{way}: {all}");
            assert!(all.contains("exited with status 1; restarting it (1 of at most 1)"), "{way}: {all}");
        });
    }
}

/// Ranks without the launcher, of which rank 0 runs the server.
#[test]
fn without_a_launcher_rank_0_may_leave_early() {
    for way in WAYS {
        let reserved = port::Reserved::new();
        let listen = reserved.address.to_string();
        // Another job with this number may run on this host, also one of this test.
        let job = format!("{:x}{:04x}", std::process::id(), reserved.address.port());
        let start = |rank: u32| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "as_rank", "--nocapture"]).env("ROLE", "leave-as-server");
            command.envs([("TOWLINE_LISTEN", &listen), ("TOWLINE_ROOT", &format!("tcp:{listen}"))]);
            command.envs([("TOWLINE_SIZE", "3"), ("TOWLINE_JOB", job.as_str()), ("TOWLINE_TRANSPORTS", way)]);
            command.envs([("TOWLINE_RANK", rank.to_string()), ("TOWLINE_KEY", "7".repeat(64))]);
            command.env("TOWLINE_LOCAL", "0-2").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let ranks = [0, 1, 2].map(start);
        for rank in ranks {
            let output = rank.wait_with_output().unwrap();
            assert!(output.status.success(), "{way}: {}{}", text(&output.stdout), text(&output.stderr));
        }
    }
}

#[test]
fn communicators_that_live_longer_than_the_world_report_its_end() {
    let output = job(2, "outlived", &[]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{}", text(&output.stdout));
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", "as_rank", "--nocapture"]).env("ROLE", "outlived").output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn sends_to_a_rank_that_has_finished_fail_at_once_with_tag_and_length() {
    for way in WAYS {
        for _ in 0..3 {
            let output = job(2, "late-sends", &["--transport", way]).output().unwrap();
            let told = text(&output.stderr);
            assert_eq!((output.status.code(), told.as_str()), (Some(0), ""), "{way}: {}", text(&output.stdout));
        }
    }
}

#[test]
fn a_long_grace_time_is_no_overflow_and_one_without_end_is_refused() {
    checked(job(2, "error", &["--grace", "1000000000"]), |output| {
        let lines = launcher(output);
        assert!(lines[0].starts_with("rank 1 (pid ") && lines[0].contains(TEXT), "{lines:?}");
        assert_eq!(output.status.code(), Some(1), "{lines:?}");
    });
    let output = job(2, "error", &["--grace", "1e19"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
