//! Operations are awaited in executors of other libraries, over every transport, without a setting. The ranks are processes.

#[path = "common/processes.rs"]
mod processes;
#[path = "common/selection.rs"]
mod selection;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use futures_executor::LocalPool;
use futures_util::future::{join, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::task::{LocalSpawnExt, SpawnExt};
use processes::{Job, report};
use selection::transports;
use towline::{Builder, MayOwn, Multiple, Threads, World};

/// Transports, and the setting of the progress thread. Over udp there is one by default, which wakes tasks itself.
const WAYS: [(&str, &str); 4] = [("sm", "auto"), ("tcp", "auto"), ("udp", "auto"), ("udp", "never")];
/// Tasks that wait at the same time.
const TASKS: u32 = 4;

/// The program of the ranks that the tests of this file start. Without a role, as in a normal test run, it does nothing.
#[test]
#[ignore = "started by the other tests as their ranks"]
fn as_rank() {
    let Ok(role) = std::env::var("ROLE") else { return };
    let number = |name| std::env::var(name).map_or(0, |number| number.parse().unwrap());
    match role.as_str() {
        "one-thread" => in_turn(Rc::new(towline::init().unwrap()), &ONE_THREAD, number("FIRST")),
        "threads" => {
            let world = Builder::new().threads(Multiple).build().unwrap();
            in_turn(Arc::new(world), &THREADS, number("FIRST"));
        }
        _ => panic!("no role {role}"),
    }
    report("over");
}

/// Starts two ranks in this role over each transport, once for each executor that comes first.
fn every_way(role: &str, executors: usize) {
    for (index, (transport, progress_thread)) in ways().into_iter().enumerate() {
        // The first executor finds a world whose operations were not awaited before. A prime step, so that many come first.
        let first = (index * 5 % executors).to_string();
        let variables =
            [("TOWLINE_TRANSPORTS", transport), ("TOWLINE_PROGRESS_THREAD", progress_thread), ("FIRST", &first)];
        for mut rank in Job::start(2, role, &variables).ranks {
            rank.wait_for("over");
            rank.assert_success();
        }
    }
}

/// The ways of this file, or the transports that the machine has in addition.
fn ways() -> Vec<(&'static str, &'static str)> {
    match std::env::var("TOWLINE_TEST_WAYS") {
        Ok(_) => transports(&[]).into_iter().map(|transport| (transport, "auto")).collect(),
        Err(_) => WAYS.to_vec(),
    }
}

#[test]
fn p11_futures_of_a_world_of_one_thread_complete_in_every_executor() {
    every_way("one-thread", ONE_THREAD.len());
}

#[test]
fn p11_futures_of_a_world_of_many_threads_complete_in_every_executor() {
    every_way("threads", THREADS.len());
}

/// Runs a world's work in one executor.
type Run<W> = (&'static str, fn(&W));

fn in_turn<W>(world: W, executors: &[Run<W>], first: usize) {
    for (name, run) in executors.iter().cycle().skip(first).take(executors.len()) {
        report(name);
        run(&world);
    }
}

const ONE_THREAD: [Run<Rc<World>>; 8] = [
    ("pollster", |world| pollster::block_on(work(&**world, 0))),
    ("futures::executor::block_on", |world| futures_executor::block_on(work(&**world, 0))),
    ("smol::block_on", |world| smol::block_on(work(&**world, 0))),
    ("LocalPool", |world| {
        let mut pool = LocalPool::new();
        for task in 0..TASKS {
            let world = Rc::clone(world);
            pool.spawner().spawn_local(async move { work(&*world, task).await }).unwrap();
        }
        pool.run();
    }),
    ("smol::LocalExecutor", |world| {
        let executor = smol::LocalExecutor::new();
        let tasks = (0..TASKS).map(|task| executor.spawn(work(&**world, task)));
        smol::block_on(executor.run(join_all(tasks.collect::<Vec<_>>())));
    }),
    ("tokio, LocalSet", |world| {
        let local = tokio::task::LocalSet::new();
        for task in 0..TASKS {
            let world = Rc::clone(world);
            local.spawn_local(async move { work(&*world, task).await });
        }
        one_thread_of_tokio().block_on(local);
    }),
    ("tokio, LocalSet beside other threads", |world| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
        runtime.block_on(tokio::task::LocalSet::new().run_until(work(&**world, 0)));
    }),
    ("first our own executor, then another", |world| first_ours(&**world)),
];

const THREADS: [Run<Arc<World<Multiple>>>; 7] = [
    ("tokio, many threads", |world| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let tasks = (0..TASKS).map(|task| {
            let world = Arc::clone(world);
            runtime.spawn(async move { work(&*world, task).await })
        });
        let tasks: Vec<_> = tasks.collect();
        runtime.block_on(async { join_all(tasks).await.into_iter().for_each(|task| task.unwrap()) });
    }),
    ("tokio, one thread", |world| {
        let runtime = one_thread_of_tokio();
        let other = Arc::clone(world);
        let spawned = runtime.spawn(async move { work(&*other, 1).await });
        runtime.block_on(async { join(work(&**world, 0), spawned).await.1.unwrap() });
    }),
    ("pollster in several threads", |world| {
        std::thread::scope(|threads| {
            for task in 0..TASKS {
                threads.spawn(move || pollster::block_on(work(&**world, task)));
            }
        });
    }),
    ("futures::executor::block_on beside our own executor", |world| {
        std::thread::scope(|threads| {
            threads.spawn(|| world.block_on(work(&**world, 1)));
            futures_executor::block_on(work(&**world, 0));
        });
    }),
    ("LocalPool beside a blocking thread", |world| {
        std::thread::scope(|threads| {
            threads.spawn(|| blocking_work(world, 1));
            let mut pool = LocalPool::new();
            let other = Arc::clone(world);
            pool.spawner().spawn(async move { work(&*other, 2).await }).unwrap();
            pool.run_until(work(&**world, 0));
            pool.run();
        });
    }),
    ("smol, several threads", |world| {
        let executor = smol::Executor::new();
        let tasks = (0..TASKS).map(|task| executor.spawn(work(&**world, task)));
        let all = join_all(tasks.collect::<Vec<_>>());
        std::thread::scope(|threads| {
            let (end, ended) = smol::channel::bounded::<()>(1);
            threads.spawn(|| smol::block_on(executor.run(async move { ended.recv().await.unwrap_err() })));
            smol::block_on(executor.run(all));
            drop(end);
        });
    }),
    ("first our own executor, then another", |world| first_ours(&**world)),
];

