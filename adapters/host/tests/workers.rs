//! Workers: contexts that start alone, whose peers are added by cards. The processes are threads, and shared memory of the test is
//! their exchange.

#[path = "common/pattern.rs"]
mod pattern;

use std::future::{Future, IntoFuture};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use pattern::pattern;
use towline::raw::Mode;
use towline::{Any, Builder, Error, JobKey, Multiple, Place, SetupError, View, ViewMut, Worker, WorkerError};

/// The exchange of a test's runtime.
struct Exchange {
    job: u64,
    processes: u32,
    cards: Mutex<Vec<Vec<u8>>>,
    arrivals: Mutex<Arrivals>,
    changed: Condvar,
}

/// The calls of [`Exchange::wait`].
#[derive(Default)]
struct Arrivals {
    count: u32,
    has_panicked: bool,
}

impl Exchange {
    fn new(processes: u32) -> Self {
        let job = u64::from_le_bytes(JobKey::random().unwrap().bytes()[..8].try_into().unwrap());
        let cards = Mutex::new(vec![Vec::new(); processes as usize]);
        Self { job, processes, cards, arrivals: Mutex::default(), changed: Condvar::new() }
    }

    fn place(&self, number: u32) -> Place {
        Place::new(self.job, JobKey::new([7; 32]), number)
    }

    fn open(&self, number: u32, transports: &str) -> Worker {
        Builder::new().transports(transports).open(self.place(number)).unwrap()
    }

    fn publish(&self, worker: &Worker) {
        self.cards.lock().unwrap()[worker.number() as usize] = worker.card();
    }

    fn card(&self, number: u32) -> Vec<u8> {
        self.cards.lock().unwrap()[number as usize].clone()
    }

    /// Waits for all processes.
    ///
    /// # Panics
    /// If one of them has panicked, which would never come.
    fn wait(&self) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        arrivals.count += 1;
        let round = arrivals.count.div_ceil(self.processes);
        self.changed.notify_all();
        while arrivals.count < round * self.processes {
            assert!(!arrivals.has_panicked, "another process of this test has panicked");
            arrivals = self.changed.wait(arrivals).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Opens the worker of a process, and adds all others.
    fn join(&self, number: u32, transports: &str) -> Worker {
        let worker = self.open(number, transports);
        self.publish(&worker);
        self.wait();
        let cards = self.cards.lock().unwrap().clone();
        for (other, card) in (0..).zip(&cards) {
            assert_eq!(worker.add_peer(card).unwrap(), other);
        }
        self.wait();
        worker
    }
}

/// The end of a process. If it has panicked, the others do not wait for it.
struct Ending<'a>(&'a Exchange);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner).has_panicked = true;
            self.0.changed.notify_all();
        }
    }
}

/// Runs `body` as each of these processes.
fn processes(count: u32, body: impl Fn(u32, &Exchange) + Sync) {
    let exchange = Exchange::new(count);
    std::thread::scope(|scope| {
        let (exchange, body) = (&exchange, &body);
        (0..count).for_each(|number| {
            drop(scope.spawn(move || {
                let _ending = Ending(exchange);
                body(number, exchange);
            }));
        });
    });
}

#[test]
fn m1_processes_that_added_each_other_exchange_messages_over_each_transport() {
    for transports in ["sm", "tcp", "udp", "sm,tcp"] {
        processes(3, |number, exchange| {
            let worker = exchange.join(number, transports);
            assert_eq!((worker.number(), worker.size(), worker.rank()), (number, 1, 0));
            let all = worker.communicator(1, &[0, 1, 2], Some(number)).unwrap();
            assert_eq!((all.rank(), all.size()), (number, 3));
            for len in [0, 8, 5000, 300_000] {
                for step in 0..3 {
                    let (to, from) = ((number + step) % 3, (number + 3 - step) % 3);
                    let sent = all.isend(to, 5, pattern(len, number)).unwrap();
                    let mut into = vec![0; len];
                    let status = all.recv(from, 5, &mut into[..]).unwrap();
                    assert_eq!((status.source, into), (from, pattern(len, from)), "{transports}, {len} bytes");
                    sent.wait().unwrap();
                }
            }
            // A collective operation of the library, in the other order of ranks.
            let reversed = worker.communicator(2, &[2, 1, 0], Some(2 - number)).unwrap();
            let mut sum = [number];
            reversed.allreduce(&mut sum, towline::Sum).unwrap();
            assert_eq!(sum, [3]);
            worker.finish().unwrap();
        });
    }
}

