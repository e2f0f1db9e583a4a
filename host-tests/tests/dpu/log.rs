//! The log of the firmware, which hosts read from the window.

use towline_dpu::log::{Found, Log};
use towline_window::host::DeviceError;

use crate::processes::{Dpus, Protocol, wait};

/// What the log has now.
fn read(log: &mut Log) -> Vec<u8> {
    let (mut all, mut into) = (Vec::new(), [0; 1000]);
    loop {
        match log.read(&mut into).unwrap() {
            Found::Bytes(0) => return all,
            Found::Bytes(count) => all.extend_from_slice(&into[..count]),
            other => panic!("{other:?}"),
        }
    }
}

/// The number of frames. A zero byte ends each one.
fn frames(bytes: &[u8]) -> usize {
    assert!(bytes.last().is_none_or(|last| *last == 0), "a frame is not whole: {bytes:?}");
    bytes.iter().filter(|byte| **byte == 0).count()
}

#[test]
#[ignore = "needs the firmware; scripts/firmware runs it"]
fn the_log_is_read_from_the_window_until_the_firmware_fails_and_after_a_restart() {
    let mut dpus = Dpus::start("log", 1, Protocol::Udp);
    let host = dpus.attach(0, 7);
    let (file, offset) = dpus.place(0);
    let mut log = Log::open(&file, offset).unwrap();
    assert!(
        frames(&wait("the firmware logs its start", || Some(read(&mut log)).filter(|bytes| !bytes.is_empty()))) > 0
    );
    assert_eq!((log.lost(), log.has_failed()), (0, false));
    if dpus.are_virtual() {
        dpus.crash(0);
        wait("the firmware has failed", || matches!(host.check(), Err(DeviceError::Failed(_))).then_some(()));
        assert!(log.has_failed());
        // The log of a firmware that has failed can be read by a process that comes late.
        drop(log);
        log = Log::open(&file, offset).unwrap();
        frames(&read(&mut log));
    }
    dpus.restart(0);
    let mut into = [0; 1000];
    wait("the reader sees the restart", || (log.read(&mut into).unwrap() == Found::Restarted).then_some(()));
    wait("the firmware logs again", || (frames(&read(&mut log)) > 0).then_some(()));
}
