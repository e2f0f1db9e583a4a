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

/// A job of this test alone.
fn job() -> u64 {
    u64::from_le_bytes(JobKey::random().unwrap().bytes()[..8].try_into().unwrap())
}

#[test]
fn p7_the_number_and_the_place_of_a_process_that_has_ended_belong_to_a_new_one() {
    // The same number each time, and another one each time.
    for numbers in [[1; 5], [1, 2, 3, 4, 5]] {
        let job = job();
        let mut parent = Process::open(job, 0, "sm");
        for (life, number) in (0u8..).zip(numbers) {
            let mut child = Process::open(job, number, "sm");
            let (to_parent, _) = child.add(&parent).unwrap();
            let (to_child, added) = parent.add(&child).unwrap();
            assert_eq!(added, number);
            child.send(to_parent, &[life]);
            parent.until("a frame of the new process", |own| own.seen.0.lock().unwrap().contains(&vec![life]));
            parent.send(to_child, &[life; 3]);
            child.until("a frame of the old process", |own| own.seen.0.lock().unwrap().contains(&vec![life; 3]));
            drop(child);
        }
    }
}

#[test]
fn p7_a_process_that_has_ended_keeps_its_number_until_its_frames_were_read() {
    let job = job();
    let mut parent = Process::open(job, 0, "sm");
    let mut child = Process::open(job, 1, "sm");
    let (to_parent, _) = child.add(&parent).unwrap();
    let first = parent.add(&child).unwrap();
    child.send(to_parent, b"last");
    drop(child);
    let next = Process::open(job, 1, "sm");
    assert!(matches!(parent.add(&next), Err(AddError::Card(_))));
    parent.until("the last frame", |own| own.seen.0.lock().unwrap().contains(&b"last".to_vec()));
    assert_ne!(parent.add(&next).unwrap().0, first.0);
}

#[test]
fn p7_a_process_that_goes_on_keeps_its_number_and_its_place() {
    let job = job();
    let mut parent = Process::open(job, 0, "sm");
    let children = [1, 2, 3, 4].map(|number| Process::open(job, number, "sm"));
    let first = parent.add(&children[0]).unwrap();
    let why = parent.add(&Process::open(job, 1, "tcp")).unwrap_err();
    assert!(matches!(why, AddError::Card(_)), "{why}");
    assert!(why.to_string().contains("another process with the number 1"), "{why}");

    let full = children.iter().find_map(|child| parent.add(child).err()).unwrap();
    assert!(matches!(full, AddError::Unreachable { why: Unreachable::Full, .. }), "{full}");
    assert_eq!(parent.add(&children[0]).unwrap(), first);
}
