//! The types and numbers of PMIx that this crate uses, as its standard lays them out in memory. A test compares them with the header
//! of the system, where it is installed.

use std::ffi::{c_char, c_int, c_void};

/// Bytes of the name of a namespace, with the 0 at its end.
pub const NAMESPACE: usize = 256;
/// Bytes of a key, with the 0 at its end.
pub const KEY: usize = 512;

/// The status of a call: 0 or a negative number.
pub type Status = c_int;
/// Success.
pub const SUCCESS: Status = 0;
/// A call without waiting has been done at once, and its callback will not be called.
pub const OPERATION_SUCCEEDED: Status = -157;
/// What a handler returns that leaves an event to others, too.
pub const NO_ACTION_TAKEN: Status = -331;
/// The time limit of a call has passed.
pub const ERR_TIMEOUT: Status = -24;

/// The codes of the events that this crate listens to: those by which a launcher says that a process has failed, and the own one.
/// The library may read them at any time.
pub static EVENTS: [Status; 9] = [
    -7,   // PMIX_ERR_PROC_ABORTED
    -8,   // PMIX_ERR_PROC_REQUESTED_ABORT
    -200, // PMIX_ERR_PROC_TERM_WO_SYNC
    -400, // PMIX_ERR_PROC_KILLED_BY_CMD
    -401, // PMIX_ERR_PROC_FAILED_TO_START
    -402, // PMIX_ERR_PROC_ABORTED_BY_SIG
    -403, // PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED
    -404, // PMIX_ERR_EXIT_NONZERO_TERM
    LEFT,
];

/// The event of a rank that has left its job early. Numbers below -3000 are for programs.
pub const LEFT: Status = -3021;
/// Who gets an event: the processes of the namespace.
pub const RANGE_NAMESPACE: u8 = 3;
/// Who gets an event: the processes of this host.
pub const RANGE_LOCAL: u8 = 2;

/// The rank that means all ranks of a namespace.
pub const RANK_WILDCARD: u32 = u32::MAX - 1;
/// Who may read a value: all processes of the namespace.
pub const GLOBAL: u8 = 3;

/// Types of values.
pub const BOOL: u16 = 1;
/// A text that ends with 0.
pub const STRING: u16 = 3;
/// A C `int`.
pub const INT: u16 = 6;
/// 16 bits without sign.
pub const UINT16: u16 = 13;
/// 32 bits without sign.
pub const UINT32: u16 = 14;
/// A process.
pub const PROC: u16 = 22;
/// Bytes.
pub const BYTE_OBJECT: u16 = 27;
/// An array of items of one type.
pub const DATA_ARRAY: u16 = 39;
/// A rank.
pub const PROC_RANK: u16 = 40;

/// A process: `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    /// The namespace, which is the job.
    pub nspace: [c_char; NAMESPACE],
    /// The rank in it.
    pub rank: u32,
}

/// Bytes: `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteObject {
    /// Where they are.
    pub bytes: *mut c_char,
    /// How many.
    pub size: usize,
}

/// An array: `pmix_data_array_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DataArray {
    /// The type of the items.
    pub kind: u16,
    /// How many items.
    pub size: usize,
    /// Where they are.
    pub array: *mut c_void,
}

/// What a value may be. The field that counts is that of its type.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    /// `BOOL`
    pub flag: bool,
    /// `INT`
    pub integer: c_int,
    /// `UINT16`
    pub uint16: u16,
    /// `UINT32`, `PROC_RANK`
    pub uint32: u32,
    /// `STRING`
    pub string: *mut c_char,
    /// `PROC`
    pub process: *mut Proc,
    /// `BYTE_OBJECT`
    pub bytes: ByteObject,
    /// `DATA_ARRAY`
    pub array: *mut DataArray,
    /// The longest alternative is a structure of two addresses and a byte.
    pub longest: [usize; 3],
}

/// A value with its type: `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    /// The type.
    pub kind: u16,
    /// The value.
    pub data: Data,
}

/// A value with a key: `pmix_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    /// The key, which ends with 0.
    pub key: [c_char; KEY],
    /// Bits, such as that the value must be respected.
    pub flags: u32,
    /// The value.
    pub value: Value,
}

