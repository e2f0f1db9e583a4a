//! Getting started: build, start and end a job.
//!
//! # What you need
//!
//! Linux and Rust 1.95 or later. The dependency for cryptography (`ring`) needs a C compiler. The transport `verbs` also
//! needs cmake and libclang, and is built only with the feature `verbs`.
//!
//! # A job
//!
//! A *job* is a number of processes, the *ranks*, that are started together and know each other. Each rank has a number, from 0
//! to size - 1. [`run`](crate::run) joins the job that the environment describes, and runs a closure in its
//! [`World`](crate::World) when all ranks are up. A process that no launcher started is a job of one rank, so every example of
//! this manual also runs alone.
//!
//! ```
//! fn main() -> std::process::ExitCode {
//!     towline::run(|world| {
//!         let (rank, size) = (world.rank(), world.size());
//!         let (previous, next) = ((rank + size - 1) % size, (rank + 1) % size);
//!
//!         let mut received = [0u32];
//!         world.sendrecv(&[rank], next, 7, &mut received, previous, 7)?;
//!         assert_eq!(received, [previous]);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! [`Builder::run`](crate::Builder::run) does the same with settings of the program's own. A program may also make its world by
//! [`init`](crate::init), and end it by [`finish`](crate::World::finish).
//!
//! # The launcher
//!
//! ```text
//! cargo install --path adapters/cli
//! towline run -n 4 -- target/release/first-program
//! towline run --hosts FILE -- target/release/first-program
//! ```
//!
//! `towline run` starts the ranks, puts the number of the rank before each line of output, forwards signals, and ends all
//! ranks with a report when one of them dies. In the file of `--hosts` each line is `host [slots=N]`. Slots are filled in
//! order. Ranks on other hosts are started over ssh, unless `--rsh` names another command. Other options (`towline run
//! --help` lists all):
//!
//! | option | effect |
//! |---|---|
//! | `--transport sm,tcp` | only these transports: see [transports](super::transports) |
//! | `--links 3` | links per peer, for tcp, udp and verbs: see [faults](super::faults) |
//! | `-e NAME=VALUE` | an environment variable for all ranks |
//! | `--timeout SECS` | the job ends after this time, and the launcher prints what each rank waits for |
//! | `--grace SECS` | the time between SIGTERM and SIGKILL when the job ends |
//! | `--keep-going` | the other ranks go on when one fails |
//! | `--restart N` | a rank that was killed or failed is started again, at most N times |
//! | `--no-prefix` | output passes unchanged |
//! | `--tag-output` | each line begins with rank and stream, as with Open MPI |
//! | `--output DIR` | the output of each rank goes to files `rank.N.out` and `rank.N.err` in a directory |
//! | `--stdin RANK`, `all` or `none` | the ranks that read the launcher's standard input; without it, rank 0 |
//! | `--map-by slot`, `core` or `node` | fill the hosts one after another, with at most one rank for each core, or in turns |
//! | `--bind-to core` | each rank gets a core of its own |
//!
//! Lines of different ranks never mix. A line above 64 MiB is split, and each further piece of it begins with `[3+]` instead of
//! `[3]`. If unfinished lines of all ranks take more than 256 MiB together, the longest is split in the same way.
//!
//! `towline doctor` checks what a job needs on this host, and with `--hosts FILE` on others: shared memory, limits, the right to
//! copy between processes, interfaces, the clock, the remote shell, and a job over all hosts. It says what to change.
//! `towline completions SHELL` prints completions, and `towline man DIR` writes manual pages.
//!
//! The exit status is 0 if all ranks ended well. Otherwise it is that of the rank that caused the failure (128 + n if signal n
//! killed it), 124 after the time limit, 126 or 127 if the program cannot be started, and 2 if the job cannot begin.
//!
//! When a rank fails, others soon fail because they lost it. The launcher holds its report until it knows the cause, for two
//! seconds at most. It names first a rank that a signal killed, or that failed although no other rank had failed before, with
//! the text of the error or panic where [`run`](crate::run) was used. The ranks that failed as a consequence are in one line
//! after it:
//!
//! ```text
//! towline: rank 1 (pid 4242 on node0) exited with status 101: it panicked: the input makes no sense; ending the job
//! towline: ranks 0 (status 1), 2 (status 1) failed as a consequence
//! ```
//!
//! Other launchers can start ranks, too. [mpirun, prterun and srun](super::launchers) need no preparation. Those without PMIx set the
//! variables that [`bootstrap`](crate::bootstrap) lists: the rank's
//! number, the size, the job's number and key, and the address of a server. Rank 0 can run that server itself. The threads of
//! one process can also be ranks of a job: see [`Builder::job`](crate::Builder::job).
//!
//! # The end of a job
//!
//! The closure of [`run`](crate::run) ends a rank in one of three ways:
//!
//! - It returns `Ok`. Then [`World::finish`](crate::World::finish) waits until all other ranks finish, too, and until the messages
//!   of this rank have left.
//! - It returns an error. Its text is printed at once, with the rank. What the rank has sent arrives; then it counts as failed for
//!   the others. The rank ends with status 1, and the launcher ends the job.
//! - It panics. The rank counts as killed.
//!
//! A program that calls [`init`](crate::init) calls `finish` itself. If it drops the world instead, as `?` in `main` does, the
//! rank sends what it has sent before, waits for no other rank, and leaves. Other ranks that wait for it, or send to it, get
//! [`Error::PeerFinished`](crate::Error::PeerFinished). Leaving is no failure: the exit status of the process decides. A rank that
//! exits without the destructor of the world (`std::process::exit`) has failed, as its last messages may be lost.
//!
//! [`World::abort`](crate::World::abort) ends the whole job, with an exit status of the program's choice.
//!
//! ```no_run
//! fn work(world: &towline::World) -> Result<(), towline::Error> {
//!     world.barrier()
//! }
//!
//! let world = towline::init()?;
//! if let Err(why) = work(&world) {
//!     world.abort(3, &format!("rank {}: {why}", world.rank())); // ends the job
//! }
//! world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//!
//! Each operation returns a `Result`. [`Error`](crate::Error) is for operations, [`SetupError`](crate::SetupError) for
//! joining and leaving a job. Error messages say what happened and what to do. [`Error::blame`](crate::Error::blame) says
//! whether the caller, a resource or a peer is at fault.
//!
//! # Settings
//!
//! The program changes settings with a [`Builder`](crate::Builder). Environment variables override the program, so a user can
//! change any setting without a new build: `TOWLINE_SPIN_US=0 towline run ...`. See [tuning](super::tuning).
//!
//! ```
//! let world = towline::Builder::new().transports("sm,tcp").links(2).configure(|config| config.requests = 1000).build()?;
//! # world.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Examples
//!
//! `adapters/host/examples` holds complete programs: `ring` (a token goes round), `filecast` (one rank streams a file to all
//! others, which verify its SHA-256), `heat2d` (the heat equation on a picture; halos with strided columns), `contexts` (all
//! threads of all processes send to each other), `histogram` (counts the words of a file by fetch-and-add in a table over
//! all ranks), `mailbox` (windows of ranks that make no call, over DPUs), `tasks` (one rank gives tasks to the others, and
//! goes on when a DPU fails), and `restarts` (ranks go on with a rank that was restarted).
//!
//! ```text
//! cargo build --release -p towline-cli -p towline --bins --examples
//! target/release/towline run -n 2 -- target/release/examples/ring
//! ```
