//! Modules of the BTL face, whose peers are added by cards. The processes are modules of this thread.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use towline::btl::{AddError, Btl, Consumer, DescriptorFlags, Directory, EndpointId, Module, NO_ORDER, Received, tags};
use towline::{AnyRail, Builder, JobKey, Place};
use towline_core::rail::Unreachable;

const PATIENCE: Duration = Duration::from_secs(60);
/// Room for a process and two others.
const PLACES: u32 = 3;

/// The bytes of the frames that a process got.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Vec<u8>>>);

impl Consumer<AnyRail> for Seen {
    fn receive(&self, _: &mut Btl<'_>, received: &Received<'_>) {
        self.0.lock().unwrap().push(received.data().to_vec());
    }
}

struct Process {
    module: Module,
    directory: Directory,
    seen: &'static Seen,
}

impl Process {
    fn open(job: u64, number: u32, transport: &str) -> Self {
        let place = Place { numbers: 8, peers: PLACES, ..Place::new(job, JobKey::new([9; 32]), number) };
        let (mut module, directory) = Builder::new().transports(transport).open_btl(place).unwrap().remove(0);
        let seen: &'static Seen = Box::leak(Box::default());
        module.with(|btl| btl.register(tags::USR, seen).unwrap());
        Self { module, directory, seen }
    }

    fn add(&mut self, other: &Self) -> Result<(EndpointId, u32), AddError> {
        let card = other.directory.card();
        self.module.with(|btl| self.directory.add(btl, &card))
    }

    /// Adds a process, in place of those that have ended if they are in its way. Returns its endpoint, and theirs.
    fn replace(&mut self, other: &Self) -> (Result<EndpointId, AddError>, Vec<EndpointId>) {
        let why = match self.add(other) {
            Ok((endpoint, _)) => return (Ok(endpoint), Vec::new()),
            Err(why) => why,
        };
        let card = other.directory.card();
        let removed = self.module.with(|btl| self.directory.remove_ended(btl, &card, &why));
        if removed.is_empty() {
            return (Err(why), removed);
        }
        (self.add(other).map(|(endpoint, _)| endpoint), removed)
    }

    fn send(&mut self, to: EndpointId, bytes: &[u8]) {
        self.module.with(|btl| {
            let descriptor = btl.alloc(to, NO_ORDER, bytes.len(), DescriptorFlags::BTL_OWNERSHIP).unwrap();
            btl.memory(descriptor).unwrap().copy_from_slice(bytes);
            btl.send(to, descriptor, tags::USR).unwrap();
        });
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.module.progress();
            assert!(begun.elapsed() < PATIENCE, "this did not happen in time: {what}");
        }
    }
}

fn both_until(one: &mut Process, other: &mut Process, what: &str, done: impl Fn(&Process, &Process) -> bool) {
    one.until(what, |one| {
        other.module.progress();
        done(one, other)
    });
}

/// A job of this test alone.
fn job() -> u64 {
    u64::from_le_bytes(JobKey::random().unwrap().bytes()[..8].try_into().unwrap())
}

#[test]
fn p7_the_number_and_the_place_of_a_process_that_has_ended_belong_to_a_new_one() {
    // The same number each time, and another one each time.
    for numbers in [[1; 5], [1, 2, 3, 4, 5]] {
        for transport in ["sm", "tcp", "udp"] {
            let job = job();
            let mut parent = Process::open(job, 0, transport);
            let mut ended = Vec::new();
            for (life, number) in (0u8..).zip(numbers) {
                let mut child = Process::open(job, number, transport);
                let (to_parent, _) = child.add(&parent).unwrap();
                // Shared memory shows at once that a process has closed, others in progress.
                let mut added = parent.replace(&child);
                if transport != "sm" {
                    parent.until("the end of the former process", |own| {
                        if added.0.is_err() {
                            added = own.replace(&child);
                        }
                        added.0.is_ok()
                    });
                }
                let to_child = added.0.unwrap();
                assert!(added.1.iter().all(|endpoint| ended.contains(endpoint)), "{:?} of {ended:?}", added.1);
                child.send(to_parent, &[life]);
                let seen = |own: &Process, frame: &[u8]| own.seen.0.lock().unwrap().iter().any(|seen| seen == frame);
                both_until(&mut parent, &mut child, "the first frame", |parent, _| seen(parent, &[life]));
                parent.send(to_child, &[life; 3]);
                both_until(&mut parent, &mut child, "the answer", |_, child| seen(child, &[life; 3]));
                drop(child);
                ended.push(to_child);
            }
        }
    }
}

#[test]
fn p7_a_process_that_has_ended_keeps_its_number_until_its_frames_were_read() {
    let job = job();
    let mut parent = Process::open(job, 0, "sm");
    let mut child = Process::open(job, 1, "sm");
    let (to_parent, _) = child.add(&parent).unwrap();
    let (first, _) = parent.add(&child).unwrap();
    child.send(to_parent, b"last");
    drop(child);
    let next = Process::open(job, 1, "sm");
    let (refused, removed) = parent.replace(&next);
    assert!(matches!(refused, Err(AddError::Card(_))) && removed.is_empty());
    parent.until("the last frame", |own| own.seen.0.lock().unwrap().contains(&b"last".to_vec()));
    let (added, removed) = parent.replace(&next);
    assert!(added.is_ok_and(|endpoint| endpoint != first));
    assert_eq!(removed, [first]);
}

#[test]
fn p7_a_process_that_goes_on_keeps_its_number_and_its_place() {
    let job = job();
    let mut parent = Process::open(job, 0, "sm");
    let children = [1, 2, 3, 4].map(|number| Process::open(job, number, "sm"));
    let first = parent.add(&children[0]).unwrap();
    let (added, removed) = parent.replace(&Process::open(job, 1, "tcp"));
    assert!(removed.is_empty());
    let why = added.unwrap_err();
    assert!(matches!(why, AddError::Card(_)), "{why}");
    assert!(why.to_string().contains("another process with the number 1"), "{why}");

    let full = children.iter().find_map(|child| parent.add(child).err()).unwrap();
    assert!(matches!(full, AddError::Unreachable { why: Unreachable::Full, .. }), "{full}");
    assert_eq!(parent.add(&children[0]).unwrap(), first);
}
