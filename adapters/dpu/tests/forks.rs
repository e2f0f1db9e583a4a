//! A child that was forked keeps the descriptors of its parent. The window is free when the parent has left it, nevertheless.

#[path = "common/child.rs"]
mod child;
mod common;

use child::Child;
use common::start;
use towline_dpu::mapping::Mapping;
use towline_dpu::{Options, Transport};

#[test]
fn a_window_that_was_left_is_free_although_a_child_lives() {
    let devices = start();
    let transport = devices.open(0);
    let _child = Child::fork();
    drop(transport);
    let again = Transport::open(&devices.files[0], Options::default());
    assert!(again.is_ok(), "{:?}", again.err());
}

#[test]
fn a_child_that_ends_does_not_free_the_window_of_its_parent() {
    let devices = start();
    let window = Mapping::open(&devices.files[0], 0).unwrap();
    assert!(window.lock().unwrap());
    // SAFETY: the child drops its copy, ends by `_exit`, and allocates nothing.
    match unsafe { libc::fork() } {
        0 => {
            drop(window);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status is a place of ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    let other = Mapping::open(&devices.files[0], 0).unwrap();
    assert!(!other.lock().unwrap(), "the parent has the lock");
    drop(window);
    assert!(other.lock().unwrap());
}
