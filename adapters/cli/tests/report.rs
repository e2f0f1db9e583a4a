//! Reports of what ranks wait for, over each transport: on SIGQUIT to the launcher, at the time limit, and when a rank waits in
//! `finish` for long. Ranks are this test program itself in a role.

mod script;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use towline::{Any, Builder, Multiple, World};

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];
/// Nothing takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(300);
/// Ranks have this time to answer: more than enough, since the machine may be busy.
const WAIT: &str = "120";

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    match role.as_str() {
        "late" if std::env::var("TOWLINE_RANK").as_deref() == Ok("1") => outside(),
        "threads" => return threads(&Builder::new().threads(Multiple).progress_thread(true).build().unwrap()),
        "contexts" => return contexts(),
        _ => {}
    }
    let world = towline::init().unwrap();
    let (rank, size) = (world.rank(), world.size());
    let next = (rank + 1) % size;
    let mut into = [0u8; 8];
    ready();
    match (role.as_str(), rank) {
        ("circle", _) => drop(world.recv(next, 7 + rank, &mut into)),
        ("sends", _) => drop(world.send(next, 3, &vec![1u8; 1 << 22][..])),
        ("tags", 1) => {
            world.send(0, 5, b"ten bytes.").unwrap();
            let _ = world.recv(0, 9, &mut into);
        }
        ("tags", _) => drop(world.recv(1, 7, &mut into)),
        ("computes", 1) => outside(),
        ("polls", 1) => {
            while world.iprobe(0, 9).unwrap().is_none() {
                std::thread::yield_now();
            }
        }
        ("computes" | "polls" | "late", _) => drop(world.recv(1, 7, &mut into)),
        ("barrier", 1) => world.barrier().unwrap(),
        ("barrier", _) => drop(world.recv(1, 7, &mut into)),
        ("probe", 1) => drop(world.probe(Any, 4)),
        ("probe", _) => {
            let other = world.split(Some(0), 0);
            drop(other);
        }
        ("future", _) => {
            let receiving = world.irecv(next, 7, vec![0u8; 16]).unwrap();
            let _ = world.block_on(receiving);
        }
        ("finished", 1) => drop(world.finish()),
        ("finished", _) => drop(world.recv(1, 7, &mut into)),
        ("late to finish", 1) => {
            let released = PathBuf::from(std::env::var_os("RELEASED").unwrap());
            while !released.exists() {
                world.progress(); // it answers, so that the report waits for the answers of all ranks
                std::thread::sleep(Duration::from_millis(20)); // the program does something else
            }
            world.finish().unwrap();
        }
        ("late to finish", _) => world.finish().unwrap(),
        ("alone", _) => drop(world.recv(0, 7, &mut into)),
        (other, _) => panic!("no role {other}"),
    }
    std::process::exit(0);
}

/// Tells the test that this rank has started.
fn ready() {
    println!("\n@ ready");
    std::io::stdout().flush().unwrap();
}

/// Does not call the library any more.
fn outside() -> ! {
    ready();
    loop {
        std::thread::park();
    }
}

/// Two threads of each rank wait for each other's rank.
fn threads(world: &World<Multiple>) {
    let next = (world.rank() + 1) % world.size();
    std::thread::scope(|threads| {
        for tag in [1, 2] {
            threads.spawn(move || world.recv(next, tag, &mut [0u8; 4]));
        }
        ready();
    });
}

/// Each rank has two contexts; the second one of rank 1 computes.
fn contexts() {
    let contexts = Builder::new().contexts(2).unwrap().into_iter();
    std::thread::scope(|threads| {
        for context in contexts {
            threads.spawn(move || {
                let world = context.enter();
                let (rank, index) = (world.rank(), world.address().index);
                ready();
                if (rank, index) == (1, 1) {
                    outside();
                }
                let _ = world.recv((rank + 1) % world.size(), 7, &mut [0u8; 4]);
            });
        }
    });
}

