//! Which threads a process has. No other test may run beside this one, so it is alone in its file.

use std::time::{Duration, Instant};

use towline::{Builder, Multiple};

fn tasks() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits until there are only so many threads: the kernel lists a thread for a moment after it was joined.
fn wait_for_tasks(expected: usize, what: &str) {
    let until = Instant::now() + Duration::from_secs(300);
    while tasks() != expected {
        assert!(Instant::now() < until, "{what}: {} threads, and not {expected}", tasks());
        std::thread::yield_now();
    }
}

#[test]
fn p3_there_is_no_progress_thread_unless_it_is_needed_or_asked_for() {
    let before = tasks();
    for transport in ["sm", "tcp"] {
        let alone = Builder::new().transports(transport).build().unwrap();
        assert_eq!(tasks(), before, "{transport}");
        let shared = Builder::new().transports(transport).threads(Multiple).build().unwrap();
        assert_eq!(tasks(), before, "{transport}");
        let refused = Builder::new().transports(transport).threads(Multiple).progress_thread(false).build().unwrap();
        assert_eq!(tasks(), before, "{transport}");
        let busy = Builder::new().transports(transport).threads(Multiple).progress_thread(true).build().unwrap();
        assert_eq!(tasks(), before + 1, "{transport}");
        assert!(busy.progress_thread().is_some());
        let contexts =
            Builder::new().transports(transport).threads(Multiple).progress_thread(true).contexts(3).unwrap();
        assert_eq!(tasks(), before + 4, "{transport}: one for each context");
        // A progress thread ends with its world.
        drop(contexts);
        wait_for_tasks(before + 1, transport);
        busy.finish().unwrap();
        wait_for_tasks(before, transport);
        shared.finish().unwrap();
        refused.finish().unwrap();
        alone.finish().unwrap();
    }
    // A transport that loses frames gets a progress thread by default, and the report says why.
    let of = |builder: Builder| builder.transports("udp").configure(|config| config.udp.include = "lo".into());
    let contexts = || of(Builder::new()).contexts(2).unwrap();
    let lossy = contexts();
    assert_eq!(tasks(), before + 2, "one for each context");
    let reports: Vec<_> = lossy.into_iter().map(|context| context.enter().transport_report()).collect();
    assert!(
        reports.iter().all(|report| report.iter().any(|line| line.contains("thread: yes: udp loses"))),
        "{reports:?}"
    );
    wait_for_tasks(before, "udp");
    let refused = of(Builder::new()).progress_thread(false).contexts(2).unwrap();
    assert_eq!(tasks(), before, "none where it is refused");
    drop(refused);
}
