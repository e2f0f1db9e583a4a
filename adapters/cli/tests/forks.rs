//! Children that a rank forks: they may not use its world, and do not disturb it. Ranks are this test program itself in a role.

use std::error::Error as StdError;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output, Stdio};

use towline::{Access, Any, Builder, Error, Lost, MayOwn, Multiple, RejoinError, SetupError, Sum, World};

/// Transports, and how threads use the world.
const WAYS: [(&str, &str); 8] = [
    ("sm", "single"),
    ("tcp", "single"),
    ("udp", "single"),
    ("sm", "multiple"),
    ("tcp", "multiple"),
    ("sm", "progress"),
    ("tcp", "progress"),
    ("udp", "progress"),
];

type Outcome = Result<(), Box<dyn StdError>>;

/// The roles of ranks that this file starts. Without a role, as in a normal test run, it does nothing.
#[test]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let threads = std::env::var("THREADS").unwrap();
    match threads.as_str() {
        "single" => play(&role, Builder::new().build().unwrap()),
        "multiple" => play(&role, Builder::new().threads(Multiple).progress_thread(false).build().unwrap()),
        "progress" => play(&role, Builder::new().threads(Multiple).progress_thread(true).build().unwrap()),
        other => panic!("no threads {other}"),
    }
    .unwrap();
}

fn play<L: MayOwn<Vec<u8>>>(role: &str, world: World<L>) -> Outcome {
    match role {
        "all-calls" => all_calls(world),
        "panic" => panics(world),
        "programs" => programs(world),
        "outlived" => outlived(world),
        other => panic!("no role {other}"),
    }
}

/// Runs `body` in a child, and waits for the child's end. `body` panics if something is wrong.
fn in_child(body: impl FnOnce()) {
    let child = fork(body);
    let mut status = 0;
    // SAFETY: the status is a place of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has found something wrong, or was killed");
}

/// Runs `body` in a child. Returns the child's process number.
fn fork(body: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child ends by `_exit`, and runs no destructors of this thread's callers.
    match unsafe { libc::fork() } {
        0 => {
            let well = catch_unwind(AssertUnwindSafe(body)).is_ok();
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!well)) }
        }
        child => {
            assert!(child > 0, "no child");
            child
        }
    }
}

/// A second owner of a value of the parent, so that the child can drop it.
///
/// # Safety
/// The child does not drop the first one.
unsafe fn copy<T>(value: &T) -> T {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::read(value) }
}

/// The mappings of this process that it shares with others, and how many private ones are kept from children.
fn mappings() -> (Vec<String>, usize) {
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let fields = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    let (mut shared, mut kept, mut is_shared) = (Vec::new(), 0, false);
    for line in all.lines() {
        match &fields(line)[..] {
            [flags, rest @ ..] if flags == "VmFlags:" => {
                kept += usize::from(!is_shared && rest.iter().any(|it| it == "dc"))
            }
            [_, permissions, _, _, _, ..] if permissions.len() == 4 => {
                is_shared = permissions.ends_with('s');
                shared.extend(is_shared.then(|| line.to_string()));
            }
            _ => {}
        }
    }
    (shared, kept)
}