#[test]
fn m15_a_message_that_comes_before_its_communicator_is_kept() {
    processes(2, |number, exchange| {
        let worker = exchange.join(number, "sm");
        let ready = worker.communicator(1, &[0, 1], Some(number)).unwrap();
        if number == 1 {
            let later = worker.communicator(7, &[1, 0], Some(0)).unwrap();
            later.send(1, 5, b"early").unwrap();
            ready.send(0, 5, b"sent").unwrap();
            ready.recv(0, 6, &mut [0u8; 1]).unwrap();
        } else {
            ready.recv(1, 5, &mut [0u8; 4]).unwrap();
            let later = worker.communicator(7, &[1, 0], Some(1)).unwrap();
            let mut into = [0u8; 5];
            let status = later.recv(Any, Any, &mut into).unwrap();
            assert_eq!((status.source, &into), (0, b"early"));
            ready.send(1, 6, &[0u8]).unwrap();
        }
    });
}

#[test]
fn m2_a_process_that_comes_later_is_added_later() {
    processes(3, |number, exchange| {
        let worker = exchange.open(number, "sm,tcp");
        exchange.publish(&worker);
        exchange.wait();
        if number < 2 {
            worker.add_peer(&exchange.card(1 - number)).unwrap();
            let pair = worker.communicator(1, &[0, 1], Some(number)).unwrap();
            let mut word = [number];
            pair.allreduce(&mut word, towline::Sum).unwrap();
            assert_eq!(word, [1]);
        }
        exchange.wait();
        // The later process sends at once; the others have not added it yet.
        if number == 2 {
            (0..2).for_each(|other| assert_eq!(worker.add_peer(&exchange.card(other)).unwrap(), other));
            let all = worker.communicator(2, &[0, 1, 2], Some(2)).unwrap();
            let sends = [0, 1].map(|other| all.isend(other, 1, vec![9u8; 100]).unwrap());
            exchange.wait();
            sends.into_iter().for_each(|send| drop(send.wait().unwrap()));
        } else {
            exchange.wait();
            worker.add_peer(&exchange.card(2)).unwrap();
            let all = worker.communicator(2, &[0, 1, 2], Some(number)).unwrap();
            let mut into = [0u8; 100];
            assert_eq!(all.recv(Any, 1, &mut into).unwrap().source, 2);
            assert_eq!(into, [9; 100]);
        }
        exchange.wait();
    });
}

#[test]
fn m10_a_process_outside_of_a_group_sends_to_its_members_and_receives_from_them() {
    processes(3, |number, exchange| {
        let worker = exchange.join(number, "sm");
        // An inter-communicator: group {0} and group {2, 1}.
        let remote = if number == 0 { &[2, 1][..] } else { &[0] };
        let inter = worker.communicator(3, remote, None).unwrap();
        if number == 0 {
            for rank in 0..2 {
                inter.send(rank, 4, &[rank]).unwrap();
                let mut word = [0u32];
                assert_eq!(inter.recv(rank, 4, &mut word).unwrap().source, rank);
                assert_eq!(word, [2 - rank]);
            }
        } else {
            let mut word = [9u32];
            assert_eq!(inter.recv(Any, Any, &mut word).unwrap().source, 0);
            assert_eq!(word, [2 - number]);
            inter.send(0, 4, &[number]).unwrap();
        }
        exchange.wait();
    });
}

#[test]
fn m10_tags_of_the_runtime_are_matched_by_name_only() {
    const OWN: u32 = u32::MAX - 1;
    processes(2, |number, exchange| {
        let worker = exchange.join(number, "sm");
        let pair = worker.communicator(1, &[0, 1], Some(number)).unwrap();
        let bytes = |bytes: &'static [u8]| {
            // SAFETY: the bytes are constant.
            unsafe { View::contiguous(bytes.as_ptr(), bytes.len()) }
        };
        if number == 0 {
            pair.send_in_mode(1, OWN, Mode::Standard, bytes(b"own")).unwrap();
            pair.send(1, 7, b"program's").unwrap();
            assert_eq!(pair.send(1, OWN, b"typed"), Err(Error::NoSuchTag(OWN)));
            assert_eq!(worker.send_in_mode(0, OWN, Mode::Standard, bytes(b"")), Err(Error::NoSuchTag(OWN)));
        } else {
            assert_eq!(pair.probe(Any, Any).unwrap().tag, 7);
            let mut into = [0u8; 16];
            assert_eq!(pair.recv(Any, Any, &mut into).unwrap().tag, 7);
            assert_eq!(pair.iprobe(Any, Any).unwrap(), None);
            assert_eq!(pair.probe(Any, OWN).unwrap().bytes, 3);
            // SAFETY: the buffer stays until this returns.
            let view = unsafe { ViewMut::contiguous(into.as_mut_ptr(), into.len()) };
            assert_eq!(pair.recv_view(0, OWN, view).unwrap().bytes, 3);
        }
        exchange.wait();
    });
}