fn one_thread_of_tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// The messages of one task: in turns, in both directions at once, to itself, and many at the same time.
async fn work<L: Threads + MayOwn<Vec<u8>>>(world: &World<L>, task: u32) {
    let (other, base) = (1 - world.rank(), task * 1000);
    for round in 0..12 {
        let (len, tag) = ([8, 5000, 200_000][round as usize % 3], base + round);
        if world.rank() == round % 2 {
            send(world, other, tag, len).await;
            receive(world, other, tag, len).await;
        } else {
            receive(world, other, tag, len).await;
            send(world, other, tag, len).await;
        }
    }
    let long = 300_000;
    join(send(world, other, base + 100, long), receive(world, other, base + 100, long)).await;
    for len in [8, 100_000] {
        let mut receiving = world.irecv(world.rank(), base + 101, vec![0u8; len]).unwrap();
        assert!(is_pending(&mut receiving).await);
        let sent = world.isend(world.rank(), base + 101, contents(len, base)).unwrap();
        assert!(receiving.await.unwrap().0 == contents(len, base));
        sent.await.unwrap();
    }
    // Each of these has a waker of its own.
    let receives = (0..20).map(|at| receive(world, other, base + 200 + at, 3000)).collect::<FuturesUnordered<_>>();
    let receives = receives.for_each(|()| async {});
    let sends = async {
        for at in (0..20).rev() {
            send(world, other, base + 200 + at, 3000).await;
        }
    };
    join(receives, sends).await;
}

/// The same messages by blocking calls.
fn blocking_work(world: &World<Multiple>, task: u32) {
    world.block_on(work(world, task));
}

async fn send<L: Threads + MayOwn<Vec<u8>>>(world: &World<L>, to: u32, tag: u32, len: usize) {
    world.isend(to, tag, contents(len, tag)).unwrap().await.unwrap();
}

async fn receive<L: Threads + MayOwn<Vec<u8>>>(world: &World<L>, from: u32, tag: u32, len: usize) {
    let (buffer, status) = world.irecv(from, tag, vec![0u8; len]).unwrap().await.unwrap();
    assert_eq!((status.source, status.tag), (from, tag));
    assert!(buffer == contents(len, tag), "{len} bytes");
}

/// The contents of a message. Other tests check each byte of messages.
fn contents(len: usize, tag: u32) -> Vec<u8> {
    vec![tag as u8; len]
}

/// Polls a future once. Returns whether it is not ready.
async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|task| Poll::Ready(std::pin::Pin::new(&mut *future).poll(task).is_pending())).await
}

/// A receive is polled in our own executor first, and completes in another one.
fn first_ours<L: Threads + MayOwn<Vec<u8>>>(world: &World<L>) {
    let other = 1 - world.rank();
    let mut receiving = world.irecv(other, 1, vec![0u8; 100]).unwrap();
    assert!(world.block_on(is_pending(&mut receiving)));
    pollster::block_on(async {
        // The other rank sends when it knows that this one has polled.
        send(world, other, 2, 8).await;
        receive(world, other, 2, 8).await;
        let answer = send(world, other, 1, 100);
        let (received, ()) = join(receiving, answer).await;
        assert!(received.unwrap().0 == contents(100, 1));
    });
}