/// Rank 0 has all kinds of operations in progress. A child tries each call, and drops everything. Then the parent goes on.
fn all_calls<L: MayOwn<Vec<u8>>>(world: World<L>) -> Outcome {
    let part = world.dup()?;
    let window = world.window(64)?;
    let owned_window = world.window_over(vec![7u8; 64], Access::ANY)?;
    window.write(0, &[world.rank()])?;
    world.barrier()?;
    if world.rank() == 0 {
        let sending = world.issend(1, 5, vec![5u8; 100_000])?;
        let receiving = world.irecv(1, 6, vec![0u8; 8])?;
        let awaited = world.irecv(1, 6, vec![0u8; 8])?;
        let mut persistent = world.recv_init(1, 7, vec![0u8; 8]);
        persistent.start()?;
        let taken = world.mprobe(1, 2)?;
        let mut scoped = [0u8; 8];
        let parent = std::process::id();
        let (shared, kept) = mappings();
        assert!(kept > 0, "the engine's memory is kept from children");
        let over_sm = world.rails().contains(&"sm");
        assert!(!shared.is_empty() || !over_sm, "rings and windows are shared");
        world.scope(|scope| {
            let in_scope = scope.irecv(1, 8, &mut scoped)?;
            in_child(|| {
                assert_eq!(mappings(), (vec![], 0), "what peers share, and the engine's memory, is not the child's");
                let error = Error::Forked { process: parent };
                for comm in [&*world, &*part] {
                    try_messages(comm, &error);
                    try_collectives(comm, &error);
                }
                try_world(&world, &error);
                try_windows(&world, &window, &error);
                assert_eq!(owned_window.read(0, &mut [0u8; 1]), Err(error.clone()));
                // SAFETY: the parent's values are not dropped in the child.
                unsafe {
                    assert_eq!(copy(&sending).wait().unwrap_err().error, error);
                    assert_eq!(copy(&receiving).wait().unwrap_err().error, error);
                    assert_eq!(world.block_on(copy(&awaited)).unwrap_err().error, error);
                    assert_eq!(copy(&taken).recv(&mut [0u8; 8]), Err(error.clone()));
                    // A child of the child has no world either.
                    in_child(|| assert_eq!(world.send(1, 1, &[1u8]), Err(error.clone())));
                    assert_eq!(copy(&in_scope).wait().map(drop), Err(error.clone()));
                    assert_eq!(copy(&window).close(), Err(error.clone()));
                    let mut persistent = copy(&persistent);
                    assert_eq!(persistent.wait(), Err(error.clone()));
                    assert_eq!(persistent.start(), Err(error.clone()));
                    let finished = copy(&world).finish();
                    assert!(matches!(&finished, Err(SetupError::Forked(why)) if *why == error), "{finished:?}");
                }
            });
            in_child(|| {
                // SAFETY: as above.
                unsafe {
                    drop((copy(&sending), copy(&receiving), copy(&awaited), copy(&persistent), copy(&taken)));
                    drop((copy(&in_scope), copy(&owned_window), copy(&window), copy(&part), copy(&world)));
                }
            });
            world.send(1, 1, &[1u8])?;
            in_scope.wait().map(drop)
        })?;
        assert_eq!(scoped, [8; 8]);
        world.send(1, 1, &[1u8])?;
        assert_eq!(sending.wait()?, [5; 100_000]);
        assert_eq!(receiving.wait()?.0, [6; 8]);
        assert_eq!(world.block_on(awaited)?.0, [6; 8]);
        persistent.wait()?;
        let mut into = [0u8; 100_000];
        taken.recv(&mut into)?;
        assert_eq!(into, [2; 100_000]);
    } else {
        let early = world.isend(0, 2, vec![2u8; 100_000])?;
        // The parent's first message says that the child has ended.
        world.recv(0, 1, &mut [0u8; 1])?;
        world.send(0, 8, &[8u8; 8])?;
        world.recv(0, 1, &mut [0u8; 1])?;
        let (got, _) = world.recv_vec::<u8>(0, 5)?;
        assert_eq!(got, [5; 100_000]);
        world.send(0, 6, &[6u8; 8])?;
        world.send(0, 6, &[6u8; 8])?;
        world.send(0, 7, &[7u8; 8])?;
        early.wait()?;
    }
    // Everything works as if there had been no child.
    for rank in 0..2 {
        let mut word = [9u32];
        window.get(rank, 0, &mut word)?;
        assert_eq!(word, [rank]);
    }
    part.barrier()?;
    let mut sum = [1u64];
    world.allreduce(&mut sum, Sum)?;
    assert_eq!(sum, [2]);
    assert_eq!(owned_window.close()?, [7; 64]);
    window.close()?;
    drop(part);
    Ok(world.finish()?)
}

