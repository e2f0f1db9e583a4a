//! An engine that several threads share: the lock, and how threads wait without it. [`duty`](crate::waiting::wait_coordinator) tells who does what.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, RawWakerVTable, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use towline_core::time::{Duration as EngineDuration, Instant};

use crate::context::state::no_unwind;
use crate::engine::{Done, Engine, Entry};
use crate::threads::levels::{Awaited, Held, Lock, Pattern};
use crate::waiting::parker::{self, Parker};
use crate::waiting::wait_coordinator::{Charge, Duty};
use crate::waiting::wait_set::{Bed, Idle, LONGEST_NAP, Step};

/// An engine for several threads, and perhaps one more that makes progress when nobody else does.
pub(crate) struct Several {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the progress thread has, too.
struct Shared {
    room: Mutex<Room>,
    bed: Bed,
    bell: Arc<Bell>,
    /// The progress thread is to end.
    over: AtomicBool,
    /// How often that thread woke.
    wakes: AtomicU64,
}

/// What the lock is around.
struct Room {
    engine: Engine,
    duty: Duty<Instant>,
    /// Messages that threads wait for.
    probes: Vec<(Pattern, Call)>,
    /// Threads that wait for the end of one-sided operations, and how many had ended when those were last told.
    performers: Vec<Call>,
    performed: u64,
    /// Peers that were lost when those threads were last told.
    lost: u64,
    /// The engine is one thread's, beside the progress thread: others free no buffers, which may not be able to leave it.
    for_one: bool,
    /// What is to be done with code of users, by any thread that may, once it has told those who wait.
    outside: VecDeque<Done>,
}

// SAFETY: as for a `Context` on its way to its thread: everything in an engine was made for it and is reached through it
// alone, so whoever holds the lock is the only one. Rails of the program's own are `Send`, since the builder takes no others
// at this level, nor where a world of one thread has a progress thread; buffers of users that the engine may have to free are,
// by the bound `Takes` of the operations that give them, or are left to the only thread of users there is.
unsafe impl Send for Room {}

/// Wakes whoever sleeps for all.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn still(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

/// How a thread that waits is told.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Parker(Arc<Parker>),
    Bell(Arc<Bell>),
}

impl Call {
    pub fn call(&self) {
        match self {
            Self::Parker(parker) => parker.unpark(),
            Self::Bell(bell) => bell.ring(),
        }
    }
}

/// Whether it is that parker's, or the bell's, on which only one sleeps.
fn is_of(call: &Call, parker: Option<&Arc<Parker>>) -> bool {
    match (call, parker) {
        (Call::Parker(other), Some(parker)) => Arc::ptr_eq(other, parker),
        (Call::Bell(_), None) => true,
        _ => false,
    }
}

impl Lock for Several {
    type Guard<'a> = Guard<'a>;

    fn new(engine: Engine, thread: bool) -> std::io::Result<Self> {
        Self::make(engine, thread, false)
    }

    #[inline]
    fn hold(&self) -> Guard<'_> {
        self.shared.hold()
    }

    /// Each guard does it when it goes.
    #[inline]
    fn settle(&self) {}

    fn thread_wakes(&self) -> Option<u64> {
        self.thread.lock().as_ref().map(|_| self.shared.wakes.load(Ordering::Relaxed))
    }

    fn end_thread(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.shared.over.store(true, Ordering::SeqCst);
        let room = self.shared.room.lock();
        if let Some(parker) = room.duty.thread() {
            parker.unpark();
        }
        drop(room);
        self.shared.bell.ring();
        // One that panicked has ended the process.
        let _ = thread.join();
    }
}

impl Several {
    /// For the only thread that uses the engine, beside the progress thread.
    pub fn for_one(engine: Engine, thread: bool) -> std::io::Result<Self> {
        Self::make(engine, thread, true)
    }

