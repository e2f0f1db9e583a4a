//! A supervisor ends the sessions of processes that have died, and no others.

use std::fs::File;
use std::path::PathBuf;

use towline_dpu::Supervisor;
use towline_dpu::mapping::Mapping;
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::host::Attaching;
use towline_window::layout::Layout;

const WINDOW: usize = 1 << 16;

/// A file, which is removed at the end of the test.
struct Window(PathBuf);

impl Window {
    fn new(name: &str, bytes: u64) -> Self {
        let path = std::env::temp_dir().join(format!("towline-supervisor-{}-{name}", std::process::id()));
        File::create(&path).unwrap().set_len(bytes).unwrap();
        Self(path)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn the_session_of_a_process_that_has_died_ends() {
    let window = Window::new("died", WINDOW as u64);
    let mapping = Mapping::open(&window.0, 0).unwrap();
    // SAFETY: device and hosts end before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    let about = About { boot: 1, operations: 8, one_sided: 0, description: "test", doorbell: Doorbell::None };
    let mut device = Device::start(memory, Layout::plan(WINDOW, 8, 8).unwrap(), &about).unwrap();
    let supervisor = Supervisor::open(&window.0, 0).unwrap();
    assert!(!supervisor.end_abandoned().unwrap(), "there is no session");

    // The lock is the sign of life of a process.
    let process = Mapping::open(&window.0, 0).unwrap();
    assert!(process.lock().unwrap());
    let mut attaching = Attaching::new(memory, 5).unwrap();
    assert!(!supervisor.end_abandoned().unwrap(), "the process waits for its session");
    assert_eq!(device.wanted(), Ok(Some(5)));
    device.serve(5).unwrap();
    let host = attaching.poll().unwrap();
    assert!(!supervisor.end_abandoned().unwrap(), "the process has its session");
    assert_eq!(device.wanted(), Ok(None));

    drop((host, process));
    assert!(supervisor.end_abandoned().unwrap());
    assert_eq!(device.wanted(), Ok(Some(0)), "the device has to end the session");
    assert!(!supervisor.end_abandoned().unwrap(), "it was ended already");
    device.serve(0).unwrap();
    let next = Mapping::open(&window.0, 0).unwrap();
    assert!(next.lock().unwrap(), "the supervisor does not keep the window");
    assert!(Attaching::new(memory, 6).is_ok());
}

#[test]
fn what_is_no_window_is_refused() {
    let small = Window::new("small", 100);
    assert!(Supervisor::open(&small.0, 0).is_err());
    assert!(Supervisor::open(&small.0.with_extension("missing"), 0).is_err());
}
