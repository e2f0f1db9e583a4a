//! The log of a window has one reader at a time.

use std::fs::File;

use towline_dpu::log::{Found, Log};
use towline_dpu::mapping::Mapping;
use towline_dpu::{OpenError, Supervisor};
use towline_window::device::{About, Device};
use towline_window::doorbell::Doorbell;
use towline_window::layout::Layout;

const WINDOW: usize = 1 << 16;

#[test]
fn a_second_reader_of_the_same_process_is_refused() {
    let path = std::env::temp_dir().join(format!("towline-log-{}", std::process::id()));
    File::create(&path).unwrap().set_len(WINDOW as u64).unwrap();
    let mapping = Mapping::open(&path, 0).unwrap();
    // SAFETY: the device ends before the mapping.
    let memory = unsafe { mapping.memory() }.unwrap();
    let about = About { boot: 1, operations: 8, one_sided: 0, description: "test", doorbell: Doorbell::None };
    let layout = Layout::plan(WINDOW, 8, 8).and_then(|layout| layout.with_log(1024)).unwrap();
    let _device = Device::start(memory, layout, &about).unwrap();
    let mut reader = Log::open(&path, 0).unwrap();
    assert!(matches!(Log::open(&path, 0), Err(OpenError::LogInUse(_))));
    // The lock does not end with other descriptors of the file, and is none of hosts.
    drop(Supervisor::open(&path, 0).unwrap());
    assert!(matches!(Log::open(&path, 0), Err(OpenError::LogInUse(_))));
    assert!(mapping.lock().unwrap());
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), Found::Bytes(0));
    drop(reader);
    assert!(Log::open(&path, 0).is_ok(), "the first reader has ended");
    std::fs::remove_file(path).unwrap();
}
