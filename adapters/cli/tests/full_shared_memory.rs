//! Ranks whose shared memory is full, or whose files may not be long: they use another transport, or get errors, at both ends.
//!
//! Each job has a `/dev/shm` of its own: a small file system in a mount namespace. Making it needs root or user namespaces;
//! without both, the tests say so and pass. Ranks are this test program itself in a role.

use std::io::Write;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use towline::{Error, World};

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let world = match towline::init() {
        Ok(world) => {
            note_up();
            wait_until_up(world.size());
            world
        }
        Err(why) => {
            note_up();
            println!("\n@ not started: {why}");
            std::process::exit(9);
        }
    };
    let outcome = match role.as_str() {
        "exchange" => exchange(&world, number("BYTES"), 2),
        "once" => exchange(&world, number("BYTES"), 1),
        "first long later" => first_long_later(&world, number("BYTES")),
        "block on" => world.block_on(async { exchange_async(&world, number("BYTES")).await }),
        "restart" => restart(&world, number("BYTES")),
        "window" => window(&world, number("BYTES")),
        other => panic!("no role {other}"),
    };
    match outcome {
        Ok(()) => {
            println!("\n@ delivered");
            let _ = world.finish(); // another rank may have failed
            std::process::exit(0);
        }
        Err(why) => {
            println!("\n@ failed: {why}");
            std::process::exit(8);
        }
    }
}

/// Notes that this rank has started, or could not.
fn note_up() {
    std::fs::write(up_file(&std::env::var("TOWLINE_RANK").unwrap()), "").unwrap();
}

/// Waits until all ranks have noted that, without messages: otherwise a rank that fails at once could end before others start.
fn wait_until_up(ranks: u32) {
    while !(0..ranks).all(|rank| up_file(&rank.to_string()).exists()) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn up_file(rank: &str) -> std::path::PathBuf {
    std::path::Path::new(&std::env::var("UP").unwrap()).join(rank)
}

/// The content of a message.
fn content(from: u32, to: u32, round: u32, bytes: usize) -> Vec<u8> {
    let seed = from * 1_000_003 + to * 10_007 + round * 101;
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8).collect()
}

/// Each rank exchanges messages with all others at the same time.
fn exchange(world: &World, bytes: usize, rounds: u32) -> Result<(), Error> {
    let own = world.rank();
    let others: Vec<u32> = (0..world.size()).filter(|other| *other != own).collect();
    for round in 0..rounds {
        let mut sends = Vec::new();
        for other in &others {
            sends.push(world.isend(*other, round, content(own, *other, round, bytes))?);
        }
        for other in &others {
            let mut into = vec![0; bytes];
            world.recv(*other, round, &mut into[..])?;
            assert!(into == content(*other, own, round, bytes), "another message came");
        }
        for send in sends {
            send.wait()?;
        }
    }
    Ok(())
}

/// Short messages first, for which there is room, and then long ones that need another ring.
fn first_long_later(world: &World, bytes: usize) -> Result<(), Error> {
    exchange(world, 8, 100)?;
    exchange(world, bytes, 3)?;
    exchange(world, 8, 100)
}

/// As [`exchange`], by futures.
async fn exchange_async(world: &World, bytes: usize) -> Result<(), Error> {
    let (own, other) = (world.rank(), 1 - world.rank());
    for round in 0..10 {
        let send = world.isend(other, round, content(own, other, round, bytes))?;
        let (into, _) = world.irecv(other, round, vec![0; bytes])?.await?;
        assert!(into == content(other, own, round, bytes), "another message came");
        send.await?;
    }
    Ok(())
}

/// Rank 1 dies after the first exchange, and its new process takes part in the second.
fn restart(world: &World, bytes: usize) -> Result<(), Error> {
    if world.incarnation() == 1 {
        exchange(world, bytes, 1)?;
        if world.rank() == 1 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        assert_eq!(world.recv(1, 99, &mut [0u8; 1]), Err(Error::PeerFailed { rank: 1 }));
        world.rejoin(1, std::time::Duration::from_secs(300)).unwrap();
    }
    exchange(world, bytes, 2)
}