    /// Where the engine is, for who holds it.
    pub fn engine(&self) -> *mut Engine {
        // SAFETY: no reference is made, only an address.
        unsafe { &raw mut (*self.shared.room.data_ptr()).engine }
    }

    fn make(mut engine: Engine, thread: bool, for_one: bool) -> std::io::Result<Self> {
        engine.beside.entries.reserve(64); // threads that wait, without allocating then
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let bed = Bed::for_several(&mut engine.mtl.pml().rails_mut().0, &bell)?;
        let shared = Arc::new(Shared {
            room: Mutex::new(Room {
                engine,
                duty: Duty::new(),
                probes: Vec::new(),
                performers: Vec::new(),
                performed: 0,
                lost: 0,
                for_one,
                outside: VecDeque::with_capacity(64), // as for those who wait
            }),
            bed,
            bell: Arc::new(Bell(bell)),
            over: AtomicBool::new(false),
            wakes: AtomicU64::new(0),
        });
        let started = thread.then(|| start(&shared)).transpose()?;
        Ok(Self { shared, thread: Mutex::new(started) })
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        self.end_thread();
    }
}

impl Shared {
    #[inline]
    fn hold(&self) -> Guard<'_> {
        Guard { shared: self, room: self.room.lock(), more_follows: false, is_thread: false, panic: None }
    }
}

/// The engine in the hands of one of its threads. When it goes, those are told whose requests are over, and someone looks after
/// the engine if anybody waits.
pub(crate) struct Guard<'a> {
    shared: &'a Shared,
    room: MutexGuard<'a, Room>,
    /// What was sent may wait for the next operation.
    more_follows: bool,
    /// The progress thread has it.
    is_thread: bool,
    /// Code of users panicked. That goes on once the engine is free, so when what this thread began is over.
    panic: Option<Box<dyn Any + Send>>,
}

impl Deref for Guard<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.room.engine
    }
}

impl DerefMut for Guard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.room.engine
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.tell();
        self.take_leave();
        if let Some(panic) = self.panic.take() {
            go_on(panic);
        }
    }
}

#[cold]
fn go_on(panic: Box<dyn Any + Send>) {
    // The process would end for a second one; this one has been reported as well.
    if !std::thread::panicking() {
        resume_unwind(panic);
    }
}

impl Held for Guard<'_> {
    fn turn(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        // Others wait for what this thread has begun: a rail or logger that panics in here would leave them waiting.
        no_unwind(|| {
            if self.room.duty.is_polled() {
                return self.park(awaited, until);
            }
            self.room.duty.note_poll();
            let now = self.clock.now();
            if self.mtl.progress(now) != 0 {
                idle.reset();
                self.note_busy();
                self.tell();
                self.make_way();
            } else if idle.count() {
                self.rest(idle, awaited, until);
            } else {
                self.make_way();
            }
        });
    }

    #[inline]
    fn more_follows(&mut self) {
        self.more_follows = true;
    }
}