/// `towline run` with this program in a role.
fn job(arguments: &str, transport: &str, role: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    let me = std::env::current_exe().unwrap();
    command.arg("run").args(arguments.split_whitespace()).args(["--transport", transport]);
    command.args(["-e", &format!("ROLE={role}"), "--"]).arg(me).args(["--exact", "as_rank", "--nocapture"]);
    command.stdin(Stdio::null());
    command
}

/// A job that runs.
struct Running {
    launcher: Child,
    /// Lines of ranks for the test.
    ready: Receiver<String>,
    /// Lines of the launcher.
    said: Receiver<String>,
}

impl Running {
    /// Starts a job, and waits until this many contexts are ready.
    fn start(command: &mut Command, ready: usize) -> Self {
        let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = |from: Box<dyn std::io::Read + Send>| {
            let (tell, told) = channel();
            std::thread::spawn(move || {
                BufReader::new(from).lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
            });
            told
        };
        let out = lines(Box::new(launcher.stdout.take().unwrap()));
        let said = lines(Box::new(launcher.stderr.take().unwrap()));
        let running = Self { launcher, ready: out, said };
        for _ in 0..ready {
            running.wait_for_ready();
        }
        running
    }

    fn wait_for_ready(&self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.ready.recv_timeout(until.saturating_duration_since(Instant::now()));
            if line.expect("ranks start").ends_with("@ ready") {
                return;
            }
        }
    }

    /// Sends SIGQUIT to the launcher, and returns its report.
    fn ask(&self) -> Vec<String> {
        rustix::process::kill_process(Pid::from_child(&self.launcher), Signal::QUIT).unwrap();
        self.next_report()
    }

    /// The next report that the launcher prints.
    fn next_report(&self) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        let mut lines: Vec<String> = Vec::new();
        loop {
            let line = self.said.recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("no report; there was {lines:#?}"));
            if line == "towline: end of the report" {
                return lines;
            }
            if lines.is_empty() && !line.starts_with("towline: report of all ranks") {
                continue;
            }
            lines.push(line.strip_prefix("towline: ").unwrap_or(&line).to_string());
        }
    }

    /// Asks until a line of a report has all of these parts. Returns that report.
    fn ask_until(&self, parts: &[&str]) -> Vec<String> {
        self.ask_until_all(&[parts])
    }

    /// Asks until a report has a line for each of these lists of parts. Returns that report.
    fn ask_until_all(&self, lines: &[&[&str]]) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let report = self.ask();
            let Some(missing) = lines.iter().find(|parts| !has_line(&report, parts)) else { return report };
            assert!(Instant::now() < until, "no line has {missing:?}: {report:#?}");
        }
    }
}

fn has_line(report: &[String], parts: &[&str]) -> bool {
    report.iter().any(|line| parts.iter().all(|part| line.contains(part)))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.launcher), Signal::TERM);
        let _ = self.launcher.wait();
    }
}

fn wait_options(ranks: u32) -> String {
    format!("-n {ranks} --report-wait {WAIT} --grace 1")
}

#[test]
fn a_report_names_what_each_rank_waits_for_and_ranks_that_wait_for_each_other() {
    for transport in TRANSPORTS {
        let running = Running::start(&mut job(&wait_options(2), transport, "circle"), 2);
        let deadlock = "rank 0 waits in recv (tag 7) for rank 1, rank 1 waits in recv (tag 8) for rank 0";
        let report = running.ask_until(&["probable deadlock: ", deadlock]);
        assert!(has_line(
            &report,
            &["[0] waits in recv for ", "a message from rank 1 with tag 7 in the world, room for 8 bytes"]
        ));
        assert!(has_line(
            &report,
            &["[1] waits in recv for ", "a message from rank 0 with tag 8 in the world, room for 8 bytes"]
        ));
        // The job goes on, and answers again.
        assert!(has_line(&running.ask(), &["probable deadlock: ", deadlock]));
    }
}