/// Windows, whose memory is no file in `/dev/shm`.
fn window(world: &World, bytes: usize) -> Result<(), Error> {
    let next = (world.rank() + 1) % world.size();
    let window = world.window(bytes)?;
    let (own, from) = (content(world.rank(), next, 7, bytes), (next + world.size() - 2) % world.size());
    window.put(next, 0, &own[..])?;
    window.flush(next)?;
    world.barrier()?;
    let mut into = vec![0u8; bytes];
    window.get(world.rank(), 0, &mut into[..])?;
    assert!(into == content(from, world.rank(), 7, bytes), "another content");
    world.barrier()
}

/// A job.
struct Case<'l> {
    role: &'l str,
    ranks: u32,
    /// Options of the file system.
    room: &'l str,
    /// Most bytes of a file, as `prlimit` takes it.
    file_limit: &'l str,
    bytes: usize,
    variables: &'l [&'l str],
    /// Further options of `towline run`.
    options: &'l [&'l str],
}

impl Case<'_> {
    /// Runs the job. `None` where namespaces cannot be made.
    fn run(&self) -> Option<Output> {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("-Ur");
        }
        let script = "mount -t tmpfs -o \"$0\" tmpfs /dev/shm || exit 77; limit=$1; shift; exec prlimit --fsize=\"$limit\" \"$@\"";
        command.args([
            "-m",
            "sh",
            "-c",
            script,
            self.room,
            self.file_limit,
            env!("CARGO_BIN_EXE_towline"),
            "run",
            "-n",
        ]);
        command
            .arg(self.ranks.to_string())
            .args(["--keep-going", "--timeout", "300", "-e"])
            .arg(format!("ROLE={}", self.role));
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let name = format!("up-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let up = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // A process with the same number may have left one.
        let _ = std::fs::remove_dir_all(&up);
        std::fs::create_dir(&up).unwrap();
        command.arg("-e").arg(format!("BYTES={}", self.bytes)).arg("-e").arg(format!("UP={}", up.display()));
        for variable in self.variables {
            command.args(["-e", variable]);
        }
        command.args(self.options);
        command.arg("--").arg(me).args(["--exact", "as_rank", "--nocapture"]);
        let output = command.output();
        std::fs::remove_dir_all(up).unwrap();
        let output = output.ok()?;
        let made =
            output.status.code() != Some(77) && !String::from_utf8_lossy(&output.stderr).contains("unshare failed");
        if !made {
            // Written directly, since the test runner hides the output of tests that pass.
            let _ = writeln!(
                std::io::stderr(),
                "skipped a test: mount namespaces need the rights of root, or user namespaces"
            );
        }
        made.then_some(output)
    }
}

const CASE: Case<'_> = Case {
    role: "exchange",
    ranks: 2,
    room: "size=256k",
    file_limit: "unlimited",
    bytes: 100_000,
    variables: &[],
    options: &[],
};

/// How many ranks delivered everything, and what the job printed.
fn delivered(output: &Output) -> (usize, String) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (out.matches("@ delivered").count(), format!("{out}{err}"))
}

fn assert_all_delivered(case: &Case<'_>) -> Option<String> {
    let output = case.run()?;
    let (count, text) = delivered(&output);
    let what = format!("{} ranks, {}, {}, {} B:\n{text}", case.ranks, case.room, case.file_limit, case.bytes);
    assert_eq!((output.status.code(), count), (Some(0), case.ranks as usize), "{what}");
    assert!(text.matches(WARNING).count() <= 1, "{what}");
    Some(text)
}

/// The warning of a pair that shared memory has no room for.
const WARNING: &str = "shared memory is used no more between ranks";
const ONLY_SM: &[&str] = &["TOWLINE_TRANSPORTS=sm"];

#[test]
fn p1_with_full_shared_memory_everything_arrives() {
    for (room, bytes) in [("size=256k", 100_000), ("size=32k", 8), ("size=128k", 100_000), ("size=256k", 3 << 20)] {
        if assert_all_delivered(&Case { room, bytes, ..CASE }).is_none() {
            return;
        }
    }
}