impl Guard<'_> {
    /// Lets the lock go for a moment; whatever others do to the engine, this thread will look after it.
    fn aside<T>(&mut self, f: impl FnOnce() -> T) -> T {
        self.room.duty.step_aside();
        let value = MutexGuard::unlocked(&mut self.room, f);
        self.room.duty.step_back();
        value
    }

    /// Runs code of users, which may use the context, wait in it or for other threads, and panic. Others look after the engine
    /// meanwhile, as if this thread had gone: what it found before may not be so any more.
    #[cold]
    fn outside(&mut self, f: impl FnOnce()) {
        let thread = if self.is_thread { self.room.duty.thread().cloned() } else { None };
        if self.is_thread {
            self.room.duty.set_thread(None);
        }
        self.take_leave();
        let result = MutexGuard::unlocked(&mut self.room, || catch_unwind(AssertUnwindSafe(f)));
        if self.is_thread {
            self.room.duty.set_thread(thread);
        }
        match result {
            Ok(()) => {}
            Err(panic) if self.is_thread => resume_unwind(panic), // nobody would hear of it: the process ends
            Err(panic) => drop(self.panic.get_or_insert(panic)),
        }
    }

    /// Lets those have the engine who wait for the lock.
    #[inline]
    fn make_way(&mut self) {
        self.room.duty.step_aside();
        MutexGuard::bump(&mut self.room);
        self.room.duty.step_back();
    }

    /// Nothing came for a while: lets others run, or sleeps.
    #[cold]
    fn rest(&mut self, idle: &mut Idle, awaited: &Awaited<'_>, until: Option<Instant>) {
        self.give_up_retired();
        let (now, patience) = (self.clock.renew(), self.patience);
        if idle.is_broken(self.left()) {
            return self.make_way();
        }
        if self.aside(|| idle.step(&patience, now)) != Step::Sleep {
            return;
        }
        if self.room.duty.is_polled() || !self.room.duty.bed_is_free() {
            return self.park(awaited, until);
        }
        let span = idle.span(now);
        if let Some((lost, why)) = self.absent.as_mut().and_then(|absent| absent.next(now, span)) {
            self.mtl.pml().lose_peer(lost, why);
            self.tell();
        } else {
            self.sleep(awaited, now, span, until);
        }
    }

    /// Sleeps for all, until something comes, unless something is here.
    fn sleep(&mut self, awaited: &Awaited<'_>, now: Instant, span: EngineDuration, until: Option<Instant>) {
        if !self.register(awaited, Call::Bell(Arc::clone(&self.shared.bell))) {
            return;
        }
        if !awaited.is_over()
            && let Some(most) = self.arm(span)
        {
            let (shared, until) = (self.shared, self.sleep_until(now, most, until));
            self.room.duty.lie_down(until);
            MutexGuard::unlocked(&mut self.room, || shared.bed.sleep_for(until.since(now).as_nanos()));
            self.room.duty.get_up();
            shared.bell.still();
        }
        self.unregister(awaited, None);
        self.clock.renew();
    }

    fn sleep_until(&self, now: Instant, most: u64, until: Option<Instant>) -> Instant {
        let nap = now + EngineDuration::from_nanos(most);
        [self.mtl_poll_at(), until].into_iter().flatten().fold(nap, Instant::min)
    }

    fn mtl_poll_at(&self) -> Option<Instant> {
        self.mtl.rails().0.iter().filter_map(towline_core::rail::Rail::poll_at).min()
    }

    /// Waits until the awaited is there, or until this thread has to look after the engine.
    fn park(&mut self, awaited: &Awaited<'_>, until: Option<Instant>) {
        let until = match awaited {
            Awaited::Anything => Some(self.sleep_until(self.clock.now(), self.patience.nap(), until)),
            _ => until,
        };
        let timeout = until.map(|until| Duration::from_nanos(until.since(self.clock.renew()).as_nanos()));
        let parker = parker::own();
        if !self.register(awaited, Call::Parker(Arc::clone(&parker))) {
            return;
        }
        self.room.duty.park(&parker);
        self.take_leave();
        if !awaited.is_over() {
            MutexGuard::unlocked(&mut self.room, || parker.park(timeout));
        }
        self.room.duty.unpark(&parker);
        self.unregister(awaited, Some(&parker));
        self.clock.renew_coarsely();
    }

    /// Has this thread told when the awaited is there. False where code of users had to run first, which may have waited as
    /// this thread, or let others end what it waits for: then all is to be looked at anew. From this on the lock is not let go.
    #[must_use]
    fn register(&mut self, awaited: &Awaited<'_>, call: Call) -> bool {
        if self.tell() {
            return false;
        }
        match awaited {
            Awaited::Request(request) => {
                if let Some(former) = self.beside.entries.remove(&request.to_bits()) {
                    self.outside(|| drop(former));
                    return false;
                }
                self.beside.entries.insert(request.to_bits(), Entry::Thread(call));
                self.mtl.pml().notify(*request);
            }
            Awaited::Message(pattern) => self.room.probes.push((*pattern, call)),
            Awaited::Performances(told) => {
                if self.performances.told != *told {
                    return false;
                }
                self.room.performed = *told;
                self.room.performers.push(call);
            }
            Awaited::Anything => {}
            Awaited::Alarm(alarm) => alarm.asleep.store(true, Ordering::SeqCst),
        }
        // What is awaited may have come since it was last looked for: then this thread is called at once.
        self.tell();
        true
    }

    fn unregister(&mut self, awaited: &Awaited<'_>, parker: Option<&Arc<Parker>>) {
        match awaited {
            Awaited::Request(request) => drop(self.beside.entries.remove(&request.to_bits())),
            Awaited::Message(_) => {
                self.room.probes.retain(|(_, call)| !is_of(call, parker));
            }
            Awaited::Performances(_) => self.room.performers.retain(|call| !is_of(call, parker)),
            Awaited::Anything => {}
            Awaited::Alarm(alarm) => alarm.asleep.store(false, Ordering::SeqCst),
        }
    }

    /// Tells those whose requests are over, and those whose message came. Whether code of users ran, and others may have had
    /// the engine meanwhile.
    #[inline]
    fn tell(&mut self) -> bool {
        let ran = (!self.beside.entries.is_empty() || !self.room.outside.is_empty()) && self.tell_all();
        if !self.room.probes.is_empty() {
            self.tell_probes();
        }
        if !self.room.performers.is_empty() {
            self.tell_performers();
        }
        ran
    }

    #[cold]
    fn tell_all(&mut self) -> bool {
        let mut ran = false;
        loop {
            // First all threads, who may be what the code of users waits for.
            while let Some(done) = self.next_done() {
                match done {
                    Done::Call(call) => call.call(),
                    Done::Wake(waker) if is_alarm(&waker) => waker.wake(),
                    done => self.room.outside.push_back(done),
                }
            }
            let leaves = self.is_thread && self.room.for_one;
            let mine = self.room.outside.iter().position(|done| !leaves || !matches!(done, Done::Free(_)));
            let Some(done) = mine.and_then(|at| self.room.outside.remove(at)) else { return ran };
            self.outside(|| done.run());
            ran = true;
        }
    }

    #[cold]
    fn tell_probes(&mut self) {
        let room = &mut *self.room;
        // Who waits for a message of a peer that is lost finds out by itself.
        let lost = room.engine.mtl.counters().lost;
        let all = std::mem::replace(&mut room.lost, lost) != lost;
        for ((comm, source, tag), call) in &room.probes {
            if all || room.engine.mtl.iprobe(*comm, *source, *tag).is_some() {
                call.call();
            }
        }
    }

    /// A thread that looks for its own operation takes note of all that are over, so what counts is how many the others know of.
    #[cold]
    fn tell_performers(&mut self) {
        self.end_performances();
        let told = self.performances.told;
        if std::mem::replace(&mut self.room.performed, told) != told {
            self.room.performers.iter().for_each(Call::call);
        }
    }

    /// Before the lock is let go.
    #[inline]
    fn take_leave(&mut self) {
        if self.holds_back && !self.more_follows {
            self.mtl.pml().flush();
        }
        match self.room.duty.charge() {
            Charge::Nothing => {}
            Charge::Arm(until) => {
                // Who naps until there may be room will look soon.
                let naps = until.since(self.clock.now()) <= LONGEST_NAP;
                let armed = self.mtl.pml().arm() || (naps && self.mtl.pml().arm_rails());
                if !armed || self.mtl_poll_at().is_some_and(|due| due < until) {
                    self.room.duty.ring();
                    self.shared.bell.ring();
                }
            }
            Charge::Wake(parker) => parker.unpark(),
        }
    }
}

