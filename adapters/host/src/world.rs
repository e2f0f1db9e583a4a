//! The world: the communicator of all ranks, and the context that it lives in.

use std::future::Future;
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};
use towline_core::pml::{Counters, EnableError, Rails};
use towline_core::rail::Capabilities;

use crate::address::Address;
use crate::communicator::Communicator;
use crate::engine::Entry;
use crate::idle::{Bed, Idle};
use crate::rails::AnyRail;
use crate::setup::SetupError;
use crate::state::State;
use crate::threads::{Awaited, Held, Lock, Single, ThreadLevel, Threads};
use crate::tunables::Tunable;

/// All ranks of the job, and this process's (or thread's) place among them. Made by [`init`](crate::init), a
/// [`Builder`](crate::Builder), or a [`Context`](crate::Context) of several.
///
/// A world belongs to the thread that made it. Operations make progress while the thread is in one of its methods;
/// [`progress`](Self::progress) does nothing else.
///
/// When it is dropped it waits for all other ranks to come to their end too, and tells the launcher that this rank is
/// done, or where a rank has several contexts, the last of them does, and each waits for those of its index; [`finish`](Self::finish) does the same and says whether all went well. In a thread that panics neither happens: a
/// context among several is lost to the others, and when its process ends the launcher ends the job. A rank that cannot go on for another reason should call [`abort`](Self::abort): others may wait
/// for it, and it would wait for them.
#[derive(Debug)]
pub struct World<L: Threads = Single> {
    all: Communicator<L>,
    /// Where ranks have several contexts.
    everyone: Option<Communicator<L>>,
}

impl<L: Threads> Deref for World<L> {
    type Target = Communicator<L>;

    #[inline]
    fn deref(&self) -> &Communicator<L> {
        &self.all
    }
}

impl<L: Threads> World<L> {
    pub(crate) fn new(all: Communicator<L>, everyone: Option<Communicator<L>>) -> Self {
        Self { all, everyone }
    }

    fn context(&self) -> &State<L> {
        &self.all.place.context
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

    /// How many threads may use it: what was asked for with [`Builder::threads`](crate::Builder::threads).
    pub fn threads(&self) -> ThreadLevel {
        L::LEVEL
    }

    /// The progress thread, where there is one: see [`Builder::progress_thread`](crate::Builder::progress_thread).
    ///
    /// ```
    /// assert_eq!(towline::init()?.progress_thread(), None);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn progress_thread(&self) -> Option<ProgressThread> {
        self.context().engine.thread_wakes().map(|wakes| ProgressThread { wakes })
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

    /// All contexts of all ranks, rank after rank: context i of rank r is rank `r * contexts + i` here, as
    /// [`rank_of`](Communicator::rank_of) tells. Where each rank has one context, the world itself.
    ///
    /// ```
    /// use towline::{Any, Builder};
    ///
    /// let sum_of_all = |context: towline::Context| {
    ///     let world = context.enter();
    ///     let (everyone, own) = (world.everyone(), world.address().index);
    ///     everyone.send(everyone.rank_of((0, 0))?, 1, &own)?;
    ///     let (mut sum, mut word) = (0, [0u32]);
    ///     if everyone.rank() == 0 {
    ///         for _ in 0..everyone.size() {
    ///             let status = everyone.recv(Any, 1, &mut word)?;
    ///             assert_eq!(everyone.address_of(status.source)?.index, word[0]);
    ///             sum += word[0];
    ///         }
    ///     }
    ///     everyone.broadcast(0, &mut sum)?;
    ///     Ok::<u32, towline::Error>(sum)
    /// };
    /// let contexts = Builder::new().contexts(4)?;
    /// std::thread::scope(|threads| {
    ///     let threads: Vec<_> = contexts.into_iter().map(|context| threads.spawn(|| sum_of_all(context))).collect();
    ///     threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(6)));
    /// });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn everyone(&self) -> &Communicator<L> {
        self.everyone.as_ref().unwrap_or(&self.all)
    }