fn try_messages<L: MayOwn<Vec<u8>>>(comm: &towline::Communicator<L>, error: &Error) {
    let mut into = [0u8; 8];
    assert_eq!(comm.send(1, 1, b"x"), Err(error.clone()));
    assert_eq!(comm.ssend(0, 1, b"x"), Err(error.clone()));
    assert_eq!(comm.recv(Any, Any, &mut into).unwrap_err(), *error);
    assert_eq!(comm.recv(0, 1, &mut into).unwrap_err(), *error);
    assert_eq!(comm.recv_vec::<u8>(1, 1).unwrap_err(), *error);
    assert_eq!(comm.sendrecv(b"x", 1, 1, &mut into, 1, 1).unwrap_err(), *error);
    assert_eq!(comm.isend(1, 1, vec![1u8]).unwrap_err().error, *error);
    assert_eq!(comm.irecv(Any, 1, vec![1u8]).unwrap_err().error, *error);
    assert_eq!(comm.send_init(1, 1, vec![1u8]).start().unwrap_err(), *error);
    assert_eq!(comm.probe(Any, Any).unwrap_err(), *error);
    assert_eq!(comm.iprobe(1, Any).unwrap_err(), *error);
    assert_eq!(comm.mprobe(1, Any).unwrap_err(), *error);
    assert_eq!(comm.improbe(1, Any).unwrap_err(), *error);
    let scoped: Result<(), Error> = comm.scope(|scope| scope.isend(1, 1, b"x").map(drop));
    assert_eq!(scoped, Err(error.clone()));
    assert_eq!(comm.address_of(1), Err(error.clone()));
    assert_eq!(comm.rank_of((1, 0)), Err(error.clone()));
    assert_eq!((comm.lost(), comm.why_lost(1), comm.restarted()), (vec![], None::<Lost>, vec![]));
    comm.acknowledge_failures();
}

fn try_collectives<L: MayOwn<Vec<u8>>>(comm: &towline::Communicator<L>, error: &Error) {
    let (mut one, mut two) = ([1u32], [1u32, 2]);
    assert_eq!(comm.barrier(), Err(error.clone()));
    assert_eq!(comm.broadcast(0, &mut one), Err(error.clone()));
    assert_eq!(comm.allreduce(&mut one, Sum), Err(error.clone()));
    assert_eq!(comm.reduce(1, &mut one, Sum), Err(error.clone()));
    assert_eq!(comm.gather(0, &[1u32], &mut two), Err(error.clone()));
    assert_eq!(comm.scatter(0, &[1u32, 2], &mut one), Err(error.clone()));
    assert_eq!(comm.allgather(&[1u32], &mut two), Err(error.clone()));
    assert_eq!(comm.alltoall(&[1u32, 2], &mut two), Err(error.clone()));
    assert_eq!(comm.dup().map(drop), Err(error.clone()));
    assert_eq!(comm.split(None, 0).map(drop), Err(error.clone()));
}

fn try_world<L: MayOwn<Vec<u8>>>(world: &World<L>, error: &Error) {
    assert_eq!(world.progress(), 0);
    assert_eq!((world.rank(), world.size(), world.address().rank, world.incarnation()), (0, 2, 0, 1));
    assert_eq!(world.rejoin(1, std::time::Duration::MAX), Err(RejoinError::Forked(error.clone())));
    assert_eq!(world.transport_report(), [error.to_string()]);
    assert!(world.rails().is_empty() && world.capabilities().is_empty());
    assert_eq!(world.enable_rail(0, false), Err(error.clone()));
    assert_eq!(world.counters().eager_sent, 0);
    assert_eq!(world.progress_thread(), None);
    assert!(world.report().waits.is_empty());
    let again = towline::init();
    assert!(matches!(&again, Err(SetupError::Forked(why)) if why == error), "{again:?}");
}

fn try_windows<L: MayOwn<Vec<u8>>>(world: &World<L>, window: &towline::Window<L>, error: &Error) {
    assert_eq!(world.window(8).unwrap_err(), *error);
    let scoped: Result<(), Error> = world.window_scope(&mut [0u8; 8], Access::ANY, |_| Ok(()));
    assert_eq!(scoped, Err(error.clone()));
    assert_eq!(world.window_over(vec![1u8], Access::ANY).unwrap_err().error, *error);
    for rank in 0..2 {
        assert_eq!(window.put(rank, 0, &[9u32]), Err(error.clone()));
        assert_eq!(window.get(rank, 0, &mut [0u32]), Err(error.clone()));
        assert_eq!(window.fetch_and_op(rank, 0, towline::AtomicOp::Add, 1u32), Err(error.clone()));
        assert_eq!(window.compare_and_swap(rank, 0, 0u32, 1), Err(error.clone()));
        assert_eq!(window.accumulate(rank, 0, towline::AtomicOp::Add, &[1u32]), Err(error.clone()));
        assert_eq!(window.flush(rank), Err(error.clone()));
    }
    assert_eq!(window.flush_all(), Err(error.clone()));
    assert_eq!(window.read(0, &mut [0u32]), Err(error.clone()));
    assert_eq!(window.write(0, &[9u32]), Err(error.clone()));
}

