//! `towline run --hosts` over the real ssh, to a server that the test starts with its own keys: on this host, and in
//! another network namespace, which needs root. If root or sshd is missing, the tests say so and pass.

mod port;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use towline::{Source, Tag};

const SSHD: &str = "/usr/sbin/sshd";

/// The role of ranks that this file starts: a message goes around all of them. Without a role, as in a normal test run,
/// it does nothing.
#[test]
fn as_rank() {
    if std::env::var_os("ROLE").is_none() {
        return;
    }
    let world = towline::init().unwrap();
    let (rank, size) = (world.rank(), world.size());
    let mut token = [0; 4];
    let pass = |token: u32| world.send((rank + 1) % size, 1, &token.to_le_bytes()).unwrap();
    if rank == 0 {
        pass(0);
    }
    world.recv(Source::Rank((rank + size - 1) % size), Tag::Is(1), &mut token).unwrap();
    if rank != 0 {
        pass(u32::from_le_bytes(token) + rank);
    } else {
        println!("sum {} on {}", u32::from_le_bytes(token), std::env::var("TOWLINE_HOST").unwrap());
    }
    drop(world);
    std::process::exit(0);
}

/// An ssh server that this process reaches as host `far`, and the route to it. Everything is removed with this value.
struct Far {
    folder: PathBuf,
    server: Option<Child>,
    /// The namespaces of the launcher and of the server. `None` if both are in this one.
    namespaces: Vec<String>,
}

impl Far {
    /// On this host.
    fn near(name: &str) -> Option<Self> {
        let reserved = port::Reserved::new();
        Self::start(name, "127.0.0.1", reserved.address.port(), vec![])
    }

    /// In another network namespace than the launcher.
    fn apart(name: &str) -> Option<Self> {
        let id = std::process::id();
        let [a, b] = ["c", "d"].map(|end| format!("towline{id}{end}"));
        let [va, vb] = ["c", "d"].map(|end| format!("tl{id}{end}"));
        let namespaces = vec![a.clone(), b.clone()];
        let lines = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add {va} netns {a} type veth peer name {vb} netns {b}"),
            format!("-n {a} addr add 10.213.8.1/24 dev {va}"),
            format!("-n {b} addr add 10.213.8.2/24 dev {vb}"),
            format!("-n {a} link set {va} up"),
            format!("-n {b} link set {vb} up"),
        ];
        let ip = |line: &String| Command::new("ip").args(line.split(' ')).output().is_ok_and(|o| o.status.success());
        if !lines.iter().all(ip) {
            namespaces.iter().for_each(|name| remove_namespace(name));
            skipped("network namespaces need the rights of root, and iproute2");
            return None;
        }
        Self::start(name, "10.213.8.2", 2222, namespaces)
    }

    fn start(name: &str, address: &str, port: u16, namespaces: Vec<String>) -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ssh-{name}-{}", std::process::id()));
        // A process with the same number may have left one.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut far = Self { folder, server: None, namespaces };
        if !Path::new(SSHD).exists() || Command::new("ssh").arg("-V").output().is_err() {
            skipped("ssh and sshd are not installed (Debian: openssh-client, openssh-server)");
            return None;
        }
        for key in ["host", "user"] {
            let path = far.path(key);
            let done = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path]).status();
            assert!(done.unwrap().success());
        }
        let key = fs::read_to_string(far.path("host.pub")).unwrap();
        fs::write(far.path("known"), format!("far {key}")).unwrap();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let client = [
            format!("Host far\nHostName {address}\nPort {port}\nHostKeyAlias far\nCheckHostIP no"),
            format!("User {}\nIdentitiesOnly yes\nIdentityFile {}", out(&user).trim(), far.path("user")),
            format!("StrictHostKeyChecking yes\nUserKnownHostsFile {}\nLogLevel ERROR\n", far.path("known")),
        ];
        fs::write(far.path("client"), client.join("\n")).unwrap();
        let server = [
            format!("ListenAddress {address}\nPort {port}\nHostKey {}\nPidFile none", far.path("host")),
            format!("AuthorizedKeysFile {}\nStrictModes no\nPermitRootLogin yes", far.path("user.pub")),
            "UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel INFO\n".into(),
        ];
        fs::write(far.path("server"), server.join("\n")).unwrap();
        // The server needs this directory, which is missing if the service was never started.
        let _ = fs::create_dir_all("/run/sshd");
        let mut command = inside(far.namespaces.get(1), SSHD);
        let mut child = command.args(["-D", "-e", "-f", &far.path("server")]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        far.server = Some(child);
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        if !line.contains("Server listening") {
            let _ = said.read_to_string(&mut line);
            panic!("sshd does not start: {line}");
        }
        // Its later output must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        fs::write(far.path("hosts"), "localhost\nfar slots=2\n").unwrap();
        // The server may refuse every login for its own reasons, such as a locked account.
        let mut command = inside(far.namespaces.first(), "ssh");
        let plain = command.args(["-F", &far.path("client"), "-o", "BatchMode=yes", "far", "true"]).output().unwrap();
        if !plain.status.success() {
            skipped(&format!("ssh itself does not get there: {}", out(&plain.stderr).trim()));
            return None;
        }
        Some(far)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().into()
    }

    /// `towline run` with ranks on this host and on the other one.
    fn towline(&self, arguments: &[&str]) -> Command {
        let mut command = inside(self.namespaces.first(), env!("CARGO_BIN_EXE_towline"));
        let shell = format!("ssh -F {} -o BatchMode=yes", self.path("client"));
        command.args(["run", "--timeout", "300", "--rsh", &shell, "--hosts", &self.path("hosts")]);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.towline(arguments).output().unwrap()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
        self.namespaces.iter().for_each(|name| remove_namespace(name));
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn remove_namespace(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).output();
}