    /// Which life of this rank its process is: 1, or more where the launcher has started it again after an earlier one was
    /// killed or failed (`towline run --restart`). Then it is to take up the work of the earlier one, of which it has nothing:
    /// no communicator but the world, and no message.
    ///
    /// ```
    /// assert_eq!(towline::init()?.incarnation(), 1);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn incarnation(&self) -> u32 {
        self.context().launch.incarnation()
    }

    /// Takes a rank back whose process was started again, and gives its incarnation; waits for up to `timeout` until it is there.
    ///
    /// From then on messages go to its new process and come from it, by new connections, and both sides count and match from
    /// the start: of the old process nothing is received any more, also what had come from it and was not received, and the new
    /// one gets nothing that was sent before. Operations with the old process end with
    /// [`Error::PeerFailed`](crate::Error::PeerFailed), now at the latest: a rank that is back has died before, whether anybody
    /// had noticed or not. Others are untouched. Receives from [any source](crate::Any) that are posted end so, too, unless the
    /// death was noticed and [acknowledged](Communicator::acknowledge_failures) before; those that are posted from now on do
    /// not, as far as this rank's death is the reason.
    ///
    /// What the ranks do together works again when all that are left have taken it back, and begin at the same point: they agree
    /// on it, since a collective operation may have ended well at one and with an error at another. The new process comes back
    /// from [`build`](crate::Builder::build) when all have called this (each with the same care as a collective call: who waits for
    /// the rank in another operation, and keeps a third one waiting that has not taken it back, keeps all). It is in the world, and
    /// in [`everyone`](Self::everyone), under its old rank. It is not in communicators that others have made by
    /// [`dup`](Communicator::dup) and [`split`](Communicator::split) before: operations with its rank there end with
    /// [`Error::Restarted`](crate::Error::Restarted), and so do receives from any source until that is
    /// [acknowledged](Communicator::acknowledge_failures). Drop them, and make new ones together.
    ///
    /// Where there are several contexts, each of them calls this for itself, and the rank is told when all have. In MPI's words:
    /// what ULFM leaves to spawning and merging, under the old rank, and without a shrunk communicator in between.
    ///
    /// ```no_run
    /// # fn work(world: &towline::World) -> Result<(), towline::Error> { world.barrier() }
    /// use std::time::Duration;
    ///
    /// let world = towline::init()?; // in its second life, when the others have taken it back
    /// while let Err(towline::Error::PeerFailed { rank }) = work(&world) {
    ///     world.readmit(rank, Duration::from_secs(60))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReadmitError`](crate::ReadmitError): the rank is not back in time, or not to be reached; it stays as it was, or lost,
    /// and this may be called again.
    pub fn readmit(&self, rank: u32, timeout: std::time::Duration) -> Result<u32, crate::ReadmitError> {
        self.context().readmit(rank, timeout)
    }

    /// Takes in what arrived and sends what waits, without waiting. Tells how many events there were.
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

    /// Runs a future to its end, with progress for all operations of this context; sleeps when there is none. Other
    /// threads may wake it.
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
    /// Where the system refuses a wait handle.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        L::block_on(self.context(), future)
    }

    /// Waits for all other ranks to come to their end too, and for this rank's messages to have left; then tells the
    /// launcher that it is done.
    ///
    /// # Errors
    /// [`SetupError::Finish`] where some rank did not come in time, [`SetupError::Bootstrap`] where the launcher could not
    /// be told.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(world.rank(), 0, b"a last word")?;
    /// world.recv(world.rank(), 0, &mut [0u8; 11])?;
    /// world.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish(self) -> Result<(), SetupError> {
        self.end()
    }

    fn end(&self) -> Result<(), SetupError> {
        let context = self.context();
        if context.finished.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let waited_ms = context.config.finish_timeout_ms;
        let deadline = context.engine.hold().deadline(waited_ms);
        let well = self.all.last_barrier(deadline) & context.drain(deadline) & context.leave(deadline);
        context.engine.end_thread();
        context.launch.finish(self.address())?;
        if well { Ok(()) } else { Err(SetupError::Finish { waited_ms: waited_ms.into() }) }
    }

    /// Asks the launcher to end all ranks with exit status `code` and to show `message`, and exits.
    ///
    /// ```no_run
    /// let world = towline::init()?;
    /// world.abort(3, "the input makes no sense");
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn abort(&self, code: i32, message: &str) -> ! {
        let told = self.context().launch.abort(code, message);
        if told.is_err() || self.all.size() == 1 {
            eprintln!("towline: {message}");
        }
        std::process::exit(if code == 0 { 1 } else { code })
    }

    /// All settings in force, with units, defaults and origins.
    pub fn tunables(&self) -> &[Tunable] {
        &self.context().tunables
    }

    /// Which transports reach each rank, and why each was taken or left: a line for each rank. Once something was sent to
    /// a rank of this host, also how long messages go there.
    ///
    /// ```
    /// let world = towline::init()?;
    /// assert_eq!(world.report(), ["peer 0: loopback taken (exclusivity 65536)"]);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn report(&self) -> Vec<String> {
        self.context().report()
    }

    /// Names of the rails in use, in the order in which they are polled.
    ///
    /// ```
    /// assert_eq!(towline::init()?.rails(), ["loopback"]);
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn rails(&self) -> Vec<&'static str> {
        use towline_core::rail::Rail as _;
        let mut engine = self.context().engine.hold();
        let rails = engine.mtl.pml().rails_mut();
        (0..rails.count()).filter_map(|index| Some(rails.rail(index)?.attributes().name)).collect()
    }

    /// What each rail in use promises, as [`rails`](Self::rails) names them.
    ///
    /// ```
    /// use towline::Capabilities;
    ///
    /// assert!(towline::init()?.capabilities().iter().all(|rail| rail.contains(Capabilities::SEND)));
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn capabilities(&self) -> Vec<Capabilities> {
        use towline_core::rail::Rail as _;
        self.context().engine.hold().mtl.rails().0.iter().map(|rail| rail.attributes().capabilities).collect()
    }

    /// Enables or disables a rail, by its place among [`rails`](Self::rails). A disabled rail takes nothing new; what it was
    /// given before it still delivers, and what arrives by it is taken. Messages go by the other rails; to a rank that no
    /// other leads to they wait until it is enabled again, and so does whoever waits for them.
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
    /// [`EnableError`] where there is no such rail.
    pub fn enable_rail(&self, index: usize, on: bool) -> Result<(), EnableError> {
        self.context().engine.hold().mtl.enable_rail(index, on)
    }

    /// Counts of what the engine did so far.
    ///
    /// ```
    /// let world = towline::init()?;
    /// world.send(0, 1, b"x")?;
    /// assert_eq!(world.counters().eager_sent, 1);
    /// # world.recv(0, 1, &mut [0u8])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counters(&self) -> Counters {
        *self.context().engine.hold().mtl.counters()
    }
}