#[test]
fn m6_p7_a_number_belongs_to_a_new_process_once_the_former_one_was_removed() {
    processes(2, |number, exchange| {
        let mut worker = exchange.join(number, "sm,tcp");
        let pair = |worker: &Worker, id| worker.communicator(id, &[0, 1], Some(number)).unwrap();
        for life in 0..3u32 {
            let comm = pair(&worker, life);
            if number == 1 {
                comm.send(0, 1, &[life]).unwrap();
                drop(comm);
                worker.finish().unwrap();
                worker = exchange.open(1, "sm,tcp");
                exchange.publish(&worker);
                exchange.wait();
                worker.add_peer(&exchange.card(0)).unwrap();
            } else {
                let mut word = [9u32];
                comm.recv(1, 1, &mut word).unwrap();
                assert_eq!(word, [life]);
                exchange.wait();
                let successor = exchange.card(1);
                if life == 1 {
                    // One that is known to have ended need not be removed.
                    while comm.send(1, 1, &[0u8]).is_ok() {}
                } else {
                    worker.remove_peer(1).unwrap();
                    assert!(matches!(worker.remove_peer(1), Err(WorkerError::NoSuchPeer(1))));
                }
                worker.add_peer(&successor).unwrap();
                assert_eq!(comm.send(1, 1, &[0u8]), Err(Error::Restarted { rank: 1 }), "the former process");
            }
            exchange.wait(); // a process that ends before another one has added it cannot be added any more
        }
    });
}

#[test]
fn m6_p7_the_number_and_the_place_of_a_process_that_has_ended_belong_to_a_new_one() {
    // Room for this process and two others. The same number each time, and another one each time.
    for numbers in [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5]] {
        let exchange = Exchange::new(6);
        let open = |number, transports| {
            let place = Place { numbers: 6, peers: 3, ..exchange.place(number) };
            Builder::new().transports(transports).open(place).unwrap()
        };
        let parent = open(0, "sm");
        for (life, number) in (0..).zip(numbers) {
            let child = open(number, "sm");
            child.add_peer(&parent.card()).unwrap();
            assert_eq!(parent.add_peer(&child.card()).unwrap(), number);
            let (at_parent, at_child) =
                (parent.communicator(life, &[0, number], Some(0)), child.communicator(life, &[0, number], Some(1)));
            let (at_parent, at_child) = (at_parent.unwrap(), at_child.unwrap());
            at_child.send(0, 1, &[life]).unwrap();
            let mut word = [9u32];
            at_parent.recv(1, 1, &mut word).unwrap();
            assert_eq!(word, [life]);
            if life == 0 {
                // One that goes on keeps its number.
                let other = open(number, "tcp");
                let why = parent.add_peer(&other.card()).unwrap_err();
                assert!(why.to_string().contains(&format!("another process with the number {number}")), "{why}");
            }
            drop(at_child);
            child.finish().unwrap();
            while at_parent.send(1, 1, &[0u8]).is_ok() {}
        }
    }
}