/// A child panics with the world, while messages of the parent are on the way.
fn panics<L: MayOwn<Vec<u8>>>(world: World<L>) -> Outcome {
    let other = 1 - world.rank();
    for round in 0..5 {
        let sending = world.isend(other, 1, vec![round; 1_000_000])?;
        in_child(|| {
            // SAFETY: the parent's world is not dropped in the child.
            let own = unsafe { copy(&world) };
            let caught = catch_unwind(AssertUnwindSafe(move || {
                let _own = own;
                std::panic::resume_unwind(Box::new("in the child"));
            }));
            assert!(caught.is_err());
        });
        let mut into = vec![0u8; 1_000_000];
        world.recv(other, 1, &mut into[..])?;
        assert!(into.iter().all(|byte| *byte == round));
        sending.wait()?;
        world.barrier()?;
        // The child has the only reference to the world's state then.
        // SAFETY: as above.
        in_child(|| unsafe { drop(copy(&world)) });
    }
    Ok(world.finish()?)
}

/// Children that run other programs, or that end at once, while messages are on the way.
fn programs<L: MayOwn<Vec<u8>>>(world: World<L>) -> Outcome {
    let other = 1 - world.rank();
    for _ in 0..3 {
        let sending = world.isend(other, 1, vec![3u8; 1_000_000])?;
        assert!(Command::new("true").status()?.success());
        // With a function that runs before the program, the child is forked.
        // SAFETY: the function does nothing.
        let output = unsafe { Command::new("echo").pre_exec(|| Ok(())).arg("hello").output() }?;
        assert_eq!(output.stdout, b"hello\n");
        in_child(|| {});
        let mut into = vec![0u8; 1_000_000];
        world.recv(other, 1, &mut into[..])?;
        assert!(into.iter().all(|byte| *byte == 3));
        sending.wait()?;
    }
    Ok(world.finish()?)
}

/// Rank 1 is killed, while a child of it goes on.
fn outlived<L: MayOwn<Vec<u8>>>(world: World<L>) -> Outcome {
    world.barrier()?;
    if world.rank() == 1 {
        let held = std::env::var("HELD")?;
        fork(|| {
            // Until the test ends.
            let _ = std::fs::File::open(held).and_then(|mut held| held.read(&mut [0; 1]));
        });
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    assert_eq!(world.recv(1, 1, &mut [0u8; 1]), Err(Error::PeerFailed { rank: 1 }));
    println!("noticed");
    drop(world);
    std::process::exit(0)
}

fn job(role: &str, (transport, threads): (&str, &str), options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towline"));
    command.args(["run", "-n", "2", "--timeout", "120", "--transport", transport]).args(options);
    command.args(["-e", &format!("ROLE={role}"), "-e", &format!("THREADS={threads}"), "-e", "RUST_BACKTRACE=0"]);
    // A busy machine may delay a rank by seconds, and the launcher would report that another one waits for it.
    command.args(["-e", "TOWLINE_FINISH_REPORT_MS=0", "--"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "as_rank", "--nocapture"]).stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs a role in all ways. The jobs succeed, and the launcher has nothing to say.
fn succeeds(role: &str) {
    for way in WAYS {
        let output = job(role, way, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("towline"), "{role} {way:?}: {said}");
    }
}

#[test]
fn all_calls_in_a_child_say_that_it_was_forked_and_the_parent_goes_on() {
    succeeds("all-calls");
}

#[test]
fn a_child_that_panics_does_not_disturb_its_parent() {
    succeeds("panic");
}

#[test]
fn children_run_other_programs_while_messages_are_on_the_way() {
    succeeds("programs");
}

#[test]
fn a_killed_rank_is_noticed_although_a_child_of_it_goes_on() {
    for way in WAYS {
        let held =
            std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("held-{}-{}", std::process::id(), way.0));
        let _ = std::fs::remove_file(&held);
        rustix::fs::mkfifoat(rustix::fs::CWD, &held, rustix::fs::Mode::RWXU).unwrap();
        // Both ends are open, so that neither side waits for the other to open it.
        let open = std::fs::OpenOptions::new().read(true).write(true).open(&held).unwrap();
        let output = job("outlived", way, &["--keep-going", "-e", &format!("HELD={}", held.display())]);
        let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(out.contains("noticed"), "{way:?}: {out}{said}");
        assert!(said.contains("rank 1 (pid ") && said.contains("SIGKILL"), "{way:?}: {said}");
        drop(open);
        std::fs::remove_file(&held).unwrap();
    }
}
