//! Whole systems by `towline dpu up`: ranks, their DPUs, and a relay that loses frames. `scripts/systems` builds the programs of the
//! DPUs, and sets `TOWLINE_FIRMWARE_BOARD` to the board and `TOWLINE_FIRMWARE_DPU` to the program's path, or to the folder with the
//! programs of all boards, of which `TOWLINE_FIRMWARE_BOARD` is a list then.

mod asleep;
mod programs;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command as Process, ExitStatus, Output, Stdio};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use towline_core::convertor::Span;
use towline_dpu::{Mode as SendMode, Options, Source, Tag, Transport};
use towline_window::command::{Body, Command, Mode};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::header::at;
use towline_window::host::{Attaching, Host};
use towline_window::memory::Memory;
use towline_window::ring::{Pushed, START};

/// A wait that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// What is said when rank 1 has died.
const ENDED: &str = "towline: DPU 1 ends the session of a process that has died";
/// What the relay does in all tests.
const FAULTS: [&str; 8] = ["--lose", "5", "--double", "2", "--reorder", "5", "--seed", "7"];

fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        programs::build(&[&["-p", "towline-cli", "--bin", "towline"], &["-p", "towline", "--examples"]])
    })
}

fn example(name: &str) -> PathBuf {
    built().join("examples").join(name)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by scripts/firmware"))
}

/// `towline dpu up` with two DPUs. Options and program follow.
fn up() -> Process {
    up_of(2)
}

/// The same with that many DPUs.
fn up_of(ranks: u32) -> Process {
    let mut command = Process::new(built().join("towline"));
    command.args(["dpu", "up", "-n", &ranks.to_string(), "--timeout", "60"]);
    command.args(["--board", &variable("TOWLINE_FIRMWARE_BOARD")]);
    command.args(["--firmware", &variable("TOWLINE_FIRMWARE_DPU")]).args(FAULTS).stdin(Stdio::null());
    // They are no settings, so ranks would warn of them.
    command.env_remove("TOWLINE_FIRMWARE_BOARD").env_remove("TOWLINE_FIRMWARE_DPU");
    command
}

/// A temporary folder, which is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-up-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // of an earlier process with the same number, which was killed
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Checks that the relay has lost, doubled and reordered frames.
fn check_faults(said: &str) {
    let line = said.lines().find_map(|line| line.strip_prefix("towline: relay: ")).expect(said);
    let counts: Vec<u64> = line.split(", ").map(|part| part.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(counts.len() == 4 && counts.iter().all(|count| *count > 0), "{line}");
}

fn check(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    check_faults(&said);
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_file_arrives_unchanged_although_frames_are_lost() {
    let folder = Folder::new("cast");
    let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.0.join("input"), &bytes).unwrap();
    let mut command = up();
    command.arg("--").arg(example("filecast")).args(["input", "copies"]).current_dir(&folder.0);
    let out = check(&command.output().unwrap());
    let digests: Vec<_> = out.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert!(digests.len() == 2 && digests[0].len() == 64 && digests[0] == digests[1], "{out}");
    assert!(fs::read(folder.0.join("copies/1")).unwrap() == bytes);
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_picture_is_the_same_as_without_dpus() {
    let folder = Folder::new("heat");
    let (width, height) = (97u32, 61u32);
    let mut encoder = png::Encoder::new(File::create(folder.0.join("in.png")).unwrap(), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    let cells: Vec<u8> = (0..width * height * 3).map(|at| ((at * at + 7 * at) % 251 + at % 2 * 4) as u8).collect();
    writer.write_image_data(&cells).unwrap();
    writer.finish().unwrap();
    let heat = |command: &mut Process, output: &str| {
        command.arg(example("heat2d")).args(["in.png", "50", output]).current_dir(&folder.0);
        command.output().unwrap()
    };
    let alone = heat(&mut Process::new("env"), "alone.png");
    assert!(alone.status.success(), "{alone:?}");
    for transport in ["dpu", "dpu-frames"] {
        let name = format!("{transport}.png");
        check(&heat(up().args(["--transport", transport, "--"]), &name));
        assert!(fs::read(folder.0.join("alone.png")).unwrap() == fs::read(folder.0.join(name)).unwrap());
    }
}

/// The ranks that have a window make no call of the library: rank 0 finds their answers in it.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn windows_of_ranks_that_make_no_call_are_served() {
    let out = check(&up().arg("--").arg(example("mailbox")).args(["--letters", "30"]).output().unwrap());
    assert_eq!(out.trim_end(), "[0] 30 letters to each of 1 ranks, 1 of which made no call");
}

/// How many frames the relay has seen.
fn frames(said: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix("towline: relay: ")).expect(said);
    line.split(' ').next().unwrap().parse().unwrap()
}

/// Counts words with one-sided operations, of which the DPUs see only frames, and compares with a job of one rank.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn one_sided_operations_go_over_dpus_as_rails() {
    let folder = Folder::new("words");
    let text: String = (0..400).map(|at: u32| format!("word{} ", at.wrapping_mul(at) % 37)).collect();
    fs::write(folder.0.join("text"), text).unwrap();
    let alone = Process::new(example("histogram")).arg("text").current_dir(&folder.0).output().unwrap();
    let expected = String::from_utf8(alone.stdout).unwrap();
    assert!(expected.contains("word0"), "{expected}");
    for transports in ["dpu-frames", "tcp,dpu-frames"] {
        let mut command = up();
        command.args(["--transport", transports, "--no-prefix", "--"]).arg(example("histogram")).arg("text");
        let output = command.current_dir(&folder.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout) == expected, "{output:?}");
        // Beside tcp, short messages take the rail of less latency.
        assert!(transports != "dpu-frames" || frames(&said) > 400, "{said}");
    }
}

