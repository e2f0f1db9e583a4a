//! The kits over the frame device of the example `firmware/example-nic`, whose frames may be lost.

use std::cell::RefCell;
use std::rc::Rc;

use datagram::{Address, Interface};
use example_nic::frames::{BOXES, Frames, KNOWN, LENGTH, LONGEST};
use towline_core::rail::LINKED_HEAD;
use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;
use towline_window::atomics::Ordering;

use super::post::{Post, memory};
use super::{Linked, STEP, linked};

struct Cluster {
    lose: u32,
    now: u64,
    posts: Rc<RefCell<Vec<Post>>>,
}

impl Cluster {
    fn new(lose: u32) -> Self {
        Self { lose, now: 0, posts: Rc::default() }
    }
}

impl Setup for Cluster {
    type Rail = Linked<Frames>;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        let memories: Vec<_> = (0..count).map(|_| memory()).collect();
        self.posts.borrow_mut().push(Post::new(memories.iter().copied(), self.lose));
        let drivers = memories.into_iter().map(|memory| Frames::new(memory).expect("the device is there"));
        drivers.enumerate().map(|(me, driver)| linked(driver, me, 4)).collect()
    }

    fn now(&mut self) -> Instant {
        self.now += STEP;
        self.posts.borrow_mut().iter_mut().for_each(Post::pass);
        Instant::from_nanos(self.now)
    }

    fn leave(&mut self, _: Self::Rail) -> bool {
        // Nothing empties its boxes any more.
        true
    }

    fn longest_header(&self) -> usize {
        LINKED_HEAD
    }
}

mod over_the_example {
    use super::*;
    rail_suite!(Cluster::new(0));
}

mod over_the_example_with_loss {
    use super::*;
    rail_suite!(Cluster::new(50));
}

mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(Cluster::new(50));
}

#[test]
fn boxes_are_used_in_turn_and_none_before_the_reset() {
    let memories = [memory(), memory()];
    assert!(Frames::new(memories[0]).is_none(), "there is no device");
    let mut post = Post::new(memories, 0);
    let [mut first, mut second] = memories.map(|memory| Frames::new(memory).expect("a device"));
    assert_eq!((first.room(), second.has_arrived()), (0, false));
    post.pass();
    let (to, from) = (second.address(), first.address());
    let mut into = [0; LONGEST];
    for round in 0..5_u8 {
        assert_eq!((first.room(), second.has_arrived()), (BOXES as usize, false));
        // All boxes are full after these, and the last frame is lost.
        for number in 0..=BOXES as usize {
            assert_eq!(first.room(), BOXES as usize - number);
            first.send(&to, &vec![round; LONGEST - number]);
        }
        (0..BOXES).for_each(|_| post.pass());
        for number in 0..BOXES as usize {
            assert!(second.has_arrived());
            assert_eq!(second.receive(&mut into), Some((LONGEST - number, from)));
            assert_eq!(into[..LONGEST - number], vec![round; LONGEST - number]);
        }
        assert_eq!(second.receive(&mut into), None);
    }
    // Neither is sent: it is too long, or not for a card.
    first.send(&to, &[0; LONGEST + 1]);
    first.send(&Address::of_six([0; 6]), &[0]);
    assert_eq!(first.room(), BOXES as usize);
}

#[test]
fn a_device_that_claims_a_length_beyond_its_box_is_ignored() {
    let memories = [memory(), memory()];
    let mut post = Post::new(memories, 0);
    let [mut first, mut second] = memories.map(|memory| Frames::new(memory).expect("a device"));
    post.pass();
    let (to, from) = (second.address(), first.address());
    first.send(&to, b"long");
    first.send(&to, b"good");
    (0..2).for_each(|_| post.pass());
    let length = memories[1].word((1 + BOXES) * example_nic::frames::BOX + LENGTH).unwrap();
    length.store(3000_u32.to_le(), Ordering::Release);
    let mut into = vec![0; 4000];
    assert_eq!(second.receive(&mut into), None);
    assert_eq!((second.receive(&mut into), &into[..4]), (Some((4, from)), &b"good"[..]));
    assert_eq!(memories[0].word(0).unwrap().load(Ordering::Acquire), KNOWN.to_le());
}
