//! Ranks whose shared memory is full, or whose files may not be long: they use another transport, or get errors, at both ends.
//!
//! Each job has a `/dev/shm` of its own: a small file system in a mount namespace. Making it needs root or user namespaces; without
//! both, the tests say so and pass. Ranks are this test program itself in a role.

use std::io::Write;
use std::process::{Command, Output};

use towline::{Error, World};

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let world = match towline::init() {
        Ok(world) => world,
        Err(why) => {
            println!("\n@ not started: {why}");
            std::process::exit(9);
        }
    };
    let outcome = match role.as_str() {
        "exchange" => exchange(&world, number("BYTES"), 2),
        "first long later" => first_long_later(&world, number("BYTES")),
        "window" => window(&world, number("BYTES")),
        other => panic!("no role {other}"),
    };
    match outcome {
        Ok(()) => {
            println!("\n@ delivered");
            world.finish().unwrap();
            std::process::exit(0);
        }
        Err(why) => {
            println!("\n@ failed: {why}");
            std::process::exit(8);
        }
    }
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
    /// Most blocks of 1 KiB of a file, as `ulimit -f` takes it.
    file_limit: &'l str,
    bytes: usize,
    variables: &'l [&'l str],
}

impl Case<'_> {
    /// Runs the job. `None` where namespaces cannot be made.
    fn run(&self) -> Option<Output> {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("-Ur");
        }
        let script = "mount -t tmpfs -o \"$0\" tmpfs /dev/shm || exit 77; ulimit -f \"$1\"; shift; exec \"$@\"";
        command.args(["-m", "sh", "-c", script, self.room, self.file_limit, env!("CARGO_BIN_EXE_towline"), "run", "-n"]);
        command.arg(self.ranks.to_string()).args(["--keep-going", "--timeout", "300", "-e"]).arg(format!("ROLE={}", self.role));
        command.arg("-e").arg(format!("BYTES={}", self.bytes));
        self.variables.iter().for_each(|variable| drop(command.args(["-e", variable])));
        command.arg("--").arg(me).args(["--exact", "as_rank", "--nocapture"]);
        let output = command.output().ok()?;
        let made = output.status.code() != Some(77) && !String::from_utf8_lossy(&output.stderr).contains("unshare failed");
        if !made {
            // Written directly, since the test runner hides the output of tests that pass.
            let _ = writeln!(std::io::stderr(), "skipped a test: mount namespaces need the rights of root, or user namespaces");
        }
        made.then_some(output)
    }
}

const CASE: Case<'_> =
    Case { role: "exchange", ranks: 2, room: "size=256k", file_limit: "unlimited", bytes: 100_000, variables: &[] };

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
    assert!(text.matches("towline: warning").count() <= 1, "{what}");
    Some(text)
}

#[test]
fn p1_with_full_shared_memory_pairs_use_tcp() {
    for (room, bytes) in [("size=256k", 100_000), ("size=32k", 8), ("size=128k", 100_000), ("size=256k", 3 << 20)] {
        assert_all_delivered(&Case { room, bytes, ..CASE });
    }
}
