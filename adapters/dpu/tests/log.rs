//! The log of a window has one reader at a time.

#[path = "common/child.rs"]
mod child;

use std::fs::File;
use std::path::PathBuf;

use child::Child;
use towline_dpu::log::{Found, Log};
use towline_dpu::mapping::Mapping;
use towline_dpu::{OpenError, Supervisor};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::layout::Layout;

const WINDOW: usize = 1 << 16;

/// A window with a log, and its file.
struct Window {
    path: PathBuf,
    /// Dropped before the mapping.
    _device: Device<'static>,
    mapping: Mapping,
}

impl Window {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("towline-log-{name}-{}", std::process::id()));
        File::create(&path).unwrap().set_len(WINDOW as u64).unwrap();
        let mapping = Mapping::open(&path, 0).unwrap();
        // SAFETY: the device ends before the mapping.
        let memory = unsafe { mapping.memory() }.unwrap();
        let about = About { boot: 1, operations: 8, one_sided: 0, description: "test", doorbell: Doorbell::None };
        let layout = Layout::plan(WINDOW, 8, 8).and_then(|layout| layout.with_log(1024)).unwrap();
        Self { path, _device: Device::start(memory, layout, &about).unwrap(), mapping }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

#[test]
fn a_second_reader_of_the_same_process_is_refused() {
    let Window { path, mapping, .. } = &Window::new("readers");
    let mut reader = Log::open(path, 0).unwrap();
    assert!(matches!(Log::open(path, 0), Err(OpenError::LogInUse(_))));
    // The lock does not end with other descriptors of the file, and is none of hosts.
    drop(Supervisor::open(path, 0).unwrap());
    assert!(matches!(Log::open(path, 0), Err(OpenError::LogInUse(_))));
    assert!(mapping.lock().unwrap());
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), Found::Bytes(0));
    drop(reader);
    assert!(Log::open(path, 0).is_ok(), "the first reader has ended");
}

#[test]
fn a_log_that_was_left_is_free_although_a_child_lives() {
    let window = Window::new("child");
    let reader = Log::open(&window.path, 0).unwrap();
    let _child = Child::fork();
    drop(reader);
    let again = Log::open(&window.path, 0);
    assert!(again.is_ok(), "{:?}", again.err());
}
