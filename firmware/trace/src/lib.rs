//! A logger for `defmt`. It puts frames into a ring in memory, and [`drain`] writes them to any [`embedded_io::Write`]. A program
//! with a window to a host puts them into the log of the window instead, by `to_window` (feature `window`): there the host reads
//! them, also those that were written shortly before the program failed.
//!
//! Logging never waits. A frame that does not fit is dropped as a whole and counted.
#![no_std]

use core::cell::UnsafeCell;

use critical_section::RestoreState;
use embedded_io::Write;
use heapless::Deque;
#[cfg(feature = "window")]
use towline_window::placed_log::DeviceLog;

/// Size of the ring in bytes.
const CAPACITY: usize = 4096;

/// Numbers of frames so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Frames put into the ring.
    pub frames: u32,
    /// Frames dropped because the ring was full.
    pub lost: u32,
}

struct TraceState {
    bytes: Deque<u8, CAPACITY>,
    encoder: defmt::Encoder,
    /// Bytes of the frame that is being written.
    frame: usize,
    /// The frame that is being written does not fit.
    overrun: bool,
    counts: Counts,
    /// Where frames go instead of the ring.
    #[cfg(feature = "window")]
    window: Option<DeviceLog<'static>>,
    /// The token of the critical section in which a frame is written.
    section: Option<RestoreState>,
}

struct Shared(UnsafeCell<TraceState>);

// SAFETY: the state is accessed inside critical sections only.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(TraceState {
    bytes: Deque::new(),
    encoder: defmt::Encoder::new(),
    frame: 0,
    overrun: false,
    counts: Counts { frames: 0, lost: 0 },
    #[cfg(feature = "window")]
    window: None,
    section: None,
}));

impl TraceState {
    /// Calls `work` with the encoder, and puts the encoded bytes where they go.
    fn encode(&mut self, work: impl FnOnce(&mut defmt::Encoder, &mut dyn FnMut(&[u8]))) {
        #[cfg(feature = "window")]
        if let Some(window) = &mut self.window {
            return work(&mut self.encoder, &mut |piece| window.append(piece));
        }
        let Self { bytes, encoder, frame, overrun, .. } = self;
        work(encoder, &mut |piece| {
            for byte in piece {
                if *overrun || bytes.push_back(*byte).is_err() {
                    *overrun = true;
                    return;
                }
                *frame = frame.wrapping_add(1);
            }
        });
    }

    fn end(&mut self) {
        #[cfg(feature = "window")]
        if let Some(window) = &mut self.window {
            window.end();
            return;
        }
        if self.overrun {
            for _ in 0..self.frame {
                self.bytes.pop_back();
            }
            self.counts.lost = self.counts.lost.wrapping_add(1);
        } else {
            self.counts.frames = self.counts.frames.wrapping_add(1);
        }
        self.frame = 0;
        self.overrun = false;
    }
}

#[defmt::global_logger]
struct Logger;

// SAFETY: `acquire` enters a critical section that `release` leaves. So no other code logs in between, and the state has
// one user at a time.
unsafe impl defmt::Logger for Logger {
    fn acquire() {
        // SAFETY: `release` releases the token once. Sections end in the reverse order of their begin.
        let section = unsafe { critical_section::acquire() };
        // SAFETY: this runs inside the critical section.
        let state = unsafe { &mut *STATE.0.get() };
        state.section = Some(section);
        state.encode(|encoder, sink| encoder.start_frame(sink));
    }

    unsafe fn flush() {}

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: the caller guarantees that this runs between `acquire` and `release`.
        let state = unsafe { &mut *STATE.0.get() };
        state.encode(|encoder, sink| encoder.write(bytes, sink));
    }

    unsafe fn release() {
        // SAFETY: the caller guarantees that `acquire` was called before.
        let state = unsafe { &mut *STATE.0.get() };
        state.encode(|encoder, sink| encoder.end_frame(sink));
        state.end();
        if let Some(section) = state.section.take() {
            // SAFETY: the token comes from the matching `acquire`.
            unsafe { critical_section::release(section) };
        }
    }
}

/// Moves the bytes in the ring to `sink`. Returns the numbers of frames so far.
///
/// # Errors
/// The sink's error. Bytes that the sink did not accept stay in the ring.
pub fn drain<W: Write>(sink: &mut W) -> Result<Counts, W::Error> {
    let mut piece = [0; 256];
    loop {
        // The sink may be slow, so it is not called inside the critical section.
        let (len, counts) = critical_section::with(|_| {
            // SAFETY: this runs inside the critical section.
            let state = unsafe { &mut *STATE.0.get() };
            let mut len = 0;
            for (to, byte) in piece.iter_mut().zip(state.bytes.iter()) {
                *to = *byte;
                len += 1;
            }
            (len, state.counts)
        });
        let Some(bytes) = piece.get(..len).filter(|bytes| !bytes.is_empty()) else { return Ok(counts) };
        let taken = sink.write(bytes)?;
        critical_section::with(|_| {
            // SAFETY: this runs inside the critical section.
            let state = unsafe { &mut *STATE.0.get() };
            for _ in 0..taken.min(len) {
                state.bytes.pop_front();
            }
        });
    }
}

/// From now on, frames go to the log of a window, and those in the ring go there first. The window's log counts lost frames.
#[cfg(feature = "window")]
pub fn to_window(mut window: DeviceLog<'static>) {
    critical_section::with(|_| {
        // SAFETY: this runs inside the critical section.
        let state = unsafe { &mut *STATE.0.get() };
        while let Some(byte) = state.bytes.pop_front() {
            window.append(&[byte]);
            // A zero ends a frame, and no other byte of a frame is zero.
            if byte == 0 {
                window.end();
            }
        }
        window.count_lost(state.counts.lost);
        state.window = Some(window);
    });
}

/// The handler of `defmt::panic!` and similar macros. Nothing uses them; a use would make the link fail.
#[defmt::panic_handler]
fn panic() -> ! {
    panic!()
}
