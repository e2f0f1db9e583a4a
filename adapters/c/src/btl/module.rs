//! To open and to close modules, and progress.

use std::ffi::{c_char, c_int};
use std::time::Duration;

use towline::{Builder, Config};

use crate::border::{border, check_list, check_pointer, put, put_if_wanted};
use crate::btl::handles::BtlHandle;
use crate::btl::state::{self, State};
use crate::context::{no_thread_level, read_settings};
use crate::error::{Code, Failure, Fault, Outcome};
use crate::place::{Place, read_place};

/// Opens the transports of this process for a runtime that does its own matching: one module for each rail, in the order sm, tcp, udp,
/// verbs, dpu-frames. Several links of a transport (the setting `links`) are several rails. No launcher and no other process is needed, and
/// nothing waits.
///
/// The runtime carries the card of each module (`towline_btl_card`) to the module of the same rail in other processes, which add it
/// (`towline_btl_add_peer`). Both ends must add each other; a frame to a process that has not done so waits. There is no progress
/// thread: the runtime calls `towline_btl_progress`.
///
/// @param threads   A `towline_thread_level_t`. With several threads, each call for a module takes its lock.
/// @param settings  As for `towline_init`.
/// @param place     The place of this process.
/// @param modules   Gets the modules. The caller closes each with `towline_btl_close`.
/// @param room      How many modules fit there.
/// @param count     Gets how many there are.
/// @return          `TOWLINE_ERR_ARGUMENT` for an impossible place, or if there are more modules than fit; otherwise as `towline_init`.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// The texts end with 0, the array ends with null, `place` is readable, `modules` is writable for `room` handles, and `count` is
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_open(
    threads: c_int,
    settings: *const *const c_char,
    place: *const Place,
    modules: *mut BtlHandle,
    room: usize,
    count: *mut usize,
) -> c_int {
    border(|| {
        check_pointer("count", count)?;
        if room != 0 {
            check_list("modules", modules, room)?;
        }
        let several = match threads {
            0 | 1 => false,
            2 | 3 => true,
            other => return Err(no_thread_level(other)),
        };
        // SAFETY: the caller's promise.
        let place = unsafe { read_place(place) }?;
        let mut config = Config::default();
        // SAFETY: the caller's promise.
        unsafe { read_settings(settings, &mut config) }?;
        let opened = Builder::new().configure(|it| *it = config).open_btl(place)?;
        if opened.len() > room {
            return Err(Failure::argument(format!(
                "there are {} modules, and `modules` has room for {room}: pass a longer list, or choose fewer transports",
                opened.len()
            )));
        }
        let kept: Outcome<Vec<_>> =
            opened.into_iter().map(|(module, directory)| State::insert(module, directory, several)).collect();
        let kept = kept?;
        for (index, module) in kept.iter().enumerate() {
            // SAFETY: the caller's promise; there is room.
            unsafe { modules.add(index).write(*module) };
        }
        // SAFETY: the caller's promise.
        unsafe { put("count", count, kept.len()) }
    })
}

/// Closes a module: makes progress until all that was sent has left, and ends. All its handles are stale then. Functions of the
/// program may be called before it returns, and not after.
///
/// @param btl        The module. It has ended also if the function fails, unless it returns `TOWLINE_ERR_BUSY`, `TOWLINE_ERR_HANDLE`,
///                   `TOWLINE_ERR_THREAD` or `TOWLINE_ERR_FORKED`.
/// @param timeout_ms How long to wait, in milliseconds; 0: frames that have not left are lost.
/// @return           `TOWLINE_ERR_OTHER` if frames had not left in time; `TOWLINE_ERR_BUSY` within a function that the module has called.
///
/// No other call may use the module at the same time. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_btl_close(btl: BtlHandle, timeout_ms: u32) -> c_int {
    border(|| {
        if state::close(btl, Duration::from_millis(timeout_ms.into()))? || timeout_ms == 0 {
            return Ok(());
        }
        Err(Failure {
            code: Code::TOWLINE_ERR_OTHER,
            fault: Fault::TOWLINE_FAULT_PEER,
            text: format!("frames had not left within {timeout_ms} ms, since peers do not receive them: they are lost"),
        })
    })
}

/// Makes progress once, without waiting: hands frames that have arrived to the functions of their tags, sends what waits, and calls
/// the functions of complete operations. Within such a function, and while another thread uses the module, it does nothing.
///
/// @param btl     The module.
/// @param events  Gets how many operations were completed and frames handed over. May be null.
/// @return        `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `events` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_progress(btl: BtlHandle, events: *mut u32) -> c_int {
    border(|| {
        let came = state::progress(btl)?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(events, came) };
        Ok(())
    })
}