#[test]
fn a_circle_of_three_is_found_and_other_kinds_of_waits_are_named() {
    let running = Running::start(&mut job(&wait_options(3), "sm", "circle"), 3);
    running.ask_until(&[
        "probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1",
        "rank 2 waits in recv (tag 9) for rank 0",
    ]);
    drop(running);

    let running = Running::start(&mut job(&wait_options(2), "tcp", "sends"), 2);
    running.ask_until(&[
        "probable deadlock: rank 0 waits in send (tag 3) for rank 1, rank 1 waits in send (tag 3) for rank 0",
    ]);
    let report = running.ask();
    assert!(has_line(
        &report,
        &["[0] waits in send for ", "4194304 bytes to rank 1 with tag 3 in the world, which no receive"]
    ));
    drop(running);

    let running = Running::start(&mut job(&wait_options(2), "sm", "barrier"), 2);
    running
        .ask_until(&["probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1 waits in barrier for rank 0"]);
    drop(running);

    let running = Running::start(&mut job(&wait_options(2), "sm", "probe"), 2);
    let report = running.ask_until(&["probable deadlock: "]);
    assert!(
        has_line(&report, &["[1] waits in probe for ", "a message from any rank with tag 4 in the world"]),
        "{report:#?}"
    );
    assert!(has_line(&report, &["[0] waits in dup or split for "]), "{report:#?}");
    drop(running);

    let running = Running::start(&mut job(&wait_options(2), "sm", "future"), 2);
    let report = running.ask_until(&["probable deadlock: rank 0 waits in recv (tag 7) for rank 1"]);
    assert!(has_line(&report, &["[0] awaits recv for "]), "{report:#?}");
    drop(running);

    let running = Running::start(&mut job(&wait_options(1), "sm", "alone"), 1);
    running.ask_until(&["probable deadlock: rank 0 waits in recv (tag 7) for rank 0"]);
}

#[test]
fn a_message_with_another_tag_is_shown_as_not_received() {
    for transport in TRANSPORTS {
        let running = Running::start(&mut job(&wait_options(2), transport, "tags"), 2);
        let report =
            running.ask_until(&["rank 0 waits for tag 7 of rank 1", "with tag 5 was not received: check tags"]);
        assert!(has_line(&report, &["[0] not received: 1 message from rank 1 with tag 5 in the world, 10 bytes"]));
    }
}

#[test]
fn ranks_that_can_still_send_are_not_part_of_a_deadlock() {
    for (role, transport, said) in [
        ("computes", "sm", "[1] did not answer within "),
        ("computes", "udp", "[1] is in no call of Towline: "), // its progress thread answers
        ("polls", "sm", "[1] calls Towline again and again without waiting"),
        ("polls", "tcp", "[1] calls Towline again and again without waiting"),
    ] {
        let wait = if (role, transport) == ("computes", "sm") { "2" } else { WAIT };
        let running = Running::start(&mut job(&format!("-n 2 --report-wait {wait} --grace 1"), transport, role), 2);
        let report = running.ask_until(&[said]);
        assert!(!has_line(&report, &["deadlock"]), "{report:#?}");
        assert!(has_line(&report, &["[0] "]), "{report:#?}");
    }
}

#[test]
fn ranks_on_other_hosts_answer_too() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-hosts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [hosts, rsh] = ["hosts", "rsh"].map(|name| folder.join(name));
    std::fs::write(&hosts, "node0\nnode1\nlocalhost\n").unwrap();
    script::write(&rsh, "#!/bin/sh\nshift\nexec \"$@\"\n"); // runs everything on this host
    let options =
        format!("{} --hosts {} --rsh {} --address 127.0.0.1", wait_options(3), hosts.display(), rsh.display());
    let running = Running::start(&mut job(&options, "tcp", "circle"), 3);
    let report = running.ask_until(&["probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1"]);
    for rank in 0..3 {
        assert!(has_line(&report, &[&format!("[{rank}] waits in recv for ")]), "{report:#?}");
    }
    drop(running);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn ranks_that_have_not_started_are_named() {
    let running = Running::start(&mut job(&wait_options(2), "sm", "late"), 1);
    let report = running.ask_until(&["[0] starts: module exchange: no publications arrived from rank 1"]);
    assert!(has_line(&report, &["[1] has not joined the job: it did not call towline::init yet"]), "{report:#?}");
}