#[test]
fn impossible_cards_members_and_ids_are_refused_and_change_nothing() {
    let exchange = Exchange::new(4);
    let small = Place { peers: 2, ..exchange.place(0) };
    let worker = Builder::new().transports("tcp").open(small).unwrap();
    let others = [1, 2].map(|number| exchange.open(number, "tcp"));
    let card = others[0].card();
    for length in 0..card.len() {
        assert!(matches!(worker.add_peer(&card[..length]), Err(WorkerError::Card(_))), "{length}");
    }
    let of_another_job = Builder::new().transports("tcp").open(Place { job: 1, ..exchange.place(1) }).unwrap();
    assert!(matches!(worker.add_peer(&of_another_job.card()), Err(WorkerError::Unreachable { number: 1, .. })));
    let beyond = Builder::new().transports("tcp").open(Place { numbers: 9000, ..exchange.place(5000) }).unwrap();
    assert!(matches!(worker.add_peer(&beyond.card()), Err(WorkerError::Card(_))));

    assert_eq!(worker.add_peer(&worker.card()).unwrap(), 0, "itself");
    assert_eq!(worker.add_peer(&card).unwrap(), 1);
    assert_eq!(worker.add_peer(&card).unwrap(), 1, "again");
    assert!(matches!(worker.add_peer(&others[1].card()), Err(WorkerError::Full { most: 2 })));
    assert!(matches!(worker.remove_peer(0), Err(WorkerError::NoSuchPeer(0))), "itself");
    assert!(matches!(worker.remove_peer(2), Err(WorkerError::NoSuchPeer(2))));
    worker.remove_peer(1).unwrap();
    assert_eq!(worker.add_peer(&others[1].card()).unwrap(), 2, "there is room again");

    let refused = |id, members: &[u32], rank| worker.communicator(id, members, rank).unwrap_err();
    assert!(matches!(refused(1, &[0, 1], Some(0)), WorkerError::NoSuchPeer(1)));
    assert!(matches!(refused(1 << 31, &[0], Some(0)), WorkerError::Id(0x8000_0000)));
    assert!(matches!(refused(1, &[0, 2], Some(1)), WorkerError::Rank { rank: 1, number: 0 }));
    assert!(matches!(refused(1, &[0, 2], Some(2)), WorkerError::Rank { rank: 2, number: 0 }));
    assert!(matches!(refused(1, &[], None), WorkerError::Operation(Error::Communicator(_))));
    let kept = worker.communicator(1, &[0, 2], Some(0)).unwrap();
    assert!(matches!(refused(1, &[0], Some(0)), WorkerError::Operation(Error::Communicator(_))), "the id is in use");
    drop(kept);
    let _again = worker.communicator(1, &[0], Some(0)).unwrap();
    let nowhere = Builder::new().open(Place { number: 9, numbers: 9, ..exchange.place(0) });
    assert!(matches!(nowhere, Err(SetupError::Place { .. })));
}

#[test]
fn m11_the_ends_of_queued_operations_come_once_with_their_words() {
    processes(3, |number, exchange| {
        let worker = exchange.join(number, "sm");
        // A communicator whose ranks are not the engine's numbers.
        let all = worker.communicator(1, &[2, 0, 1], Some((number + 1) % 3)).unwrap();
        let mut buffers = [[0u8; 4]; 4];
        let [zero, one, two, three] = &mut buffers;
        if number == 0 {
            // SAFETY: the buffers stay until the worker has ended.
            unsafe {
                all.irecv_queued(2, 5, ViewMut::contiguous(zero.as_mut_ptr(), 4), 100, |_| {}).unwrap();
                all.irecv_queued(Any, 6, ViewMut::contiguous(one.as_mut_ptr(), 4), 101, |_| {}).unwrap();
                all.irecv_queued(0, 7, ViewMut::contiguous(two.as_mut_ptr(), 4), 102, |_| {}).unwrap();
                all.irecv_queued(0, 8, ViewMut::contiguous(three.as_mut_ptr(), 4), 103, |_| {}).unwrap();
            }
            exchange.wait();
            let mut ended = Vec::new();
            while ended.len() < 3 {
                worker.poll_queue(2, |completion| ended.push(completion));
            }
            ended.sort_by_key(|completion| completion.user);
            let known = |at: usize| ended[at].outcome.as_ref().map(|status| (status.source, status.tag, status.bytes));
            assert_eq!([known(0).unwrap(), known(1).unwrap()], [(2, 5, 4), (0, 6, 3)]);
            assert_eq!(
                ended[2].outcome,
                Err(Error::Truncated { source: 0, tag: 7, sent: 5, delivered: 4 }),
                "the error names the rank in the communicator"
            );
            assert!(worker.cancel_queued(103) && !worker.cancel_queued(103) && !worker.cancel_queued(100));
            let mut last = Vec::new();
            worker.poll_queue(9, |completion| last.push((completion.user, completion.outcome)));
            assert_eq!(last, [(103, Err(Error::Cancelled))]);
        } else {
            exchange.wait();
            let to_zero = 1;
            if number == 1 {
                all.send(to_zero, 5, b"five").unwrap();
            } else {
                all.send(to_zero, 6, b"six").unwrap();
                all.send(to_zero, 7, b"seven").unwrap();
            }
        }
        exchange.wait();
        assert_eq!(worker.poll_queue(9, |_| {}).completions, 0);
    });
}

