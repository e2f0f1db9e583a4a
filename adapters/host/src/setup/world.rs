//! The world: the communicator of all ranks, with the context that it lives in.

use std::future::Future;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use towline_bootstrap::report::Report;
use towline_core::pml::{Counters, Rails};
use towline_core::rail::Capabilities;

use crate::context::state::ContextState;
use crate::errors::error::Error;
use crate::errors::rejoin::RejoinError;
use crate::errors::setup::SetupError;
use crate::operations::communicator::Communicator;
use crate::threads::levels::{Single, ThreadLevel, Threads};
use crate::threads::lock::EngineLock;
use crate::values::address::Address;
use towline_settings::Setting;

/// The communicator of all ranks of the job, with this context's rank in it. [`init`](crate::init), a [`Builder`](crate::Builder)
/// or a [`Context`](crate::Context) makes it, and it is used as a [`Communicator`].
///
/// A world belongs to the thread that made it, unless it is of [`Multiple`](crate::Multiple) threads. All operations of the
/// context make progress while a thread is in one of its methods; [`progress`](Self::progress) does nothing else.
///
/// # The end
///
/// A world ends in one of these ways. [`run`](crate::run) takes the right one for most programs.
///
/// | | this rank | other ranks |
/// |---|---|---|
/// | [`finish`](Self::finish) | waits until all other ranks finish, too, and returns whether all went well | finish together |
/// | drop, as by `?` in `main` | Sends what was sent before, and waits for no other rank's program. It counts as finished | Their receives from it, and their sends to it, end with [`Error::PeerFinished`](crate::Error::PeerFinished), within a second if they wait |
/// | an error of the closure of [`run`](crate::run) | as a drop; the text is printed before | as for a drop, but with [`Error::PeerFailed`](crate::Error::PeerFailed) |
/// | drop by a panic | does not wait | operations with it end with [`Error::PeerFailed`](crate::Error::PeerFailed) |
/// | [`abort`](Self::abort) | exits | the launcher ends them |
///
/// A message is sent before a drop if its send has returned, and also if its [request](crate::SendRequest) was dropped and the
/// other rank receives the message within half a second. For the launcher, only a panic, an abort or an exit status other than 0
/// is a failure. Where a rank has several contexts, each waits for the contexts of its index, and the last one tells the launcher.
/// If rank 0 runs the job's server itself, because there is no launcher, its drop also waits until the other ranks have ended.
///
/// # Forks
///
/// A world belongs to the process that made it. A child that was forked has a copy that refuses all operations, with
/// [`Error::Forked`](crate::Error::Forked). To drop the copy, to panic, or to end the child does not disturb the parent or other
/// ranks. The same holds for all other objects of the world. The child should not go on for long without running another program
/// (`exec`), since it keeps the parent's connections open: if the parent is killed meanwhile, other ranks learn of that from the
/// launcher only. [`Command`](std::process::Command), `posix_spawn` and `exec` have no such limits. The C library's `fork` is
/// noticed; a bare `clone` or `fork` system call is not. A child of a rank cannot join the job with [`init`](crate::init).
///
/// ```
/// let world = towline::init()?;
/// println!("rank {} of {}, by {:?}", world.rank(), world.size(), world.rails());
/// world.barrier()?; // a method of `Communicator`
/// world.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct World<L: Threads = Single> {
    all: Communicator<L>,
    /// The communicator of all contexts, if ranks have several.
    all_contexts: Option<Communicator<L>>,
}

impl<L: Threads> Deref for World<L> {
    type Target = Communicator<L>;

    #[inline]
    fn deref(&self) -> &Communicator<L> {
        &self.all
    }
}

impl<L: Threads> World<L> {
    pub(crate) fn new(all: Communicator<L>, all_contexts: Option<Communicator<L>>) -> Self {
        Self { all, all_contexts }
    }

    fn context(&self) -> &ContextState<L> {
        &self.all.handle.context
    }

