//! Other launchers: start under mpirun, prterun or srun, or by a runtime of your own.
//!
//! # Start under mpirun, prterun or srun
//!
//! A program of this library starts under any launcher that speaks PMIx, without `towline run` and without a change:
//!
//! ```text
//! mpirun -n 4 target/release/first-program           # Open MPI 4.1 and 5.0
//! prterun -n 4 target/release/first-program          # PRRTE
//! srun --mpi=pmix -n 4 target/release/first-program  # Slurm; not tested by this project
//! ```
//!
//! So a job uses the hosts that a resource manager has given it, and no daemon of this library runs there. The launcher starts the
//! ranks, and carries their cards and the job's key. Messages go over the transports of this library, as ever. Settings are
//! environment variables; `mpirun -x TOWLINE_TRANSPORTS` passes one on to other hosts.
//!
//! The PMIx library (`libpmix.so.2`; Debian: `libpmix2`) is loaded when a program starts in this way, and only then.
//! `TOWLINE_PMIX_LIBRARY` names another one. It should be that of the launcher.
//!
//! # Which bootstrap is used
//!
//! | the process has | it joins its job by |
//! |---|---|
//! | `TOWLINE_RANK` or another variable of a job | the own bootstrap: `towline run` has started it |
//! | `PMIX_NAMESPACE` and `PMIX_RANK` | PMIx |
//! | none of them | nothing: it is a job of its own |
//!
//! `TOWLINE_BOOTSTRAP` overrides this: `own` never uses PMIx, and `pmix` always does. `towline info start` says what a program would
//! use here and why, and which PMIx library there is; `mpirun -n 1 towline info start` says it for that launcher. Where PMIx is to be
//! used and does not work, [`Builder::build`](crate::Builder::build) fails, so that ranks never become several jobs of one rank.
//!
//! ```
//! use towline::{Bootstrap, Config};
//!
//! let chosen = Config::default().with_environment()?.chosen_bootstrap();
//! if chosen.bootstrap == Bootstrap::Alone {
//!     eprintln!("{chosen}");
//! }
//! # Ok::<(), towline::SetupError>(())
//! ```
//!
//! # What is different from `towline run`
//!
//! | | under a PMIx launcher |
//! |---|---|
//! | [`World::abort`](crate::World::abort) | the rank prints the text, and the launcher ends the job with the status |
//! | a rank fails | mpirun and prterun end the job, unless they are told not to (below) |
//! | a rank dies, and the others go on | they learn of it by their connections to it, and by events of the launcher. prterun sends these with `--runtime-options notifyerrors,recoverable`. mpirun of Open MPI 4.1 with `--enable-recovery` fails to send them with PMIx 4, so a rank without a connection to the dead one waits there |
//! | files of killed ranks in shared memory | the launcher's daemon removes them when the job has ended on its host, if it can (PMIx, `PMIX_REGISTER_CLEANUP`) |
//! | a rank leaves early | all ranks learn of it by an event; under mpirun of Open MPI 4.1 only those of the same host, and others by their connections |
//! | `towline run --restart`, [`World::rejoin`](crate::World::rejoin) | no rank is restarted |
//! | reports of all ranks on SIGQUIT, or when a rank waits in `finish` | none; [`World::report`](crate::World::report) is that of one rank |
//! | warnings | on standard error: those of the start once for the job, by rank 0, and later ones by the rank itself |
//! | messages that no receive has taken | each rank prints its own |
//!
//! # A runtime with an exchange of its own
//!
//! A runtime whose processes can already exchange bytes needs neither launcher. It implements
//! [`Exchange`](crate::bootstrap::Exchange), whose main function gathers bytes of all ranks, joins the job by
//! [`Job::over`](crate::bootstrap::Job::over), and passes it to [`Builder::job`](crate::Builder::job). In C this is
//! `towline_init_with`, with a structure of functions. Here the ranks are threads:
//!
//! ```
//! use std::sync::{Arc, Barrier, Mutex};
//! use std::time::{Duration, Instant};
//! use towline::Builder;
//! use towline::bootstrap::{Environment, Exchange, ExchangeFailure, Job};
//!
//! struct Threads(usize, Arc<(Barrier, Mutex<[Vec<u8>; 2]>)>);
//!
//! impl Exchange for Threads {
//!     fn gather(&mut self, own: &[u8], _deadline: Instant) -> Result<Vec<Vec<u8>>, ExchangeFailure> {
//!         let (barrier, given) = &*self.1;
//!         given.lock().unwrap()[self.0] = own.to_vec();
//!         barrier.wait();
//!         let all = given.lock().unwrap().to_vec();
//!         barrier.wait(); // before the next call overwrites them
//!         Ok(all)
//!     }
//!
//!     fn abort(&mut self, code: i32, message: &str) -> Result<(), ExchangeFailure> {
//!         eprintln!("{message}");
//!         std::process::exit(code)
//!     }
//! }
//!
//! let shared = Arc::new((Barrier::new(2), Mutex::default()));
//! std::thread::scope(|threads| {
//!     for rank in 0..2 {
//!         let exchange = Box::new(Threads(rank as usize, Arc::clone(&shared)));
//!         threads.spawn(move || {
//!             let environment = Environment::of_rank(rank, 2, Some(vec![0, 1])).unwrap();
//!             let job = Job::over(environment, exchange, Instant::now() + Duration::from_secs(60)).unwrap();
//!             let world = Builder::new().job(job).build().unwrap();
//!             let mut other = [0u32];
//!             world.sendrecv(&[rank], 1 - rank, 0, &mut other, 1 - rank, 0).unwrap();
//!             assert_eq!(other, [1 - rank]);
//!             world.finish().unwrap();
//!         });
//!     }
//! });
//! ```
//!
//! A runtime whose processes come and go one by one, and that carries the cards of each of them, uses
//! [`Worker`](crate::Worker) instead.