/// How much of the messages the DPUs get beside tcp depends on the time.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_file_goes_over_dpus_as_rails_alone_and_beside_tcp() {
    let folder = Folder::new("rails");
    let bytes: Vec<u8> = (0..1_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.0.join("input"), &bytes).unwrap();
    for (transports, least) in [("dpu-frames", 680), ("tcp,dpu-frames", 1)] {
        let mut command = up();
        command.args(["--transport", transports, "--"]).arg(example("filecast")).args(["input", "copies"]);
        let output = command.current_dir(&folder.0).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && frames(&said) >= least, "{transports}: {said}");
        assert!(fs::read(folder.0.join("copies/1")).unwrap() == bytes);
        fs::remove_dir_all(folder.0.join("copies")).unwrap();
    }
}

/// The firmware of either DPU is killed while both rails carry messages: tcp sends the frames again, and no message is lost.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn other_rails_take_over_from_a_dpu_that_fails() {
    for victim in [0, 1] {
        let folder = Folder::new("rail-killed");
        let (result, tasks) = (folder.0.join("result"), 1000);
        let script = r#"if [ "$TOWLINE_RANK" = 0 ]; then "$@" >"$0"; else "$@"; fi"#;
        let mut command = up();
        command.args(["--transport", "tcp,dpu-frames", "--", "sh", "-c", script]).arg(&result).arg(example("tasks"));
        command.args(["--tasks", &tasks.to_string(), "--bytes", "60000"]);
        let mut system = System::start(&mut command);
        let has_begun = |device| system.word(device, at::COMMANDS_TAKEN).wrapping_sub(START) > 300;
        wait("frames are on the way", || (has_begun(0) && has_begun(1)).then_some(()));
        // SAFETY: this sends a signal to another process.
        assert_eq!(unsafe { libc::kill(system.dpus[victim], libc::SIGKILL) }, 0);
        system.says(&[&format!("towline: DPU {victim} has ended")]);
        let (status, said) = system.end();
        assert!(status.success(), "{status}: {said}");
        let result = fs::read_to_string(result).unwrap();
        assert!(result.starts_with(&format!("{tasks} tasks, sum ")) && result.ends_with(" 0 repeated\n"), "{result}");
    }
}