/// `pmix_op_cbfunc_t`: a call without waiting is done.
pub type DoneFn = unsafe extern "C" fn(Status, *mut c_void);
/// `pmix_info_cbfunc_t`: a call without waiting has these results, which the last two arguments free.
pub type ResultsFn =
    unsafe extern "C" fn(Status, *mut Info, usize, *mut c_void, Option<unsafe extern "C" fn(*mut c_void)>, *mut c_void);
/// `pmix_hdlr_reg_cbfunc_t`: a handler was registered, and has this number.
pub type RegisteredFn = unsafe extern "C" fn(Status, usize, *mut c_void);
/// `pmix_event_notification_cbfunc_fn_t`: what a handler calls when it is done.
pub type HandledFn = unsafe extern "C" fn(Status, *mut Info, usize, Option<DoneFn>, *mut c_void, *mut c_void);
/// `pmix_notification_fn_t`: a handler of events.
pub type HandlerFn = unsafe extern "C" fn(
    usize,
    Status,
    *const Proc,
    *mut Info,
    usize,
    *mut Info,
    usize,
    Option<HandledFn>,
    *mut c_void,
);

/// The functions of the library.
pub mod functions {
    use super::*;

    /// `PMIx_Get_version`
    pub type GetVersion = unsafe extern "C" fn() -> *const c_char;
    /// `PMIx_Error_string`
    pub type ErrorString = unsafe extern "C" fn(Status) -> *const c_char;
    /// `PMIx_Init`
    pub type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> Status;
    /// `PMIx_Finalize`
    pub type Finalize = unsafe extern "C" fn(*const Info, usize) -> Status;
    /// `PMIx_Put`
    pub type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> Status;
    /// `PMIx_Commit`
    pub type Commit = unsafe extern "C" fn() -> Status;
    /// `PMIx_Fence_nb`
    pub type FenceNb =
        unsafe extern "C" fn(*const Proc, usize, *const Info, usize, Option<DoneFn>, *mut c_void) -> Status;
    /// `PMIx_Get`
    pub type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> Status;
    /// `PMIx_Abort`
    pub type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> Status;
    /// `PMIx_Job_control_nb`
    pub type JobControlNb =
        unsafe extern "C" fn(*const Proc, usize, *const Info, usize, Option<ResultsFn>, *mut c_void) -> Status;
    /// `PMIx_Register_event_handler`
    pub type RegisterEventHandler = unsafe extern "C" fn(
        *mut Status,
        usize,
        *mut Info,
        usize,
        Option<HandlerFn>,
        Option<RegisteredFn>,
        *mut c_void,
    );
    /// `PMIx_Notify_event`
    pub type NotifyEvent =
        unsafe extern "C" fn(Status, *const Proc, u8, *const Info, usize, Option<DoneFn>, *mut c_void) -> Status;
    /// `PMIx_Deregister_event_handler`
    pub type DeregisterEventHandler = unsafe extern "C" fn(usize, Option<DoneFn>, *mut c_void);
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// The same in C and in Rust: an expression of C, and its value here.
    fn expected() -> Vec<(&'static str, i64)> {
        let size = |bytes: usize| bytes as i64;
        vec![
            ("sizeof(pmix_status_t)", size(size_of::<Status>())),
            ("sizeof(pmix_proc_t)", size(size_of::<Proc>())),
            ("offsetof(pmix_proc_t, rank)", size(offset_of!(Proc, rank))),
            ("sizeof(pmix_byte_object_t)", size(size_of::<ByteObject>())),
            ("offsetof(pmix_byte_object_t, size)", size(offset_of!(ByteObject, size))),
            ("sizeof(pmix_data_array_t)", size(size_of::<DataArray>())),
            ("sizeof(((pmix_data_array_t *)0)->type)", size(size_of::<u16>())),
            ("offsetof(pmix_data_array_t, size)", size(offset_of!(DataArray, size))),
            ("offsetof(pmix_data_array_t, array)", size(offset_of!(DataArray, array))),
            ("sizeof(pmix_value_t)", size(size_of::<Value>())),
            ("_Alignof(pmix_value_t)", size(align_of::<Value>())),
            ("sizeof(((pmix_value_t *)0)->type)", size(size_of::<u16>())),
            ("offsetof(pmix_value_t, data)", size(offset_of!(Value, data))),
            ("sizeof(pmix_info_t)", size(size_of::<Info>())),
            ("offsetof(pmix_info_t, flags)", size(offset_of!(Info, flags))),
            ("sizeof(((pmix_info_t *)0)->flags)", size(size_of::<u32>())),
            ("offsetof(pmix_info_t, value)", size(offset_of!(Info, value))),
            ("sizeof(pmix_scope_t)", 1),
            ("sizeof(pmix_data_range_t)", 1),
            ("PMIX_MAX_NSLEN + 1", size(NAMESPACE)),
            ("PMIX_MAX_KEYLEN + 1", size(KEY)),
            ("PMIX_SUCCESS", SUCCESS.into()),
            ("PMIX_OPERATION_SUCCEEDED", OPERATION_SUCCEEDED.into()),
            ("PMIX_EVENT_NO_ACTION_TAKEN", NO_ACTION_TAKEN.into()),
            ("PMIX_ERR_TIMEOUT", ERR_TIMEOUT.into()),
            ("PMIX_ERR_PROC_ABORTED", EVENTS[0].into()),
            ("PMIX_ERR_PROC_REQUESTED_ABORT", EVENTS[1].into()),
            ("PMIX_ERR_PROC_TERM_WO_SYNC", EVENTS[2].into()),
            ("PMIX_ERR_PROC_KILLED_BY_CMD", EVENTS[3].into()),
            ("PMIX_ERR_PROC_FAILED_TO_START", EVENTS[4].into()),
            ("PMIX_ERR_PROC_ABORTED_BY_SIG", EVENTS[5].into()),
            ("PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED", EVENTS[6].into()),
            ("PMIX_ERR_EXIT_NONZERO_TERM", EVENTS[7].into()),
            ("LEFT < PMIX_EXTERNAL_ERR_BASE", 1),
            ("(PMIX_RANK_WILDCARD)", RANK_WILDCARD.into()),
            ("PMIX_GLOBAL", GLOBAL.into()),
            ("PMIX_RANGE_NAMESPACE", RANGE_NAMESPACE.into()),
            ("PMIX_RANGE_LOCAL", RANGE_LOCAL.into()),
            ("PMIX_BOOL", BOOL.into()),
            ("PMIX_STRING", STRING.into()),
            ("PMIX_INT", INT.into()),
            ("PMIX_UINT16", UINT16.into()),
            ("PMIX_UINT32", UINT32.into()),
            ("PMIX_PROC", PROC.into()),
            ("PMIX_BYTE_OBJECT", BYTE_OBJECT.into()),
            ("PMIX_DATA_ARRAY", DATA_ARRAY.into()),
            ("PMIX_PROC_RANK", PROC_RANK.into()),
        ]
    }

