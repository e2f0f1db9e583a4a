//! The progress thread: it makes progress on an engine while no other thread does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::reporter::Reporting;
use crate::threads::shared_guard::SharedGuard;
use crate::threads::shared_state::SharedState;
use crate::waiting::no_unwind::no_unwind;
use crate::waiting::parker::Parker;

/// How long the progress thread waits after the last poll of a caller before it takes over, and sleeps on the wait set.
const GRACE: Duration = Duration::from_millis(1);

/// Starts the progress thread. It polls only after it was woken, until nothing comes any more.
pub(crate) fn start(shared: &Arc<SharedState>) -> std::io::Result<JoinHandle<()>> {
    let parker = Arc::new(Parker::new());
    shared.locked.lock().coordinator.set_progress_thread(Some(Arc::clone(&parker)));
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("towline".into()).spawn(move || no_unwind(|| run(&shared, &parker)))
}

/// Tells the progress thread to end.
pub(crate) fn stop(shared: &SharedState) {
    shared.stop.store(true, Ordering::SeqCst);
    let locked = shared.locked.lock();
    if let Some(parker) = locked.coordinator.progress_thread() {
        parker.unpark();
    }
    drop(locked);
    shared.wakeup.signal();
}

fn run(shared: &SharedState, parker: &Parker) {
    let mut engine = SharedGuard::for_progress_thread(shared);
    let mut quiet_since = engine.clock.renew();
    let mut sent = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        engine.notify_waiters();
        if engine.is_left_to_callers() {
            // So callers need not wake this thread when they leave, which would cost more than their operation.
            engine.pause_progress_thread(parker, GRACE);
            shared.wakes.fetch_add(1, Ordering::Relaxed);
            // The time does not count as quiet: callers look for ended contexts, too.
            quiet_since = engine.clock.renew();
            continue;
        }
        if engine.poll() != 0 || std::mem::replace(&mut sent, engine.frames_sent()) != engine.frames_sent() {
            quiet_since = engine.clock.now();
            engine.note_busy(|_| Reporting::ProgressThread);
            engine.yield_lock();
            continue;
        }
        let now = engine.clock.renew();
        let quiet = now.since(quiet_since);
        if engine.lose_ended_peer(now, quiet) {
            continue;
        }
        engine.report_if_asked(now, Reporting::ProgressThread);
        if let Some(most) = engine.arm(quiet) {
            let until = engine.sleep_until(now, most, None);
            engine.sleep_on_wait_set(now, until);
            shared.wakes.fetch_add(1, Ordering::Relaxed);
        } else {
            engine.pause(rustix::thread::sched_yield);
        }
    }
    engine.leave_progress_thread();
}