/// Without another rail, both ranks end with an error that says what to do.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_job_over_dpus_as_rails_alone_says_that_one_has_failed() {
    let mut command = up();
    command.args(["--transport", "dpu-frames", "--keep-going", "--"]).arg(example("ring"));
    let system = System::start(command.args(["--rounds", "100000000"]));
    wait("both DPUs work", || (system.works(0) && system.works(1)).then_some(()));
    let has_begun = |device| system.word(device, at::COMMANDS_TAKEN).wrapping_sub(START) > 300;
    wait("frames are on the way", || (has_begun(0) && has_begun(1)).then_some(()));
    // SAFETY: this sends a signal to another process.
    assert_eq!(unsafe { libc::kill(system.dpus[1], libc::SIGKILL) }, 0);
    let (status, said) = system.end();
    assert_eq!(status.code(), Some(1), "{said}");
    for rank in 0..2 {
        let begin = format!("rank {rank} (pid ");
        let line = said.lines().find(|line| line.contains(&begin)).expect(&said);
        assert!(line.contains("the DPU of this process or of its peer has failed"), "{line}");
    }
    assert!(said.contains("TOWLINE_TRANSPORTS=tcp,dpu-frames"), "{said}");
}

/// The new process of a rank opens the DPU of the former one, and the other ranks add it again.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_restarted_rank_uses_its_dpu_again() {
    let questions = 60;
    let sum: u64 = (0..questions).map(|number: u64| number * number).sum();
    for transport in ["dpu", "dpu-frames"] {
        let mut command = up();
        command.args(["--transport", transport, "--restart", "1", "--"]).arg(example("restarts"));
        let output = command.args(["--questions", &questions.to_string()]).output().unwrap();
        let out = check(&output);
        assert_eq!(out, format!("[0] rank 0: sum {sum}, 1 restarts\n"), "{output:?}");
    }
}