#[test]
fn several_threads_and_contexts_of_a_rank_are_named() {
    let running = Running::start(&mut job(&wait_options(2), "sm", "threads"), 2);
    // Some threads may wait earlier than others.
    let [first, second] = [1, 2].map(|tag| format!("a message from rank 1 with tag {tag} in the world"));
    running.ask_until_all(&[
        &["probable deadlock: ", "unless another thread of these ranks goes on"],
        &["[0] waits in recv for ", &first],
        &["[0] waits in recv for ", &second],
    ]);
    drop(running);

    let options = "-n 2 --report-wait 2 --grace 1";
    let running = Running::start(&mut job(options, "tcp", "contexts"), 4);
    let report = running.ask_until_all(&[
        &["probable deadlock: rank 0 waits in recv (tag 7) for rank 1, rank 1"],
        &["[0] context 1 waits in recv for "],
        &["[1] context 1 did not answer"],
    ]);
    assert!(!has_line(&report, &["probable deadlock", "context 1 of rank 0"]), "{report:#?}");
}

#[test]
fn a_wait_for_a_rank_in_finish_is_reported_without_a_question() {
    let running = Running::start(&mut job(&wait_options(2), "sm", "finished"), 2);
    let report = running.next_report();
    assert_eq!(report[0], "report of all ranks (rank 1 waits in finish for long)");
    let report = running.ask_until(&["probable deadlock: rank 0 waits in recv (tag 7) for rank 1, which is in finish"]);
    assert!(has_line(&report, &["[1] waits in finish for ", "not all other ranks have finished"]), "{report:#?}");
}

#[test]
fn a_rank_that_finishes_later_than_the_others_causes_one_report_and_no_failure() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{}", std::process::id()));
    // A process with the same number may have left one.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let [released, file] = ["released", "reports"].map(|name| folder.join(name));
    let mut command = job(&format!("{} --report-file {}", wait_options(3), file.display()), "tcp", "late to finish");
    command.env("RELEASED", &released);
    let mut running = Running::start(&mut command, 3);
    let report = running.next_report();
    assert!(
        has_line(&report, &["[0,2] waits in finish"]) || has_line(&report, &["[2] waits in finish"]),
        "{report:#?}"
    );
    std::fs::write(&released, "").unwrap();
    assert!(running.launcher.wait().unwrap().success());
    assert!(running.said.iter().all(|line| !line.contains("report of all ranks")));
    let json = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let line: serde_json::Value = serde_json::from_str(json.trim_end()).unwrap();
    assert_eq!(json.lines().count(), 1);
    assert_eq!((line["ranks"][0]["rank"].as_u64(), line["ranks"].as_array().unwrap().len()), (Some(0), 3));
    assert_eq!(line["ranks"][2]["reports"][0]["waits"][0]["operation"], "finish");
    assert_eq!(line["deadlocks"], serde_json::json!([]));
}

#[test]
fn the_time_limit_prints_a_report_before_it_ends_the_job() {
    for transport in ["sm", "tcp"] {
        // A busy machine may start ranks later than the limit. Then there is another job with a longer one.
        let run = |limit: u32| {
            let mut command = job(&format!("{} --timeout {limit}", wait_options(2)), transport, "circle");
            let Output { status, stderr, .. } = command.output().unwrap();
            let said = String::from_utf8_lossy(&stderr).into_owned();
            assert_eq!(status.code(), Some(124), "{said}");
            (limit, said)
        };
        let late = |said: &str| said.contains("has not joined the job") || said.contains("] starts: ");
        let (limit, said) = [6, 30].into_iter().map(run).find(|(_, said)| !late(said)).unwrap_or_else(|| run(150));
        let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("no `{text}`: {said}"));
        let report = at("towline: report of all ranks (the time limit has passed)");
        assert!(report < at("probable deadlock: rank 0 waits in recv (tag 7) for rank 1"));
        let end = format!("the time limit of {limit} s has passed; still running: rank 0");
        assert!(at("end of the report") < at(&end));
    }
}
