//! `towline run` with more ranks than the limit of open files allows, and with many ranks that take time to start.

mod script;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// `towline run` with arguments that are separated by spaces, started by a shell that first runs other commands. Each
/// rank runs a shell line.
fn run_after(before: &str, arguments: &str, line: &str) -> Output {
    // The launcher replaces the shell's own process, so LAUNCHER is its process id.
    let script = format!("{before}\nexport LAUNCHER=$$; exec \"$0\" run {arguments} -- sh -c \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_towline"), line]).stdin(Stdio::null()).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A number of ranks that takes the launcher some time to start, within the limits of the system.
fn many() -> u64 {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    (most.saturating_sub(200) / 3).min(1500)
}

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        // A process with the same number may have left one.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        script::write(&path, text);
        path.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn more_ranks_than_files_can_be_open_for_are_refused_before_one_starts() {
    for ranks in ["200", "5000", "1000000"] {
        let output = run_after("ulimit -n 256", &format!("-n {ranks}"), "echo started");
        assert_eq!((output.status.code(), out(&output).as_str()), (Some(2), ""), "{}", err(&output));
        let report = err(&output);
        assert!(report.contains(&format!("{ranks} ranks")) && report.contains("the limit is 256"), "{report}");
        assert_eq!(report.lines().count(), 1, "{report}");
    }
}

#[test]
fn the_launcher_raises_its_own_limit_of_open_files_and_not_that_of_its_ranks() {
    let output = run_after("ulimit -Sn 60", "-n 64 --no-prefix", "ulimit -Sn");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(out(&output), "60\n".repeat(64));
}

#[test]
fn an_agent_refuses_more_ranks_than_it_has_files_for() {
    let scratch = Scratch::new("files");
    let rsh = scratch.script("rsh", "#!/bin/sh\nshift; ulimit -n 128; exec \"$@\"\n");
    let hosts = scratch.script("hosts", "node0 slots=300\n");
    let output = run_after("", &format!("--hosts {hosts} --rsh {rsh}"), "echo started");
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""), "{}", err(&output));
    let report = err(&output);
    assert!(report.contains("host node0: 300 ranks") && report.contains("the limit is 128"), "{report}");
}

#[test]
fn a_signal_while_ranks_are_started_ends_the_job() {
    for name in ["TERM", "INT"] {
        let line = format!("echo started; [ $TOWLINE_RANK = 0 ] && kill -{name} $LAUNCHER; exec sleep 1000");
        let ranks = many();
        let output = run_after("", &format!("-n {ranks} --grace 20"), &line);
        let status = if name == "TERM" { 128 + 15 } else { 128 + 2 };
        assert_eq!(output.status.code(), Some(status), "{}", err(&output));
        let started = out(&output).lines().count() as u64;
        assert!(started < ranks / 2, "{started} of {ranks} were started");
        assert!(err(&output).contains("was killed by signal"), "{}", err(&output));
    }
}

#[test]
fn a_signal_while_an_agent_starts_ranks_ends_the_job() {
    let (scratch, ranks) = (Scratch::new("agent"), many());
    let rsh = scratch.script("rsh", "#!/bin/sh\nshift; exec \"$@\"\n");
    let hosts = scratch.script("hosts", &format!("node0 slots={ranks}\n"));
    let line = "echo started; [ $TOWLINE_RANK = 0 ] && kill -TERM $LAUNCHER; exec sleep 1000";
    let output = run_after("", &format!("--hosts {hosts} --rsh {rsh} --grace 20"), line);
    assert_eq!(output.status.code(), Some(128 + 15), "{}", err(&output));
    let started = out(&output).lines().count() as u64;
    assert!(started < ranks / 2, "{started} of {ranks} were started");
}

#[test]
fn a_rank_that_fails_while_others_are_started_ends_the_job() {
    let ranks = many();
    let line = "echo started; [ $TOWLINE_RANK = 0 ] && exit 5; exec sleep 1000";
    let output = run_after("", &format!("-n {ranks}"), line);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    let started = out(&output).lines().count() as u64;
    assert!(started < ranks / 2, "{started} of {ranks} were started");
    assert!(err(&output).contains("rank 0 (pid ") && err(&output).contains("exited with status 5"), "{}", err(&output));
}

#[test]
fn a_start_that_fails_after_others_ends_the_job() {
    let scratch = Scratch::new("vanishes");
    // Another name of the shell, which the first rank removes: ranks that have started do not need it any more, and no
    // further rank can start.
    let shell = scratch.0.join("sh");
    std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(["run", "-n", &many().to_string(), "--"]).arg(&shell);
    let output = command.args(["-c", "echo started; rm -f \"$0\"; exec sleep 1000"]).arg(&shell).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", err(&output));
    assert!(err(&output).contains("cannot start `"), "{}", err(&output));
}

#[test]
fn output_of_ranks_is_printed_while_others_are_started() {
    // More than a pipe takes: if it were not read, the rank would wait and the job would not end.
    let line = "[ $TOWLINE_RANK = 0 ] || exec sleep 1000; head -c 200000 /dev/zero | tr '\\0' x; exit 6";
    let ranks = many();
    let output = run_after("", &format!("-n {ranks} --no-prefix"), line);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(6), 200_000), "{}", err(&output));
}
