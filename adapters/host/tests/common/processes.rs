//! Ranks as separate processes, so that they can be killed and stopped. Each runs this test program again, with a role.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towline::bootstrap::Environment;
use towline::bootstrap::server::{Config, Server};

/// A step that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// Lines of ranks for the test begin with this. All other output is for people.
const MARK: &str = "@ ";

/// Sends a line to the test that started this rank.
pub fn report(line: impl std::fmt::Display) {
    println!("\n{MARK}{line}");
}

#[allow(dead_code)]
/// Nanoseconds of the clock that all processes of a host share.
pub fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The resources of this process: descriptors, and mapped segments and windows.
#[allow(dead_code)]
pub fn resources() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_ours = |line: &&str| line.contains("/towline.") || line.contains("towline-window");
    (descriptors, maps.lines().filter(is_ours).count())
}

/// A rank that was started.
pub struct Rank {
    pub child: Child,
    lines: Receiver<String>,
    seen: VecDeque<String>,
    /// Its standard error. It is shown only if the test fails, since many ranks panic by design.
    errors: Option<JoinHandle<String>>,
}

impl Rank {
    /// Waits for a line that begins with `word`, and returns its rest. Lines before it are skipped.
    pub fn wait_for(&mut self, word: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(MARK).and_then(|line| line.strip_prefix(word)) {
                        return rest.trim().into();
                    }
                    self.seen.push_back(line);
                }
                Err(RecvTimeoutError::Timeout) => panic!("no `{word}` in time; there was {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => panic!("ended without `{word}`; there was {:#?}", self.seen),
            }
        }
    }

    /// As `wait_for`, for two numbers.
    #[allow(dead_code)]
    pub fn wait_for_two(&mut self, word: &str) -> (u64, u64) {
        let rest = self.wait_for(word);
        let (one, two) = rest.split_once(' ').expect("two numbers");
        (one.parse().unwrap(), two.parse().unwrap())
    }

    #[allow(dead_code)]
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills the rank. Returns the time.
    #[allow(dead_code)]
    pub fn kill(&mut self) -> u64 {
        let at = clock();
        self.signal(rustix::process::Signal::KILL);
        self.child.wait().unwrap();
        at
    }

    /// Sends a line to the standard input of the rank.
    #[allow(dead_code)]
    pub fn send_line(&mut self, line: &str) {
        use std::io::Write as _;
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").unwrap();
    }

    pub fn assert_success(mut self) {
        let status = self.child.wait().unwrap();
        let said: Vec<_> = self.seen.drain(..).chain(self.lines.iter()).collect();
        assert!(status.success(), "{status}: {said:#?}");
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        if std::thread::panicking() {
            eprintln!("rank with process number {} said: {}", self.child.id(), errors.unwrap_or_default());
        }
    }
}

/// A job whose ranks this test started.
pub struct Job {
    pub ranks: Vec<Rank>,
    /// `None` if rank 0 is the server.
    _server: Option<Server>,
}

impl Job {
    /// Starts `size` ranks in a role, with variables set.
    pub fn start(size: u32, role: &str, variables: &[(&str, &str)]) -> Self {
        let mut base = Environment::singleton();
        let config = Config {
            size,
            job: base.job,
            key: base.key.clone(),
            name: Some(format!("towline-test-{:016x}", base.job)),
            listen: None,
            disconnect_ends_rank: true,
        };
        let server = Server::start(config, |_| {}).unwrap();
        (base.size, base.root) = (size, server.addresses().to_vec());
        let ranks = (0..size).map(|rank| start(command(&base, rank, role, &[]).envs(variables.iter().copied())));
        Self { ranks: ranks.collect(), _server: Some(server) }
    }

    /// Starts a rank in each of `namespaces`. Rank 0 serves the job at `address`.
    #[allow(dead_code)]
    pub fn start_apart(namespaces: &[&str], address: &str, role: &str, variables: &[(&str, &str)]) -> Self {
        let mut base = Environment::singleton();
        base.size = namespaces.len() as u32;
        base.root = vec![format!("tcp:{address}").parse().unwrap()];
        let ranks = (0..).zip(namespaces).map(|(rank, namespace)| {
            let mut command = command(&base, rank, role, &["ip", "netns", "exec", namespace]);
            start(command.env("TOWLINE_LISTEN", address).envs(variables.iter().copied()))
        });
        Self { ranks: ranks.collect(), _server: None }
    }
}

/// The command that starts a rank of a job, with the words `before` in front.
fn command(base: &Environment, rank: u32, role: &str, before: &[&str]) -> Command {
    let me = std::env::current_exe().unwrap();
    let mut words = before.iter().map(Into::into).chain([me.into_os_string()]);
    let mut command = Command::new(words.next().unwrap());
    let roots: Vec<String> = base.root.iter().map(ToString::to_string).collect();
    let key: String = base.key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    command
        .args(words)
        .args(["--exact", "as_rank", "--nocapture", "--include-ignored"])
        .env("ROLE", role)
        .env("RUST_BACKTRACE", "0")
        .env("TOWLINE_RANK", rank.to_string())
        .env("TOWLINE_SIZE", base.size.to_string())
        .env("TOWLINE_JOB", format!("{:016x}", base.job))
        .env("TOWLINE_KEY", key)
        .env("TOWLINE_ROOT", roots.join(","));
    command
}

fn start(command: &mut Command) -> Rank {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = towline_host_tests::relay::spawn(command).unwrap();
    let mut error = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = error.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let (sender, lines) = channel();
    let out = child.stdout.take().unwrap();
    std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines.into_iter().try_for_each(|line| sender.send(line))
    });
    Rank { child, lines, seen: VecDeque::new(), errors: Some(errors) }
}