/// How long callers that poll may be gone before the progress thread sleeps in their place.
const GRACE: Duration = Duration::from_millis(1);

/// Starts the progress thread. It polls only after it was woken, until nothing comes any more.
fn start(shared: &Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let parker = Arc::new(Parker::new());
    shared.room.lock().duty.set_thread(Some(Arc::clone(&parker)));
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("towline".into()).spawn(move || no_unwind(|| look_after(&shared, &parker)))
}

fn look_after(shared: &Shared, parker: &Parker) {
    let mut engine = shared.hold();
    engine.is_thread = true;
    let mut quiet_since = engine.clock.renew();
    let mut left = 0;
    while !shared.over.load(Ordering::SeqCst) {
        engine.tell();
        if engine.room.duty.is_left_to_callers() {
            // To be woken by each caller that has done would cost it more than its operation.
            engine.room.duty.set_thread_waits(true);
            MutexGuard::unlocked(&mut engine.room, || parker.park(Some(GRACE)));
            engine.room.duty.set_thread_waits(false);
            shared.wakes.fetch_add(1, Ordering::Relaxed);
            // They look after who is absent as well.
            quiet_since = engine.clock.renew();
            continue;
        }
        if engine.poll() != 0 || std::mem::replace(&mut left, engine.left()) != engine.left() {
            quiet_since = engine.clock.now();
            engine.note_busy();
            engine.make_way();
            continue;
        }
        let now = engine.clock.renew();
        let span = now.since(quiet_since);
        if let Some((lost, why)) = engine.absent.as_mut().and_then(|absent| absent.next(now, span)) {
            engine.mtl.pml().lose_peer(lost, why);
        } else if let Some(most) = engine.arm(span) {
            let until = engine.sleep_until(now, most, None);
            engine.room.duty.lie_down(until);
            MutexGuard::unlocked(&mut engine.room, || shared.bed.sleep_for(until.since(now).as_nanos()));
            engine.room.duty.get_up();
            shared.bell.still();
            shared.wakes.fetch_add(1, Ordering::Relaxed);
        } else {
            engine.aside(rustix::thread::sched_yield);
        }
    }
    engine.room.duty.set_thread(None);
}

