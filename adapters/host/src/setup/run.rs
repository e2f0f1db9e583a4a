//! Programs as closures: the world is made before, and ended after them, and errors are reported at once.

use std::any::Any;
use std::error::Error;
use std::fmt::Display;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use crate::setup::builder::Builder;
use crate::setup::context::Context;
use crate::setup::world::World;
use crate::threads::levels::Threads;
use crate::values::address::Address;

/// Runs a program in the world of this process's environment, with all defaults: [`Builder::run`]. This is the usual `main` of a
/// program:
///
/// ```
/// fn main() -> std::process::ExitCode {
///     towline::run(|world| {
///         let next = (world.rank() + 1) % world.size();
///         world.send(next, 7, b"hello")?;
///         let mut into = [0u8; 5];
///         let status = world.recv(towline::Any, 7, &mut into)?;
///         println!("rank {}: {into:?} from {}", world.rank(), status.source);
///         Ok(())
///     })
/// }
/// ```
pub fn run(program: impl FnOnce(&World) -> Result<(), Box<dyn Error>>) -> ExitCode {
    Builder::new().run(program)
}

impl<L: Threads> Builder<L> {
    /// Builds a world, runs `program` in it, and ends the world. Returns the exit status for `main`.
    ///
    /// | the program | then |
    /// |---|---|
    /// | returns `Ok` | the world is [finished](World::finish), and the status is that of success |
    /// | returns an error | the text of the error and the rank are printed on standard error at once. The launcher learns both, and names this rank as the cause unless it failed because it lost another one. The world [ends](World#the-end) without waiting for others, who take that for a failure, and the status is 1 |
    /// | panics | the launcher learns the text; the world is dropped as by a panic, which goes on |
    ///
    /// A world that cannot be built, or that does not finish well, is reported like an error of the program. Any error type
    /// converts to the closure's by `?`, and so do strings. A program that needs a world of its own, or another exit status,
    /// calls [`build`](Self::build).
    ///
    /// ```
    /// use std::process::ExitCode;
    /// use towline::{Builder, Multiple};
    ///
    /// let status = Builder::new().threads(Multiple).transports("sm,tcp").run(|world| {
    ///     std::thread::scope(|threads| threads.spawn(|| world.barrier()).join().unwrap())?;
    ///     if world.size() == 0 {
    ///         return Err("there is no rank".into());
    ///     }
    ///     Ok(())
    /// });
    /// assert_eq!(format!("{status:?}"), format!("{:?}", ExitCode::SUCCESS));
    /// ```
    pub fn run(self, program: impl FnOnce(&World<L>) -> Result<(), Box<dyn Error>>) -> ExitCode {
        match self.build() {
            Ok(world) => exit_code(run_in(world, program)),
            Err(why) => report_no_world(&why),
        }
    }

    /// As [`run`](Self::run), with `count` [contexts](Self::contexts) and as many threads: each thread runs `program` in the
    /// world of its context.
    ///
    /// ```
    /// let status = towline::Builder::new().run_contexts(3, |world| {
    ///     let all = world.all_contexts();
    ///     all.barrier()?;
    ///     println!("{} of {} contexts", world.address(), all.size());
    ///     Ok(())
    /// });
    /// # assert_eq!(format!("{status:?}"), format!("{:?}", std::process::ExitCode::SUCCESS));
    /// ```
    pub fn run_contexts(
        self,
        count: u32,
        program: impl Fn(&World<L>) -> Result<(), Box<dyn Error>> + Sync,
    ) -> ExitCode {
        let contexts = match self.contexts(count) {
            Ok(contexts) => contexts,
            Err(why) => return report_no_world(&why),
        };
        let program = &program;
        let run = |context: Context<L>| move || run_in(context.enter(), program);
        let outcomes: Vec<_> = std::thread::scope(|threads| {
            let threads: Vec<_> = contexts.into_iter().map(|context| threads.spawn(run(context))).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        let mut all_well = true;
        for outcome in outcomes {
            // The panic of a thread has been printed, and ends the program as one of the main thread does.
            all_well &= outcome.unwrap_or_else(|panic| resume_unwind(panic));
        }
        exit_code(all_well)
    }
}

fn exit_code(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report_no_world(why: &dyn Display) -> ExitCode {
    print("towline", &why.to_string());
    ExitCode::FAILURE
}

/// Runs a program in a world, and ends the world. Returns whether all went well. Reports what did not.
fn run_in<L: Threads>(world: World<L>, program: impl FnOnce(&World<L>) -> Result<(), Box<dyn Error>>) -> bool {
    // After a panic the world is only dropped, and the panic goes on.
    let outcome = catch_unwind(AssertUnwindSafe(|| program(&world)));
    let report = |why: &dyn Display| {
        let why = why.to_string();
        print(&who(&world), &why);
        world.report_failing(false, &why);
    };
    match outcome {
        Ok(Ok(())) => world.end(|why| report(why)).is_ok(),
        Ok(Err(why)) => {
            report(&why);
            world.fail();
            false
        }
        Err(panic) => {
            world.report_failing(true, text_of(&*panic));
            resume_unwind(panic) // the world is dropped by it
        }
    }
}

/// Prints an error. Standard error may be closed.
fn print(who: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "{who}: {why}");
}

fn who<L: Threads>(world: &World<L>) -> String {
    match world.address() {
        Address { rank, .. } if world.contexts() == 1 => format!("rank {rank}"),
        address => address.to_string(),
    }
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a value that is no text")
}