#[test]
fn a_poll_after_one_that_took_something_takes_all_that_is_there() {
    processes(2, |number, exchange| {
        let worker = exchange.join(number, "sm");
        let both = worker.communicator(1, &[0, 1], Some(number)).unwrap();
        let mut buffers = [[0u8; 4]; 12];
        if number == 0 {
            for (user, buffer) in (0..).zip(&mut buffers) {
                // SAFETY: the buffers stay until the worker has ended.
                unsafe { both.irecv_queued(1, 5, ViewMut::contiguous(buffer.as_mut_ptr(), 4), user, |_| {}) }.unwrap();
            }
        } else {
            // More than there are receives: the connection is there, and all frames are in the ring, when this is done.
            for value in 0..20u32 {
                both.send(0, 5, &value).unwrap();
            }
        }
        exchange.wait();
        if number == 0 {
            let mut first = 0;
            while first == 0 {
                first = worker.poll_queue(12, |_| {}).completions;
            }
            let mut rest = Vec::new();
            assert_eq!(worker.poll_queue(9, |completion| rest.push(completion.user)).completions, 9, "after {first}");
            assert_eq!(rest, (first as u64..first as u64 + 9).collect::<Vec<_>>());
        }
        exchange.wait();
    });
}

/// A program that gives its processor away when nothing happens must not do so for these.
#[test]
fn a_message_that_no_receive_awaits_is_an_event_and_no_completion() {
    processes(2, |number, exchange| {
        let worker = exchange.join(number, "sm");
        let both = worker.communicator(1, &[0, 1], Some(number)).unwrap();
        if number == 0 {
            while worker.poll_queue(1, |_| {}).events != 0 {}
            exchange.wait();
            let begun = Instant::now();
            let polled = loop {
                let polled = worker.poll_queue(1, |_| {});
                if polled.events != 0 {
                    break polled;
                }
                assert!(begun.elapsed() < Duration::from_secs(60), "no event");
            };
            assert_eq!(polled.completions, 0);
            assert_eq!(both.probe(1, 5).unwrap().bytes, 4);
        } else {
            exchange.wait();
            both.send(0, 5, &1u32).unwrap();
        }
        exchange.wait();
    });
}

/// MPI programs expect that one test completes what they sent to themselves.
#[test]
fn one_poll_completes_messages_of_a_process_to_itself() {
    let exchange = Exchange::new(1);
    let worker = exchange.open(0, "sm");
    let own = worker.communicator(1, &[0], Some(0)).unwrap();
    for len in [0, 229, 20_000, 400_000] {
        let (out, mut into) = (pattern(len, 3), vec![0; len]);
        // SAFETY: both buffers stay until the completions were taken.
        let complete = unsafe {
            let view = View::contiguous(out.as_ptr(), len);
            let complete = own.isend_queued(0, 1, Mode::Synchronous, view, 1, |_| {}).unwrap();
            own.irecv_queued(0, 1, ViewMut::contiguous(into.as_mut_ptr(), len), 2, |_| {}).unwrap();
            complete
        };
        let mut ended = Vec::new();
        worker.poll_queue(9, |completion| ended.push((completion.user, completion.outcome.map(|_| ()))));
        ended.sort_by_key(|(user, _)| *user);
        let expected = [(1, Ok(())), (2, Ok(()))];
        assert_eq!(ended, expected[usize::from(complete)..], "{len} bytes");
        assert_eq!(into, out);
    }
}

/// Wakes a task by a call of the worker that the task waits in.
struct CallsTheWorker(Arc<Worker<Multiple>>, mpsc::Sender<u32>);

impl Wake for CallsTheWorker {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.add_peer(&self.0.card()).unwrap()).unwrap();
    }
}

#[test]
fn code_of_the_program_that_the_removal_of_a_peer_runs_may_use_the_worker() {
    let exchange = Exchange::new(2);
    let open = |number| Builder::new().transports("tcp").threads(Multiple).open(exchange.place(number)).unwrap();
    let (worker, other) = (Arc::new(open(0)), open(1));
    worker.add_peer(&other.card()).unwrap();
    let (called, calls) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let pair = worker.communicator(1, &[0, 1], Some(0)).unwrap();
        let mut receive = Box::pin(pair.irecv(1, 1, vec![0u8; 4]).unwrap().into_future());
        let waker = Waker::from(Arc::new(CallsTheWorker(Arc::clone(&worker), called)));
        assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        worker.remove_peer(1).unwrap();
        assert!(receive.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    });
    assert_eq!(calls.recv_timeout(Duration::from_secs(60)), Ok(0), "the call waits for itself");
    thread.join().unwrap();
}