/// Tells a thread in [`block_on`] that its future wants to be polled.
#[derive(Debug)]
pub(crate) struct Alarm {
    rung: AtomicBool,
    asleep: AtomicBool,
    parker: Arc<Parker>,
    bell: Arc<Bell>,
}

/// What wakers of alarms have in common.
static ALARMS: OnceLock<&RawWakerVTable> = OnceLock::new();

/// Whether it can be told under the lock, since no code of users runs.
fn is_alarm(waker: &Waker) -> bool {
    ALARMS.get().is_some_and(|alarms| std::ptr::eq(*alarms, waker.vtable()))
}

impl Awaited<'_> {
    /// Whether it can be seen from here that what is awaited is there.
    fn is_over(&self) -> bool {
        matches!(self, Self::Alarm(alarm) if alarm.rung.load(Ordering::SeqCst))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            // It sleeps here or there.
            self.parker.unpark();
            self.bell.ring();
        }
    }
}

/// Runs a future to its end, with progress for all operations of the context.
pub(crate) fn block_on<F: Future>(several: &Several, future: F) -> F::Output {
    let bell = Arc::clone(&several.shared.bell);
    let (rung, asleep) = (AtomicBool::new(true), AtomicBool::new(false));
    let alarm = Arc::new(Alarm { rung, asleep, parker: parker::own(), bell });
    let waker = Waker::from(Arc::clone(&alarm));
    ALARMS.get_or_init(|| waker.vtable());
    let mut task = TaskContext::from_waker(&waker);
    let mut future = pin!(future);
    let mut idle = Idle::default();
    loop {
        if alarm.rung.swap(false, Ordering::SeqCst) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut task) {
                return output;
            }
            idle.reset();
        }
        let mut engine = several.hold();
        engine.clock.renew_coarsely();
        engine.turn(&mut idle, &Awaited::Alarm(&alarm), None);
    }
}
