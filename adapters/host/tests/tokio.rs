//! Tasks of tokio await operations, and the runtime itself waits for the transports.

#[allow(dead_code)] // other tests use the rest
mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{jobs, ranks};
use tokio::runtime::{Builder as Runtime, Handle};
use towline::{Builder, MayOwn, Multiple, Threads, World};

/// Held by a test that counts threads, and by one that starts some.
static ALONE: Mutex<()> = Mutex::new(());

const TRANSPORTS: [&str; 3] = ["sm", "tcp", "udp"];

/// The threads of this process that wake tasks.
fn reactor_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "towline-reactor").count()
}

/// Messages that each side sends only after it has received the one before.
async fn talk<L: Threads + MayOwn<Vec<u8>>>(world: &World<L>, tag: u32) {
    let other = 1 - world.rank();
    for round in 0..20 {
        let len = [8, 3000, 200_000][round % 3];
        if world.rank() == 0 {
            world.isend(other, tag, vec![round as u8; len]).unwrap().await.unwrap();
        }
        let (buffer, _) = world.irecv(other, tag, vec![0u8; len]).unwrap().await.unwrap();
        assert!(buffer == vec![round as u8; len]);
        if world.rank() == 1 {
            world.isend(other, tag, buffer).unwrap().await.unwrap();
        }
    }
}

#[test]
fn a_runtime_of_tokio_waits_for_the_transports() {
    let _alone = ALONE.lock();
    for transport in TRANSPORTS {
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).progress_thread(false).job(job);
            let world = builder.build().unwrap();
            Runtime::new_current_thread().enable_io().build().unwrap().block_on(async {
                world.attach_tokio().unwrap();
                talk(&world, 1).await;
                world.attach_tokio().unwrap(); // again, with another task
                talk(&world, 2).await;
            });
            // Threads of another test may be about to end. A thread of this world would stay.
            let until = Instant::now() + Duration::from_secs(60);
            while reactor_threads() != 0 {
                assert!(Instant::now() < until, "{transport}: a thread wakes tasks");
                std::thread::yield_now();
            }
            world.barrier().unwrap(); // no rank goes on before both have counted
            // The runtime has ended, so a thread takes over.
            pollster::block_on(talk(&world, 3));
            // A runtime may also take over from a thread.
            Runtime::new_current_thread().enable_io().build().unwrap().block_on(async {
                world.attach_tokio().unwrap();
                talk(&world, 4).await;
            });
        });
    }
}

#[test]
fn a_task_that_waits_elsewhere_is_woken_after_the_end_of_the_runtime() {
    let _alone = ALONE.lock();
    for transport in TRANSPORTS {
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).progress_thread(false).threads(Multiple).job(job);
            let world = builder.build().unwrap();
            let runtime = Runtime::new_multi_thread().worker_threads(1).enable_io().build().unwrap();
            runtime.block_on(async { world.attach_tokio() }).unwrap();
            let (polled, is_polled) = std::sync::mpsc::channel();
            std::thread::scope(|threads| {
                let mut receiving = world.irecv(1 - world.rank(), 1, vec![0u8; 4]).unwrap();
                threads.spawn(move || {
                    pollster::block_on(std::future::poll_fn(|task| {
                        let poll = std::pin::Pin::new(&mut receiving).poll(task);
                        let _ = polled.send(());
                        poll
                    }))
                    .unwrap();
                });
                is_polled.recv().unwrap();
                drop(runtime);
                world.send(1 - world.rank(), 1, b"over").unwrap();
            });
            world.barrier().unwrap();
        });
    }
}

#[test]
fn tasks_are_woken_while_nobody_drives_the_runtime() {
    let _alone = ALONE.lock();
    for transport in TRANSPORTS {
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).progress_thread(false).job(job);
            let world = builder.build().unwrap();
            let runtime = Runtime::new_current_thread().enable_io().build().unwrap();
            for round in 0..2 {
                runtime.block_on(async {
                    world.attach_tokio().unwrap();
                    talk(&world, 4 * round).await;
                });
                pollster::block_on(talk(&world, 4 * round + 1));
                runtime.block_on(talk(&world, 4 * round + 2));
            }
        });
    }
}

#[test]
fn many_tasks_of_several_workers_wait_at_once() {
    for transport in TRANSPORTS {
        jobs(2, |_, job| {
            let builder = Builder::new().transports(transport).progress_thread(false).threads(Multiple).job(job);
            let world = Arc::new(builder.build().unwrap());
            let runtime = Runtime::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
            runtime.block_on(async {
                world.attach_tokio().unwrap();
                let tasks: Vec<_> = (0..10)
                    .map(|tag| {
                        let world = Arc::clone(&world);
                        tokio::spawn(async move { talk(&*world, tag).await })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            });
        });
    }
}

#[test]
fn without_a_runtime_there_is_an_error() {
    assert!(Handle::try_current().is_err());
    ranks(1, "loopback", |world| {
        assert!(world.attach_tokio().unwrap_err().to_string().contains("no reactor running"));
    });
}
