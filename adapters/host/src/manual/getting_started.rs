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
//! to size - 1. [`init`](crate::init) joins the job that the environment describes, and returns a [`World`](crate::World) when
//! all ranks are up. A process that no launcher started is a job of one rank, so every example of this manual also runs alone.
//!
//! ```
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let world = towline::init()?;
//!     let (rank, size) = (world.rank(), world.size());
//!     let (previous, next) = ((rank + size - 1) % size, (rank + 1) % size);
//!
//!     let mut received = [0u32];
//!     world.sendrecv(&[rank], next, 7, &mut received, previous, 7)?;
//!     assert_eq!(received, [previous]);
//!
//!     world.finish()?;
//!     Ok(())
//! }
//! ```
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
//! | `--timeout SECS` | the job ends after this time |
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
//! `[3]`.
//!
//! `towline doctor` checks what a job needs on this host, and with `--hosts FILE` on others: shared memory, limits, the right to
//! copy between processes, interfaces, the clock, the remote shell, and a job over all hosts. It says what to change.
//! `towline completions SHELL` prints completions, and `towline man DIR` writes manual pages.
//!
//! The exit status is 0 if all ranks ended well. Otherwise it is that of the first rank that failed (128 + n if signal n killed
//! it), 124 after the time limit, 126 or 127 if the program cannot be started, and 2 if the job cannot begin.
//!
//! Other launchers can start ranks, too. They set the variables that [`bootstrap`](crate::bootstrap) lists: the rank's
//! number, the size, the job's number and key, and the address of a server. Rank 0 can run that server itself. The threads of
//! one process can also be ranks of a job: see [`Builder::job`](crate::Builder::job).
//!
//! # The end of a job
//!
//! [`World::finish`](crate::World::finish) waits until all other ranks finish, too, and until the messages of this rank have
//! left; it then tells the launcher that this rank is done. Dropping the world does the same, but cannot report an error. A
//! rank that cannot go on must call [`World::abort`](crate::World::abort), since other ranks may be waiting for it. A rank
//! that panics is treated like a rank that was killed.
//!
//! So a program that returns early on one rank only, for example because of an error, must abort. The examples of the crate
//! do this:
//!
//! ```no_run
//! fn work(world: &towline::World) -> Result<(), towline::Error> {
//!     world.barrier()
//! }
//!
//! let world = towline::init()?;
//! if let Err(why) = work(&world) {
//!     world.abort(1, &format!("rank {}: {why}", world.rank())); // ends the job
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
//! threads of all processes send to each other), and `histogram` (counts the words of a file by fetch-and-add in a table over
//! all ranks).
//!
//! ```text
//! cargo build --release -p towline-cli -p towline --bins --examples
//! target/release/towline run -n 2 -- target/release/examples/ring
//! ```
