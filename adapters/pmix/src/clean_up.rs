//! Files that the launcher's daemon on this host removes when the processes of the job are gone.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use crate::abi::{self, Info, Status};
use crate::events;
use crate::library::Library;
use crate::values::text;

const REGISTER_CLEANUP: &CStr = c"pmix.reg.cleanup";

/// What the library may read until it has answered.
struct Request {
    directive: Info,
    /// The text of the directive.
    _list: CString,
}

/// Asks for these files, without waiting. A daemon that refuses leaves them.
///
/// The request is for all processes of the namespace: a request for this process alone would be executed when it ends, and other
/// ranks may still need what it has sent before.
pub(crate) fn ask(library: &Library, files: &[PathBuf]) {
    // PMIx has commas between the paths of a list.
    let paths = files.iter().map(|path| path.as_os_str().as_bytes()).filter(|path| !path.contains(&b','));
    let paths: Vec<_> = paths.collect();
    if paths.is_empty() {
        return; // daemons of some versions read the first path of an empty list
    }
    let Ok(list) = CString::new(paths.join(&b',')) else { return };
    let request = Box::new(Request { directive: text(REGISTER_CLEANUP, &list), _list: list });
    events::unless_stopped(|| {
        let request = Box::into_raw(request);
        // SAFETY: no processes means all. The directive is in the request, which lives until the callback frees it; the callback has
        // the type of the standard.
        let status = unsafe {
            let directive = &raw const (*request).directive;
            (library.job_control_nb)(ptr::null(), 0, directive, 1, Some(answered), request.cast::<c_void>())
        };
        if status != abi::SUCCESS {
            // SAFETY: the callback is not called, so the request is this function's again.
            drop(unsafe { Box::from_raw(request) });
        }
    });
}

unsafe extern "C" fn answered(
    _status: Status,
    _results: *mut Info,
    _count: usize,
    request: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut c_void)>,
    release_data: *mut c_void,
) {
    // SAFETY: `ask` has given the request to this callback, which is called once.
    drop(unsafe { Box::from_raw(request.cast::<Request>()) });
    if let Some(release) = release {
        // SAFETY: the standard has the callback call this with its own data.
        unsafe { release(release_data) };
    }
}
