//! Waiting takes no processor time: in a progress thread while the program makes no call, in blocked callers, and in tasks of any
//! executor. The tests of this file run one after the other, since they count the time of the whole process.

#[allow(dead_code)] // other tests use the rest
mod common;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use common::{jobs, ranks_with};
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::time::{ClockId, clock_gettime};
use towline::{Builder, Multiple, World};

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// The processor time of this process so far, in all of its threads.
fn taken() -> Duration {
    let taken = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(taken.tv_sec as u64, taken.tv_nsec as u32)
}

/// How many context switches this process made: one for each sleep, and one for each turn of a loop that yields, which takes
/// little processor time on a busy machine.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let count = |text: &str| -> u64 {
        let lines = text.lines().filter(|line| line.contains("ctxt_switches:"));
        lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    status.map(|text| count(&text)).sum()
}

/// A twentieth of a processor, and 200 switches a second, are far above what timers take, and below what any kind of
/// polling does on a machine that is idle, or that many share.
#[test]
fn p11_waiting_ranks_take_no_processor_time() {
    let _alone = ALONE.lock();
    let ways = [("sm", false), ("tcp", false), ("sm", true), ("tcp", true), ("udp", true)];
    let ways = ways.map(|(transport, thread)| (transport, thread, false));
    // Also those that wait for one of several operations.
    for (transport, thread, of_several) in ways.into_iter().chain([("sm", false, true), ("udp", true, true)]) {
        let shares = jobs(2, |rank, job| {
            let builder = Builder::new().transports(transport).threads(Multiple).progress_thread(thread);
            let world = builder.job(job).build().unwrap();
            world.sendrecv(&[1u8; 100], 1 - rank, 1, &mut [0u8; 100], 1 - rank, 1).unwrap();
            world.barrier().unwrap();
            let (begin, before, switched) = (Instant::now(), taken(), switches());
            if rank == 0 {
                // Makes no call of the library for a while; the other rank waits.
                std::thread::sleep(Duration::from_secs(1));
                world.send(1, 2, b"over").unwrap();
            } else if of_several {
                let mut receives = [1, 2, 3].map(|tag| world.irecv(0, tag, [0u8; 4]).unwrap());
                assert_eq!(world.wait_any(&mut receives), Some(1));
            } else {
                world.recv(0, 2, &mut [0u8; 4]).unwrap();
            }
            let elapsed = begin.elapsed().as_secs_f64();
            let taken = ((taken() - before).as_secs_f64() / elapsed, (switches() - switched) as f64 / elapsed);
            // No rank ends its thread before the other has counted.
            world.barrier().unwrap();
            world.finish().unwrap();
            taken
        });
        let (share, switches) = shares[0];
        println!(
            "{transport}, thread {thread}, of several {of_several}: {:.1} % of a processor, {switches:.0} switches a second",
            share * 100.0
        );
        assert!(share < 0.05 && switches < 200.0, "{transport}, thread {thread}, {of_several}");
    }
}

/// Counts how often a future is polled.
struct CountPolls<'a, F>(F, &'a AtomicU32);

impl<F: Future + Unpin> Future for CountPolls<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll(task)
    }
}

/// Ways to wait in a world of one thread until a message comes.
type Wait = (&'static str, fn(&World, &AtomicU32));

const WAITS: [Wait; 5] = [
    ("pollster", |world, polls| {
        pollster::block_on(CountPolls(world.irecv(0, 2, [0u8; 4]).unwrap(), polls)).unwrap();
    }),
    ("many tasks of futures::executor", |world, polls| {
        let last = world.irecv(0, 2, [0u8; 4]).unwrap();
        let others: Vec<_> = (3..20).map(|tag| world.irecv(0, tag, [0u8; 4]).unwrap()).collect();
        futures_executor::block_on(futures_util::future::select(join_all(others), CountPolls(last, polls)));
    }),
    ("a task that another task of tokio spawned", |world, polls| {
        let receiving = world.irecv(0, 2, [0u8; 4]).unwrap();
        let (local, wait) = (tokio::task::LocalSet::new(), CountPolls(receiving, polls));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(local.run_until(wait)).unwrap();
    }),
    ("our own executor, with wakers of its own inside", |world, polls| {
        let receive = CountPolls(world.irecv(0, 2, [0u8; 4]).unwrap(), polls);
        world.block_on([receive].into_iter().collect::<FuturesUnordered<_>>().next()).unwrap().unwrap();
    }),
    ("our own executor, after another thread woke it", |world, polls| {
        let mut receiving = world.irecv(0, 2, [0u8; 4]).unwrap();
        let mut thread = None;
        world
            .block_on(std::future::poll_fn(|task| {
                polls.fetch_add(1, Ordering::Relaxed);
                let waker = task.waker();
                thread.get_or_insert_with(|| {
                    let waker = waker.clone();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(200)); // the other thread sleeps by then
                        waker.wake();
                    })
                });
                pin!(&mut receiving).poll(task)
            }))
            .unwrap();
        thread.unwrap().join().unwrap();
    }),
];

/// As for blocked callers. A task is also polled only when something came, or when a timer is due: twice a second, and at a few
/// timers of the transports.
#[test]
fn p11_waiting_tasks_take_no_processor_time() {
    let _alone = ALONE.lock();
    for transport in ["sm", "tcp", "udp"] {
        for (name, wait) in WAITS {
            let build = |builder: Builder| builder.transports(transport).progress_thread(false);
            let counts = ranks_with(2, build, |world| {
                let polls = AtomicU32::new(0);
                world.sendrecv(&[1u8; 100], 1 - world.rank(), 1, &mut [0u8; 100], 1 - world.rank(), 1).unwrap();
                world.barrier().unwrap();
                let (begin, before, switched) = (Instant::now(), taken(), switches());
                if world.rank() == 0 {
                    std::thread::sleep(Duration::from_secs(1));
                    world.send(1, 2, b"over").unwrap();
                } else {
                    wait(&world, &polls);
                }
                let elapsed = begin.elapsed().as_secs_f64();
                let share = (taken() - before).as_secs_f64() / elapsed;
                let counts = (share, (switches() - switched) as f64 / elapsed, polls.into_inner());
                world.barrier().unwrap();
                world.finish().unwrap();
                counts
            });
            let ((share, switches, _), polls) = (counts[0], counts[1].2);
            println!("{transport}, {name}: {share:.3} of a processor, {switches:.0} switches a second, {polls} polls");
            assert!(share < 0.05 && switches < 200.0 && polls < 200, "{transport}, {name}");
        }
    }
}