impl<L: Threads> Drop for World<L> {
    fn drop(&mut self) {
        // Others would wait for a rank that is in trouble; without its word the launcher ends them.
        if std::thread::panicking() {
            return self.context().launch.lose(self.address());
        }
        if let Err(why) = self.end() {
            log::warn!("rank {}: {why}", self.all.rank());
        }
    }
}

impl<L: Threads> State<L> {
    /// Lets everything that was said leave, also to contexts of another index, which go on. Tells whether it did.
    fn leave(&self, deadline: towline_core::time::Instant) -> bool {
        let mut idle = Idle::default();
        let mut engine = self.engine.hold();
        // The barrier was for all that a single context knows.
        while self.grid.contexts > 1 && !engine.mtl.pml().is_drained() {
            if engine.clock.renew() >= deadline {
                return false;
            }
            engine.turn(&mut idle, &Awaited::Anything, Some(deadline));
        }
        true
    }

    /// Waits until sends that nobody waits for have left. Tells whether they did.
    fn drain(&self, deadline: towline_core::time::Instant) -> bool {
        let mut idle = Idle::default();
        loop {
            self.settle();
            let mut engine = self.engine.hold();
            let orphans = engine.beside.entries.values().any(|entry| matches!(entry, Entry::UnackedFrame(_)));
            if !orphans {
                return true;
            }
            if engine.clock.renew() >= deadline {
                return false;
            }
            engine.turn(&mut idle, &Awaited::Anything, Some(deadline));
        }
    }
}

/// What a progress thread tells of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ProgressThread {
    /// How often it has woken from its sleep: by what came, or because a timer of a rail was due.
    pub wakes: u64,
}

/// Runs a future to its end in the only thread of a context.
pub(crate) fn block_on_alone<F: Future>(state: &State<Single>, future: F) -> F::Output {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("the system gives an eventfd");
    let alarm = Arc::new(Alarm { rung: AtomicBool::new(true), asleep: AtomicBool::new(false), bell });
    let former = sleep_on(state, &alarm.bell).expect("the system gives an epoll set");
    let waker = Waker::from(Arc::clone(&alarm));
    let mut task = TaskContext::from_waker(&waker);
    let mut future = pin!(future);
    let mut idle = Idle::default();
    let output = loop {
        if alarm.rung.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                break output;
            }
            idle.reset();
        }
        let mut engine = state.engine.hold();
        if engine.poll() != 0 {
            idle.reset();
        } else if idle.count() {
            engine.be_idle(&mut idle, || {
                alarm.asleep.store(true, Ordering::SeqCst);
                !alarm.rung.load(Ordering::SeqCst)
            });
            alarm.asleep.store(false, Ordering::SeqCst);
        }
        drop(engine);
        state.settle();
    };
    state.engine.hold().bed = former;
    output
}

/// Lets the engine be woken by a descriptor too; gives what it slept on before.
fn sleep_on(state: &State<Single>, bell: &OwnedFd) -> std::io::Result<Bed> {
    let mut engine = state.engine.hold();
    let naps = matches!(engine.bed, Bed::Naps);
    let rails = &mut engine.mtl.pml().rails_mut().0;
    let bed = if naps && rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) {
        Bed::Naps
    } else {
        Bed::epoll(rails, Some(bell))?
    };
    Ok(std::mem::replace(&mut engine.bed, bed))
}

/// Tells a sleeping thread that its future wants to be polled.
struct Alarm {
    rung: AtomicBool,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}