fn inside(namespace: Option<&String>, program: &str) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

/// Written directly, since the test runner hides the output of tests that pass.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped a test over ssh: {why}");
}

fn out(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn role() -> Vec<String> {
    let me = std::env::current_exe().unwrap();
    ["-e", "ROLE=rank", "--", me.to_str().unwrap(), "--exact", "as_rank", "--nocapture"].map(Into::into).to_vec()
}

fn a_message_goes_around(far: &Far) {
    let role = role();
    let output = far.run(&role.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}{}", out(&output.stdout), out(&output.stderr));
    assert!(out(&output.stdout).contains("[0] sum 3 on localhost\n"), "{}", out(&output.stdout));
}

#[test]
fn a_job_over_ssh_on_this_host() {
    let Some(far) = Far::near("near") else { return };
    a_message_goes_around(&far);

    // The shell on the other host parses the agent's path once more.
    let odd = far.path("it's a $path; odd");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_towline"), &odd).unwrap();
    let line = "printf '%s %s\\n' \"$TOWLINE_HOST\" \"$A\"; echo $((TOWLINE_RANK)) >&2";
    let output = far.run(&["--no-prefix", "--remote-path", &odd, "-e", "A=b  'c' $d", "--", "sh", "-c", line]);
    assert_eq!(output.status.code(), Some(0), "{}", out(&output.stderr));
    let mut lines: Vec<_> = out(&output.stdout).lines().map(str::to_string).collect();
    lines.sort();
    assert_eq!(lines, ["far b  'c' $d", "far b  'c' $d", "localhost b  'c' $d"]);

    let output = far.run(&["--", "sh", "-c", "[ $TOWLINE_RANK = 2 ] && kill -SEGV $$; exec sleep 1000"]);
    let report = out(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 11), "{report}");
    assert!(report.contains("on far) was killed by signal 11"), "{report}");

    let output = far.run(&["--remote-path", "/nonexistent/towline", "--", "true"]);
    let report = out(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(
        report.contains("host far is lost, and rank 1 with it") && report.contains("/nonexistent/towline"),
        "{report}"
    );
}

#[test]
fn a_job_over_ssh_in_another_namespace() {
    let Some(far) = Far::apart("apart") else { return };
    a_message_goes_around(&far);
}

/// Starts ranks that print their process id, and waits for all of them.
fn started(far: &Far, line: &str) -> (Child, BufReader<std::process::ChildStdout>, Vec<Pid>) {
    let mut command = far.towline(&["--no-prefix", "--", "sh", "-c", line]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut pids = Vec::new();
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        pids.push(Pid::from_raw(line.trim().parse().unwrap()).unwrap());
    }
    (child, lines, pids)
}

#[test]
fn signals_and_the_launchers_death_reach_ranks_over_ssh() {
    let Some(far) = Far::near("signals") else { return };
    let send = |child: &Child, signal| rustix::process::kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal);

    let line = "trap 'echo int; exit 0' INT; echo $$; while :; do sleep 0.01; done";
    let (mut child, mut lines, _) = started(&far, line);
    send(&child, Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!((child.wait().unwrap().code(), rest.as_str()), (Some(0), "int\nint\nint\n"));

    let (mut child, _lines, pids) = started(&far, "echo $$; exec sleep 1000");
    let none = rustix::process::PidfdFlags::empty();
    let watched: Vec<_> = pids.iter().map(|pid| rustix::process::pidfd_open(*pid, none).unwrap()).collect();
    send(&child, Signal::KILL).unwrap();
    child.wait().unwrap();
    for rank in &watched {
        // Becomes readable when the process has ended.
        let mut fds = [rustix::event::PollFd::new(rank, rustix::event::PollFlags::IN)];
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1);
    }
}

#[test]
fn doctor_and_perf_reach_the_other_host_over_ssh() {
    let Some(far) = Far::near("tools") else { return };
    let shell = format!("ssh -F {} -o BatchMode=yes", far.path("client"));
    let call = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
        command.args(arguments).args(["--rsh", &shell, "--hosts", &far.path("hosts")]);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = call(&["doctor", "--json"]);
    let answer: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", out(&output.stderr)));
    let hosts = answer["hosts"].as_array().unwrap();
    let verdict = |host: &str, subject: &str| {
        let of_host = hosts.iter().find(|it| it["host"] == host).unwrap_or_else(|| panic!("no {host} in {answer}"));
        let checks = of_host["checks"].as_array().unwrap();
        checks.iter().find(|check| check["subject"] == subject).unwrap()["verdict"].as_str().unwrap()
    };
    for subject in ["remote shell", "version", "time", "a job here"] {
        assert_eq!(verdict("far", subject), "good", "{answer}");
    }
    assert_eq!(verdict("all hosts", "a job"), "good", "{answer}");
    // This host needs no remote shell, also if the file names it.
    assert!(hosts.iter().all(|host| host["host"] != "localhost"), "{answer}");

    let output = call(&["perf", "--quick", "--repeat", "1", "--mode", "latency", "--sizes", "8"]);
    let table = out(&output.stdout);
    assert!(output.status.success() && table.contains("tcp       latency"), "{table}{}", out(&output.stderr));
}