/// Board linux has room for more than sixteen DPUs.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_job_has_twenty_ranks() {
    let boards = variable("TOWLINE_FIRMWARE_BOARD");
    if boards != "linux" {
        let output = up_of(20).args(["--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let why = if boards.contains(',') { "2 boards for 20 DPUs" } else { "room for 16 in all" };
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
        return;
    }
    for transport in ["dpu", "dpu-frames"] {
        let mut command = up_of(20);
        command.args(["--transport", transport, "--"]).arg(example("all_to_all"));
        let out = check(&command.args(["--rounds", "2", "--bytes", "2000"]).output().unwrap());
        assert!(out.starts_with("[0] 20 ranks, blocks of 2000 bytes"), "{out}");
    }
}

/// Frames that each link has carried.
fn by_link(said: &str) -> [u64; 2] {
    [0, 1].map(|link| {
        let begin = format!("towline: link {link}: ");
        let line = said.lines().find_map(|line| line.strip_prefix(&begin)).expect(said);
        line.split(' ').next().unwrap().parse().unwrap()
    })
}

/// A file of a megabyte has at least 680 fragments.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn two_links_share_a_file_and_one_goes_on_when_the_other_fails() {
    let folder = Folder::new("links");
    let bytes: Vec<u8> = (0..1_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(folder.0.join("input"), &bytes).unwrap();
    for cut in [None, Some("0:400")] {
        let mut command = up();
        command.args(["--links", "2"]).args(cut.map(|cut| ["--cut", cut]).iter().flatten());
        command.arg("--").arg(example("filecast")).args(["input", "copies"]).current_dir(&folder.0);
        let output = command.output().unwrap();
        check(&output);
        assert!(fs::read(folder.0.join("copies/1")).unwrap() == bytes);
        fs::remove_dir_all(folder.0.join("copies")).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let [first, second] = by_link(&said);
        match cut {
            None => assert!(first.min(second) >= 250, "{said}"),
            Some(_) => assert!((50..=400).contains(&first) && second >= 500, "{said}"),
        }
    }
}

/// Emulated boards speak the other protocol, too.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_ring_runs_over_ethernet_without_ip() {
    if variable("TOWLINE_FIRMWARE_BOARD").contains("linux") {
        let output = up().args(["--protocol", "ethernet", "--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("not for board linux"), "{said}");
        return;
    }
    let mut command = up();
    command.args(["--protocol", "ethernet", "--"]).arg(example("ring")).args(["--rounds", "100"]);
    check(&command.output().unwrap());
}

/// A system that runs, with the windows that it names.
struct System {
    process: Child,
    input: Option<ChildStdin>,
    /// File and offset of each window.
    windows: Vec<(PathBuf, u64)>,
    /// The process of each DPU.
    dpus: Vec<i32>,
    errors: BufReader<std::process::ChildStderr>,
}

impl System {
    fn start(command: &mut Process) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(process.stderr.take().unwrap());
        let (mut windows, mut dpus) = (Vec::new(), Vec::new());
        while windows.len() < 2 {
            let mut line = String::new();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "the system has ended");
            if let Some((_, place)) = line.split_once(", window ") {
                let (file, offset) = place.split_once(',').unwrap().0.rsplit_once('@').unwrap();
                windows.push((file.into(), offset.parse().unwrap()));
                dpus.push(line.split_once("process ").unwrap().1.split_once(',').unwrap().0.parse().unwrap());
            }
        }
        Self { dpus, input: process.stdin.take(), process, windows, errors }
    }

    /// Waits until all these texts were said, in any order.
    fn says(&mut self, texts: &[&str]) {
        let mut said = String::new();
        while !texts.iter().all(|text| said.contains(text)) {
            assert_ne!(self.errors.read_line(&mut said).unwrap(), 0, "the system has ended: {said}");
        }
    }

    /// Waits for its end. Returns its status, and what it has said since its start.
    fn end(mut self) -> (ExitStatus, String) {
        drop(self.input.take());
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap(), said)
    }

    /// The session that a DPU serves.
    fn session(&self, device: usize) -> u32 {
        self.word(device, at::SESSION)
    }

    /// Whether a DPU has a session that has taken some commands.
    fn works(&self, device: usize) -> bool {
        self.session(device) != 0 && self.word(device, at::COMMANDS_TAKEN) != START
    }

    fn word(&self, device: usize, at: u64) -> u32 {
        let (file, offset) = &self.windows[device];
        let mut word = [0; 4];
        File::open(file).unwrap().read_exact_at(&mut word, offset + at).unwrap();
        u32::from_le_bytes(word)
    }
}

/// The firmware of either DPU is killed while messages are on the way: the job goes on by other transports, and has the same result.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn a_job_goes_on_when_a_firmware_is_killed() {
    let (tasks, bytes) = (3000, 10_000);
    let sum = (0..tasks).flat_map(|number: u64| {
        let rest = (8..bytes).map(move |at: u64| u64::from(number.wrapping_mul(31).wrapping_add(at) as u8));
        number.to_le_bytes().map(u64::from).into_iter().chain(rest)
    });
    let sum: u64 = sum.sum();
    for victim in [0, 1] {
        let folder = Folder::new("firmware");
        let result = folder.0.join("result");
        let script = r#"if [ "$TOWLINE_RANK" = 0 ]; then "$@" >"$0"; else "$@"; fi"#;
        let mut command = up();
        command.args(["--", "sh", "-c", script]).arg(&result).arg(example("tasks"));
        command.args(["--tasks", &tasks.to_string(), "--bytes", &bytes.to_string()]);
        let mut system = System::start(&mut command);
        // A device that fails while a job starts ends it, with an error. A rank has executed fewer commands than this by then.
        let has_begun = |device| system.word(device, at::COMMANDS_TAKEN).wrapping_sub(START) > 300;
        wait("tasks are performed", || (has_begun(0) && has_begun(1)).then_some(()));
        // SAFETY: this sends a signal to another process.
        assert_eq!(unsafe { libc::kill(system.dpus[victim], libc::SIGKILL) }, 0);
        system.says(&[&format!("towline: DPU {victim} has ended")]);
        let (status, said) = system.end();
        assert!(status.success(), "{status}: {said}");
        let result = fs::read_to_string(result).unwrap();
        assert!(result.starts_with(&format!("{tasks} tasks, sum {sum}, ")), "{result}");
        assert!(!result.ends_with(" 0 repeated\n"), "the firmware was killed after the last task: {result}");
    }
}