    /// The address of this world's context: its rank, and its index among the contexts of the process.
    ///
    /// ```
    /// assert_eq!(towline::init()?.address(), towline::Address { rank: 0, index: 0 });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn address(&self) -> Address {
        self.context().grid.own
    }

    /// The thread level that was chosen with [`Builder::threads`](crate::Builder::threads).
    pub fn threads(&self) -> ThreadLevel {
        L::LEVEL
    }

    /// The progress thread, if there is one: see [`Builder::progress_thread`](crate::Builder::progress_thread).
    ///
    /// ```
    /// assert_eq!(towline::init()?.progress_thread(), None);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn progress_thread(&self) -> Option<ProgressThread> {
        self.context().engine.progress_thread_wakes().map(|wakes| ProgressThread { wakes })
    }

    /// How many contexts each rank has: one, unless it was built with [more](crate::Builder::contexts).
    ///
    /// ```
    /// assert_eq!(towline::init()?.contexts(), 1);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn contexts(&self) -> u32 {
        self.context().grid.contexts
    }

    /// The communicator of all contexts of all ranks, rank after rank: context i of rank r is rank `r * contexts + i` in it, as
    /// [`rank_of`](Communicator::rank_of) tells. Where each rank has one context, this is the world itself.
    ///
    /// ```
    /// use towline::{Any, Builder};
    ///
    /// let sum_of_all = |context: towline::Context| {
    ///     let world = context.enter();
    ///     let (all, own) = (world.all_contexts(), world.address().index);
    ///     all.send(all.rank_of((0, 0))?, 1, &own)?;
    ///     let (mut sum, mut word) = (0, [0u32]);
    ///     if all.rank() == 0 {
    ///         for _ in 0..all.size() {
    ///             let status = all.recv(Any, 1, &mut word)?;
    ///             assert_eq!(all.address_of(status.source)?.index, word[0]);
    ///             sum += word[0];
    ///         }
    ///     }
    ///     all.broadcast(0, &mut sum)?;
    ///     Ok::<u32, towline::Error>(sum)
    /// };
    /// let contexts = Builder::new().contexts(4)?;
    /// std::thread::scope(|threads| {
    ///     let threads: Vec<_> = contexts.into_iter().map(|context| threads.spawn(|| sum_of_all(context))).collect();
    ///     threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(6)));
    /// });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn all_contexts(&self) -> &Communicator<L> {
        self.all_contexts.as_ref().unwrap_or(&self.all)
    }

    /// The incarnation of this rank: 1, or more if the launcher has restarted the rank after an earlier process was killed or
    /// failed (`towline run --restart`). A restarted process should continue the work of the earlier process. It inherits no
    /// messages and no communicators from that process; it has only a new world.
    ///
    /// ```
    /// assert_eq!(towline::init()?.incarnation(), 1);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn incarnation(&self) -> u32 {
        self.context().launcher.incarnation
    }

    /// Waits, for at most `timeout`, until a rank was restarted; then accepts its new process, and returns its incarnation.
    ///
    /// **Messages.** From then on messages go to the new process and come from it, by new connections, and both sides number and
    /// match messages from the start. Nothing of the old process is received any more, not even a message that has arrived and
    /// was not received yet. The new process gets nothing that was sent before.
    ///
    /// **Operations in progress.** Operations with the old process end with [`Error::PeerFailed`](crate::Error::PeerFailed), now
    /// at the latest: the old process has died, whether this rank had noticed that or not. Posted receives from [any
    /// source](crate::Any) end so, too, unless the failure was noticed and [acknowledged](Communicator::acknowledge_failures)
    /// before. Receives that are posted later do not fail because of this death. Operations with other ranks are not affected.
    ///
    /// **Collective operations.** They work again when all remaining ranks have accepted the new process, and start from the same
    /// point. The program must agree on that point: a collective operation may have succeeded at one rank and failed at another.
    /// The new process returns from [`build`](crate::Builder::build) when all ranks have called this method. So treat this call
    /// like a collective operation. If one rank waits for the restarted rank in another operation instead, and a third rank waits
    /// for that one, all of them wait.
    ///
    /// **Communicators.** The new process is in the world, and in [`all_contexts`](Self::all_contexts), under its old rank. It is
    /// not in communicators that were made before by [`dup`](Communicator::dup) and [`split`](Communicator::split): operations
    /// with its rank there end with [`Error::Restarted`](crate::Error::Restarted), and so do receives from any source until the
    /// failure is [acknowledged](Communicator::acknowledge_failures). Drop such communicators, and make new ones together.
    ///
    /// If a rank has several contexts, each of them calls this; the new process is notified when all have. In ULFM a program
    /// shrinks the communicator, spawns a process and merges it. Here the rank stays the same, and no shrunk communicator is
    /// needed.
    ///
    /// ```no_run
    /// # fn work(world: &towline::World) -> Result<(), towline::Error> { world.barrier() }
    /// use std::time::Duration;
    ///
    /// let world = towline::init()?; // in a restarted process: when the others have accepted it
    /// while let Err(towline::Error::PeerFailed { rank }) = work(&world) {
    ///     world.rejoin(rank, Duration::from_secs(60))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RejoinError`]: the rank was not restarted in time, or cannot be reached. The rank's state is as before, or the rank
    /// counts as lost. The call may be repeated.
    pub fn rejoin(&self, rank: u32, timeout: std::time::Duration) -> Result<u32, RejoinError> {
        self.context().rejoin(rank, timeout)
    }

    /// Makes progress once, without waiting: handles frames that have arrived, and sends frames that wait. Returns how many
    /// events there were.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 1, b"x")?;
    /// assert_eq!(world.progress(), 1);
    /// # world.recv(0, 1, &mut [0u8])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn progress(&self) -> u32 {
        self.context().progress()
    }

    /// Runs a future to completion, with progress for all operations of this context. Sleeps while nothing comes. Other threads
    /// may wake the future.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let text = world.block_on(async {
    ///     let sending = world.isend(0, 1, "over there".to_string())?;
    ///     let (buffer, status) = world.irecv(0, 1, vec![0u8; 100])?.await?;
    ///     sending.await?;
    ///     Ok::<_, towline::Error>(buffer[..status.count::<u8>()].to_vec())
    /// })?;
    /// assert_eq!(text, b"over there");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the system refuses a descriptor to sleep on.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        L::block_on(&self.context().engine, future)
    }

    /// Has the current runtime of tokio wait for this context's transports, with an `AsyncFd`. Tasks of any runtime may then await
    /// operations of the context, and no thread of the library is needed to wake them. Without this call, a thread is started when
    /// an operation is first polled by a task of tokio. With the feature `tokio`.
    ///
    /// As for all I/O of tokio, a task that blocks the only thread of the runtime keeps other tasks from being woken. When the
    /// runtime ends, or when an operation is polled outside of a runtime of one thread, a thread takes over. Where there is a
    /// [progress thread](Self::progress_thread), that one wakes tasks anyway, and this call changes nothing.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    /// let text = runtime.block_on(async {
    ///     world.attach_tokio()?;
    ///     let receiving = world.irecv(world.rank(), 1, vec![0u8; 100])?;
    ///     world.isend(world.rank(), 1, "over there".to_string())?.await?;
    ///     let (buffer, status) = receiving.await?;
    ///     Ok::<_, Box<dyn std::error::Error>>(buffer[..status.count::<u8>()].to_vec())
    /// })?;
    /// assert_eq!(text, b"over there");
    /// # world.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The calling thread is in no runtime, or the system refuses a descriptor.
    ///
    /// # Panics
    /// If the I/O of the runtime is disabled: see `enable_io` of its builder.
    #[cfg(feature = "tokio")]
    pub fn attach_tokio(&self) -> std::io::Result<()> {
        self.context().check_process().map_err(std::io::Error::other)?;
        self.context().engine.lock().attach_tokio()
    }

    /// Waits until all other ranks finish, too, and until this rank's messages have been sent; then tells the launcher that this
    /// rank is done.
    ///
    /// Ranks that have left early, because their world was dropped, are not waited for. Messages that arrive during this call, and
    /// that no receive is posted for, are never received: a rank that waits to send such a message gets
    /// [`Error::PeerFinished`](crate::Error::PeerFinished).
    ///
    /// # Errors
    /// [`SetupError::Finish`] if some rank did not finish within [`Config::finish_timeout_ms`](crate::Config::finish_timeout_ms),
    /// [`SetupError::LostRanks`] if this rank noticed that others were lost before they had finished, [`SetupError::Unsent`] if
    /// messages of this rank could not be sent, [`SetupError::Bootstrap`] if the launcher cannot be reached.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(world.rank(), 0, b"goodbye")?;
    /// world.recv(world.rank(), 0, &mut [0u8; 7])?;
    /// world.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish(self) -> Result<(), SetupError> {
        self.end(|_| {})
    }

    /// As [`finish`](Self::finish). `report` gets an error before the launcher learns that this rank is done.
    pub(crate) fn end(&self, report: impl FnOnce(&SetupError)) -> Result<(), SetupError> {
        let context = self.context();
        if let Err(forked) = context.check_process() {
            let forked = SetupError::Forked(forked);
            report(&forked);
            return Err(forked);
        }
        if context.finished.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let outcome = context.finish(&self.all);
        context.engine.end_progress_thread();
        if let Err(why) = &outcome {
            report(why);
        }
        context.engine.lock().end_world(context.grid.total());
        context.launcher.finish(self.address())?;
        outcome
    }

    /// Leaves without waiting for other ranks, as a drop does, and says how that went.
    pub(crate) fn leave(self) -> Result<(), SetupError> {
        let context = self.context();
        if let Err(forked) = context.check_process() {
            return Err(SetupError::Forked(forked));
        }
        if context.finished.swap(true, Ordering::SeqCst) { Ok(()) } else { context.leave(false) }
    }

    /// Ends the world because its program has failed: as a drop, but other ranks take the end for a failure.
    pub(crate) fn fail(&self) {
        let context = self.context();
        if !context.is_copy()
            && !context.finished.swap(true, Ordering::SeqCst)
            && let Err(why) = context.leave(true)
        {
            log::warn!("rank {} did not leave normally: {why}", self.all.rank());
        }
    }

    /// Tells the launcher that the program of this rank fails, with the text of its error or panic.
    pub(crate) fn report_failing(&self, panic: bool, text: &str) {
        if !self.context().is_copy() {
            self.context().launcher.report_failing(panic, text);
        }
    }

    /// Asks the launcher to end all ranks with exit status `code` and to print `message`; then exits. A `code` of 0 counts as 1.
    /// In a child that was [forked](Self#forks), only the child ends.
    ///
    /// ```no_run
    /// let world = towline::init()?;
    /// world.abort(3, "the input makes no sense");
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn abort(&self, code: i32, message: &str) -> ! {
        let told = !self.context().is_copy() && self.context().launcher.abort(code, message).is_ok();
        if !told || self.all.size() == 1 {
            eprintln!("towline: {message}");
        }
        std::process::exit(if code == 0 { 1 } else { code })
    }

    /// All settings in force, with units, defaults and origins, as `towline info` lists them.
    pub fn settings(&self) -> &[Setting] {
        &self.context().settings
    }

    /// What this context is doing: the operations for which threads and futures wait, the others in progress, and the messages
    /// that have arrived and that no receive has taken. The report is a value with a text for people (`Display`) and JSON
    /// ([`to_json`](Report::to_json)). A launcher asks all ranks for it: see the manual's chapter
    /// [when it does not work](crate::manual::when_it_does_not_work).
    ///
    /// In a world of [`Multiple`](crate::Multiple) threads, one thread may see what the others wait for.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 7, b"not received")?;
    /// world.progress();
    /// let report = world.report();
    /// assert_eq!((report.unreceived[0].tag, report.unreceived[0].bytes), (7, 12));
    /// assert!(report.to_string().contains("not received: 1 message from rank 0 with tag 7 in the world, 12 bytes"));
    /// assert!(report.to_json().contains("\"tag\":7"));
    /// # world.recv(0, 7, &mut [0u8; 12])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(&self) -> Report {
        self.context().report()
    }

    /// Lines of text for people: for each rank, which transports reach it, and why each transport was chosen or not. Once this
    /// rank has sent something to a rank on this host, the line also says how long messages are copied.
    ///
    /// ```
    /// let world = towline::init()?;
    /// assert_eq!(world.transport_report(), ["peer 0: loopback taken (exclusivity 65536)"]);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn transport_report(&self) -> Vec<String> {
        self.context().transport_report()
    }

    /// The names of the rails in use, in the order in which they are polled.
    ///
    /// ```
    /// assert_eq!(towline::init()?.rails(), ["loopback"]);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn rails(&self) -> Vec<&'static str> {
        use towline_core::rail::Rail as _;
        let mut engine = self.context().engine.lock();
        let rails = engine.mtl.pml().rails_mut();
        (0..rails.polled()).filter_map(|index| Some(rails.rail(index)?.attributes().name)).collect()
    }

    /// The capabilities of each rail in use, in the order of [`rails`](Self::rails).
    ///
    /// ```
    /// use towline::Capabilities;
    ///
    /// assert!(towline::init()?.capabilities().iter().all(|rail| rail.contains(Capabilities::SEND)));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn capabilities(&self) -> Vec<Capabilities> {
        use towline_core::rail::Rail as _;
        let engine = self.context().engine.lock();
        let rails = engine.mtl.rails();
        rails.0.iter().take(rails.polled()).map(|rail| rail.attributes().capabilities).collect()
    }

    /// Enables or disables a rail, by its index among [`rails`](Self::rails). A disabled rail accepts nothing new; it still
    /// delivers what it accepted before, and frames that arrive by it are handled. Messages go by the other rails. Messages to a
    /// rank that no other rail reaches wait until the rail is enabled again.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.enable_rail(0, false)?; // a message to this rank would wait now
    /// world.enable_rail(0, true)?;
    /// world.send(0, 1, b"x")?;
    /// # world.recv(0, 1, &mut [0u8])?;
    /// assert!(world.enable_rail(9, false).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Rail`] if there is no such rail.
    pub fn enable_rail(&self, index: usize, on: bool) -> Result<(), Error> {
        self.context().check_process()?;
        self.context().engine.lock().mtl.enable_rail(index, on).map_err(Error::Rail)
    }

    /// The engine's counts of events so far.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 1, b"x")?;
    /// assert_eq!(world.counters().eager_sent, 1);
    /// # world.recv(0, 1, &mut [0u8])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counters(&self) -> Counters {
        *self.context().engine.lock().mtl.counters()
    }
}

impl<L: Threads> Drop for World<L> {
    fn drop(&mut self) {
        let context = self.context();
        if context.is_copy() {
            return;
        }
        // No normal end is reported for a panicking thread, so the launcher ends the other ranks, which would wait for this one.
        if std::thread::panicking() {
            return context.launcher.report_lost(self.address());
        }
        if !context.finished.swap(true, Ordering::SeqCst)
            && let Err(why) = context.leave(false)
        {
            log::warn!("rank {} did not leave normally: {why}", self.all.rank());
        }
    }
}

/// Statistics of a progress thread: see [`World::progress_thread`].
///
/// ```
/// let world = towline::Builder::new().progress_thread(true).build()?;
/// println!("the progress thread woke {} times", world.progress_thread().map_or(0, |thread| thread.wakes));
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProgressThread {
    /// How often it has woken from its sleep, because something came or a timer of a rail was due.
    pub wakes: u64,
}