/// There is room for the control segments only, for one ring of two, or for the rings of short frames only; or too few files.
#[test]
fn p1_a_pair_without_a_ring_uses_tcp_and_the_job_is_warned_once() {
    for (ranks, room, bytes, role) in [
        (2, "size=8k", 8, "exchange"),
        (3, "size=12k", 100_000, "exchange"),
        (2, "size=16k", 100_000, "exchange"),
        (2, "size=24k", 3 << 20, "first long later"),
        (3, "size=64k,nr_inodes=6", 300_000, "exchange"),
        (3, "size=12k", 100_000, "window"),
    ] {
        let Some(text) = assert_all_delivered(&Case { ranks, room, bytes, role, ..CASE }) else { return };
        let what = match room.contains("inodes") {
            true => ["no further file can be made in /dev/shm", "no free inode", "nr_inodes", "TOWLINE_SM_DIRECTORY"],
            false => ["no room for ", "free there", "TOWLINE_SM_", "--shm-size"],
        };
        let named = what.iter().all(|part| text.contains(part));
        assert!(named && text.matches(WARNING).count() == 1, "{room}: {text}");
    }
}

/// No rank is idle in such a job. If some ranks have no shared memory from the beginning, and others lack room for a ring later, there
/// is one warning, too.
#[test]
fn p1_a_short_job_is_warned_once() {
    for (ranks, room) in [(2, "size=64m,nr_inodes=4"), (2, "size=16k"), (4, "size=64m,nr_inodes=3")] {
        for (bytes, repetitions) in [(1, 4), (100_000, 2)] {
            for _ in 0..repetitions {
                let case = Case { role: "once", ranks, room, bytes, ..CASE };
                let Some(text) = assert_all_delivered(&case) else { return };
                assert_eq!(text.matches("towline: warning: ").count(), 1, "{room}, {bytes}: {text}");
            }
        }
    }
}

/// A file system in which no file can be made, and one that has room for the control segment of one rank only.
#[test]
fn p1_ranks_without_shared_memory_use_tcp_from_the_beginning() {
    for room in ["size=1m,nr_inodes=1", "size=4k"] {
        assert_all_delivered(&Case { ranks: 3, room, ..CASE });
    }
}

/// Threads wait for shared memory by a pipe, which needs a name in the file system.
#[test]
fn p1_waiting_threads_need_no_further_file_in_shared_memory() {
    let variables = &["TOWLINE_PROGRESS_THREAD=always"];
    assert_all_delivered(&Case { room: "size=1m,nr_inodes=3", variables, ..CASE });
    assert_all_delivered(&Case { room: "size=8k", variables, ..CASE });
    for room in ["size=1m,nr_inodes=3", "size=8k"] {
        assert_all_delivered(&Case { role: "block on", room, ..CASE });
    }
}

#[test]
fn p1_where_only_sm_is_named_both_ends_get_an_error_that_names_shared_memory() {
    for (room, bytes) in [("size=8k", 8), ("size=16k", 100_000), ("size=1m,nr_inodes=4", 100_000)] {
        let Some(output) = (Case { room, bytes, variables: ONLY_SM, ..CASE }).run() else { return };
        let (count, text) = delivered(&output);
        let errors = text.matches("@ failed: there is no room in shared memory").count();
        assert_eq!((output.status.code(), count, errors), (Some(8), 0, 2), "{room}: {text}");
        assert_eq!(text.matches(WARNING).count(), 1, "{room}: {text}");
    }
}

#[test]
fn p20_sixteen_ranks_use_shared_memory_of_64_mb() {
    assert_all_delivered(&Case { ranks: 16, room: "size=64m", variables: ONLY_SM, ..CASE });
}

#[test]
fn p7_a_restarted_rank_takes_part_again_although_shared_memory_is_full() {
    for room in ["size=8k", "size=16k", "size=64k"] {
        let case = Case { role: "restart", ranks: 2, room, options: &["--restart", "1"], ..CASE };
        let Some(output) = case.run() else { return };
        let (count, text) = delivered(&output);
        assert_eq!((output.status.code(), count), (Some(0), 2), "{room}: {text}");
    }
}