/// The DPU of a rank that was killed has no session any more, and the other rank ends with an error.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn the_dpu_of_a_killed_rank_is_free_again() {
    let folder = Folder::new("killed");
    let script = r#"echo $$ >"$0/new-$TOWLINE_RANK"; mv "$0/new-$TOWLINE_RANK" "$0/$TOWLINE_RANK"; 
        [ "$TOWLINE_RANK" = 0 ] || exec "$@"
        "$@"; echo status of rank 0: $? >&2; cat"#;
    let mut command = up();
    command.args(["--keep-going", "--", "sh", "-c", script]).arg(&folder.0).arg(example("ring"));
    let mut system = System::start(command.args(["--rounds", "100000000"]));
    let victim = wait("rank 1 has started", || fs::read_to_string(folder.0.join("1")).ok());
    wait("both DPUs work", || (system.works(0) && system.works(1)).then_some(()));
    // SAFETY: this sends a signal to another process.
    assert_eq!(unsafe { libc::kill(victim.trim().parse().unwrap(), libc::SIGKILL) }, 0);
    system.says(&[ENDED, "status of rank 0: 1"]);
    wait("the DPU has no session any more", || (system.session(1) == 0).then_some(()));
    let (status, said) = system.end();
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{said}");
}

/// No launcher tells the other host of the death here: the ranks of the job do not use the DPUs, and this process is both hosts.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn the_dpu_of_a_host_that_died_tells_the_others() {
    let mut system = System::start(up().args(["--", "cat"]));
    let locks = [0, 1].map(|device| lock(&system.windows[device]));
    let mut hosts = [0, 1].map(|device| attach(&system.windows[device], 7 + device as u32));
    let [own, other] = introduce(&mut hosts);
    let body = Body { region: 0, at: hosts[0].card().layout.buffers, bytes: 4 };
    let receive = |comm, source| Command::Receive { comm, source, tag: 5, body };
    // Once they have talked, the devices are connected. A device that never was is given up after a minute only.
    begin(&mut hosts[1], 8, receive(other, 0));
    begin(&mut hosts[0], 9, Command::Send { comm: own, dest: 1, tag: 5, mode: Mode::Synchronous, body });
    hosts.iter_mut().for_each(|host| assert!(next(host).result.is_ok()));
    begin(&mut hosts[0], 2, receive(own, 1));
    begin(&mut hosts[1], 3, receive(other, 0));
    let [mut survivor, dead] = hosts;
    let [_, lock_of_dead] = locks;
    drop((dead, lock_of_dead));
    system.says(&[ENDED]);
    let end = next(&mut survivor);
    assert!(matches!(end, Completion { cookie: 2, result: Err(Failure::PeerFailed), failed: 1 }), "{end:?}");
    wait("the DPU has no session any more", || (system.session(1) == 0).then_some(()));
    assert_eq!(system.session(0), 7, "the other session goes on");
    // Another host uses the free DPU.
    let _lock = lock(&system.windows[1]);
    assert!(!card(&mut attach(&system.windows[1], 9)).is_empty());
    let (status, said) = system.end();
    assert!(status.success(), "{said}");
}

