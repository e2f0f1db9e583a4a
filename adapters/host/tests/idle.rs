//! Waiting takes no processor time, in a progress thread while the program makes no call, and in blocked callers. No other test
//! may run beside this one, since it counts the time of the whole process.

#[allow(dead_code)] // other tests use the rest
mod common;

use std::time::{Duration, Instant};

use common::jobs;
use rustix::time::{ClockId, clock_gettime};
use towline::{Builder, Multiple};

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