/// The kernel ends a process with a signal that makes a file longer than its limit. Rings shrink to the limit; below 8 KiB there
/// are none. The memory of windows is a file, too.
#[test]
fn p1_a_limit_on_the_size_of_files_is_kept_without_a_signal() {
    for (file_limit, role) in
        [("8192", "exchange"), ("4096", "exchange"), ("0", "exchange"), ("8192", "window"), ("0", "window")]
    {
        let case = Case { role, room: "size=64m", file_limit, ..CASE };
        if assert_all_delivered(&case).is_none() {
            return;
        }
    }
    assert_all_delivered(&Case { room: "size=64m", file_limit: "8192", bytes: 3 << 20, variables: ONLY_SM, ..CASE });
    let Some(output) = (Case { room: "size=64m", file_limit: "4096", variables: ONLY_SM, ..CASE }).run() else {
        return;
    };
    let text = delivered(&output).1;
    assert_eq!((output.status.code(), text.matches("@ not started: ").count()), (Some(9), 2), "{text}");
    assert!(
        text.contains("a file in /dev/shm needs 8192 bytes, but files of this process may have at most 4096"),
        "{text}"
    );
}

/// The launcher's own output may be a file, too. Its ranks have the signal as usual.
#[test]
fn a_launcher_whose_output_file_may_not_be_longer_is_not_ended_by_a_signal() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("output-{}", std::process::id()));
    let run = |script: &str| {
        let output = std::fs::File::create(&path).unwrap();
        let mut command = Command::new("prlimit");
        command.args(["--fsize=4096", env!("CARGO_BIN_EXE_towline"), "run", "-n", "1", "--", "sh", "-c", script]);
        let ended = command.stdout(output).output().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        (ended, text)
    };
    let (ended, text) = run("i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i + 1)); done");
    assert!(ended.status.code().is_some() && text.len() <= 4096, "{ended:?}");
    let (ended, text) = run("grep SigIgn /proc/self/status");
    let mask = text.split_ascii_whitespace().last().and_then(|mask| u64::from_str_radix(mask, 16).ok());
    assert_eq!((ended.status.code(), mask.map(|mask| mask >> 24 & 1)), (Some(0), Some(0)), "{text} {ended:?}");
}

/// Any number of ranks, any room, any length of messages: everything arrives, or all ranks that are concerned get errors. Part of
/// the thorough checks: `host-tests/scripts/full-memory`.
#[test]
#[ignore = "takes minutes; run by host-tests/scripts/full-memory"]
fn p1_any_room_ends_in_delivery_or_in_errors() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (cases, first) = (number("CASES", 100), number("SEED", 1));
    for seed in first..first + cases {
        let mut state = seed << 32;
        let mut below = |most: u64| {
            // The generator of the paper "SplitMix".
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) % most
        };
        let ranks = if below(3) == 0 { 2 + below(15) } else { 2 + below(4) };
        // From one page to 64 MiB, as likely short as long. A size of 0 would mean no limit.
        let pages = 1 << below(15);
        let mut room = format!("size={}k", 4 * (pages + below(pages)).min(16_384));
        if below(3) == 0 {
            room += &format!(",nr_inodes={}", 1 + below(4 * ranks * ranks));
        }
        // From 1 B to 4 MiB, and at most 64 MiB in all.
        let most = ((64 << 20) / (ranks * ranks)).min(4 << 20);
        let order = below(23);
        let bytes = (1 + below(1 << order)).min(most) as usize;
        let role = ["exchange", "first long later", "window", "exchange"][below(4) as usize];
        let only_sm = below(3) == 0;
        let file_limit = if below(8) == 0 { (below(128) << 10).to_string() } else { "unlimited".into() };
        let variables: &[&str] = match (only_sm, below(6)) {
            (true, _) => ONLY_SM,
            (_, 0) => &["TOWLINE_PROGRESS_THREAD=always"],
            (_, 1) => &["TOWLINE_SM_SINGLE_COPY_BYTES=8192"],
            _ => &[],
        };
        let (room, file_limit) = (&room[..], &file_limit[..]);
        let case = Case { role, ranks: ranks as u32, room, file_limit, bytes, variables, options: &[] };
        println!("seed {seed}: {role}, {ranks} ranks, {room}, files of {file_limit}, {bytes} B, {variables:?}");
        let Some(output) = case.run() else { return };
        let (count, text) = delivered(&output);
        let ended = count + text.matches("@ failed: ").count() + text.matches("@ not started: ").count();
        assert_eq!(ended, ranks as usize, "seed {seed}, status {:?}: {text}", output.status.code());
        assert!(only_sm || (count == ranks as usize && output.status.success()), "seed {seed}: {text}");
        assert!(text.matches(WARNING).count() <= 1, "seed {seed}: {text}");
    }
}