/// Bells go both ways: by the pipes of the system, and those of boards in the emulator by their consoles. Nothing else ends the sleeps, of
/// which each is longer than a test may last.
#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn bells_wake_the_dpus_of_a_system_and_their_hosts() {
    let mut command = up();
    let system = System::start(command.envs(asleep::SLEEPY).args(["--", "cat"]));
    for (device, (file, offset)) in system.windows.iter().enumerate() {
        let mut host = Transport::open_at(file, *offset, Options::default()).unwrap();
        let card = host.card().unwrap();
        host.add_peer(0, &card).unwrap();
        let comm = host.add_comm(1, &[0], 0).unwrap();
        let before = system.word(device, at::DEVICE_SLEEPS);
        let (mut round, mut slept) = (0_u32, 0);
        while slept < 100 || system.word(device, at::DEVICE_SLEEPS).wrapping_sub(before) < 200 {
            assert!(round < 100_000, "the host slept {slept} times");
            let mut answer = [0; 1];
            let sink = Span::contiguous((&raw mut answer).cast(), 4);
            // SAFETY: the words outlive the operations.
            let (received, sent) = unsafe {
                let received = host.irecv(comm, Source::Rank(0), Tag::Is(5), sink).unwrap();
                let question = Span::of(zerocopy::IntoBytes::as_bytes(&round));
                (received, host.isend(comm, 0, 5, SendMode::Synchronous, question).unwrap())
            };
            slept += asleep::wait_asleep(&mut host, received) + asleep::wait_asleep(&mut host, sent);
            assert_eq!(answer, [round]);
            round += 1;
        }
    }
    let (status, said) = system.end();
    assert!(status.success(), "{said}");
}

/// The lock that says that the host of a window lives.
fn lock((file, _): &(PathBuf, u64)) -> File {
    let lock = File::open(file).unwrap();
    lock.lock().unwrap();
    lock
}

fn attach((file, offset): &(PathBuf, u64), session: u32) -> Host<'static> {
    let window = File::options().read(true).write(true).open(file).unwrap();
    let bytes = (window.metadata().unwrap().len() - offset) as usize;
    // SAFETY: this maps new memory, which is never unmapped.
    let base = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, window.as_raw_fd(), *offset as i64)
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: the memory is mapped as long as this process lives, and no reference to it exists.
    let memory = unsafe { Memory::new(NonNull::new(base.cast()).unwrap(), bytes) }.unwrap();
    let mut attaching = Attaching::new(memory, session).unwrap();
    wait("the device serves its host", || attaching.poll())
}

fn wait<T>(what: &str, mut until: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = until() {
            return result;
        }
        assert!(start.elapsed() < LIMIT, "this did not happen in time: {what}");
        std::thread::yield_now();
    }
}

fn begin(host: &mut Host<'_>, cookie: u64, command: Command) {
    assert_eq!(host.command(cookie, &command), Ok(Pushed::Done));
}

fn next(host: &mut Host<'_>) -> Completion {
    wait("a command completes", || host.take().unwrap())
}

/// Executes a command, and returns its result. No other command is in progress.
fn call(host: &mut Host<'_>, command: Command) -> Done {
    begin(host, 1, command);
    let completion = next(host);
    assert_eq!(completion.cookie, 1);
    completion.result.unwrap()
}

fn card(host: &mut Host<'_>) -> Vec<u8> {
    let at = host.card().layout.buffers;
    let length = call(host, Command::Publish { into: Body { region: 0, at, bytes: 1024 } }).value;
    let mut card = vec![0; length as usize];
    host.memory().read(at, &mut card).unwrap();
    card
}

/// Introduces two devices to each other and to themselves. Returns the number of a communicator of both.
fn introduce(hosts: &mut [Host<'_>; 2]) -> [u32; 2] {
    let cards: Vec<_> = hosts.iter_mut().map(card).collect();
    let mut comms = [0; 2];
    for ((rank, host), comm) in (0..).zip(hosts).zip(&mut comms) {
        let at = host.card().layout.buffers;
        for (peer, card) in (0..).zip(&cards) {
            host.memory().write(at, card).unwrap();
            let card = Body { region: 0, at, bytes: card.len() as u64 };
            call(host, Command::AddPeer { peer, card });
        }
        let command = Command::AddCommunicator { context: 1, rank, size: 2, peers: Body::default() };
        *comm = call(host, command).value;
    }
    comms
}
