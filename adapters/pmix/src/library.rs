//! The PMIx library, which is loaded while the program runs.

use std::ffi::CStr;

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_NOW};

use crate::abi::{Status, functions as f};
use crate::error::Error;

/// The names under which the system may have the library. Open MPI, PRRTE and Slurm use the same one.
const NAMES: [&str; 2] = ["libpmix.so.2", "libpmix.so"];

/// The functions of the library. It stays loaded until the process ends, since it has threads of its own.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub version: f::GetVersion,
    pub error_string: f::ErrorString,
    pub init: f::Init,
    pub finalize: f::Finalize,
    pub put: f::Put,
    pub commit: f::Commit,
    pub fence_nb: f::FenceNb,
    pub get: f::Get,
    pub abort: f::Abort,
    pub job_control_nb: f::JobControlNb,
    pub register: f::RegisterEventHandler,
    pub deregister: f::DeregisterEventHandler,
    pub notify: f::NotifyEvent,
}

impl Library {
    /// Loads the library from this path, or by its usual names if the path is empty.
    pub fn load(path: &str) -> Result<Self, Error> {
        let names = if path.is_empty() { &NAMES[..] } else { &[path][..] };
        let mut whys = Vec::new();
        for name in names {
            // SAFETY: the library's initialisers are those that MPI programs run in the same way. Its own plug-ins need its symbols
            // to be visible to all.
            match unsafe { Loaded::open(Some(name), RTLD_NOW | RTLD_GLOBAL) } {
                Ok(loaded) => return Self::from_loaded(loaded, name),
                Err(why) => whys.push(why.to_string()),
            }
        }
        whys.dedup();
        Err(Error::Library(whys.join("; ")))
    }

    fn from_loaded(loaded: Loaded, name: &str) -> Result<Self, Error> {
        // It is never unloaded, so that its functions are valid for ever.
        let loaded: &'static Loaded = Box::leak(Box::new(loaded));
        let missing =
            |symbol: &str| Error::Library(format!("{name} has no function {symbol}, so it is not PMIx 3 or later"));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the PMIx standard gives the function this type.
                *unsafe { loaded.get(concat!($name, "\0").as_bytes()) }.map_err(|_| missing($name))?
            };
        }
        Ok(Self {
            version: symbol!("PMIx_Get_version"),
            error_string: symbol!("PMIx_Error_string"),
            init: symbol!("PMIx_Init"),
            finalize: symbol!("PMIx_Finalize"),
            put: symbol!("PMIx_Put"),
            commit: symbol!("PMIx_Commit"),
            fence_nb: symbol!("PMIx_Fence_nb"),
            get: symbol!("PMIx_Get"),
            abort: symbol!("PMIx_Abort"),
            job_control_nb: symbol!("PMIx_Job_control_nb"),
            register: symbol!("PMIx_Register_event_handler"),
            deregister: symbol!("PMIx_Deregister_event_handler"),
            notify: symbol!("PMIx_Notify_event"),
        })
    }

    /// The version of the library, such as `4.2.2`.
    pub fn version(&self) -> String {
        // SAFETY: the function takes nothing, and returns a text of the library or null.
        let text = unsafe { text((self.version)()) };
        // The text is a line such as `OpenPMIx 4.2.2 (PMIx Standard: ...), repo rev: ...`.
        let is_version = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
        let version = text.split(|letter: char| letter.is_whitespace() || letter == ',').find(is_version);
        version.map_or_else(|| "of an unknown version".into(), str::to_string)
    }

    /// What a status means.
    pub fn describe(&self, status: Status) -> String {
        // SAFETY: the function takes any number, and returns a text of the library or null.
        let text = unsafe { text((self.error_string)(status)) };
        if text.is_empty() { format!("status {status}") } else { format!("{text} ({status})") }
    }
}

/// # Safety
/// The address is null or that of a text that ends with 0.
unsafe fn text(address: *const std::ffi::c_char) -> String {
    if address.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned()
}