    /// Where the header is: as pkg-config says, and where Debian has it.
    fn header_options() -> Option<Vec<String>> {
        let asked = Command::new("pkg-config").args(["--cflags", "pmix"]).output();
        let said = asked.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let options = String::from_utf8(said.unwrap_or_default()).ok()?;
        let mut options: Vec<String> = options.split_whitespace().map(str::to_string).collect();
        options.push(format!("-I/usr/lib/{}-linux-gnu/pmix2/include", std::env::consts::ARCH));
        let has_header =
            |option: &String| option.strip_prefix("-I").is_some_and(|it| Path::new(it).join("pmix.h").exists());
        options.iter().any(has_header).then_some(options)
    }

    #[test]
    fn types_and_numbers_are_those_of_the_header() {
        let Some(options) = header_options() else {
            println!("skipped: the header pmix.h is not installed (libpmix-dev)");
            return;
        };
        let folder = std::env::temp_dir().join(format!("towline-pmix-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("layout.c"), folder.join("layout"));
        let prints: String =
            expected().iter().map(|(what, _)| format!("    printf(\"%lld\\n\", (long long)({what}));\n")).collect();
        let includes = "#include <stddef.h>\n#include <stdio.h>\n#include <pmix.h>\n#include <pmix_deprecated.h>\n";
        let text = format!("{includes}#define LEFT ({LEFT})\nint main(void) {{\n{prints}    return 0;\n}}\n");
        std::fs::write(&source, text).unwrap();
        let compiled = Command::new("cc").args(&options).arg(&source).arg("-o").arg(&program).output().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let said = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let values: Vec<i64> = said.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(values.len(), expected().len());
        for ((what, here), there) in expected().into_iter().zip(values) {
            assert_eq!(here, there, "{what}");
        }
    }
}
