//! The list of all settings, for runtimes that have a list of their own.

use std::ffi::{CString, c_char, c_int};
use std::sync::LazyLock;

use towline::Config;

use crate::border::{border, put};
use crate::error::Failure;

/// A setting. All texts end with 0, and live as long as the process.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SettingRow {
    /// Its name, as in the settings of `towline_init`: `tcp.include`.
    pub name: *const c_char,
    /// The variable of the environment that overrides it: `TOWLINE_TCP_INCLUDE`.
    pub variable: *const c_char,
    /// Its default.
    pub default_value: *const c_char,
    /// The unit of its value, or an empty text.
    pub unit: *const c_char,
    /// What it does.
    pub help: *const c_char,
}

static SETTINGS: LazyLock<Vec<[CString; 5]>> = LazyLock::new(|| {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let all = Config::default().settings_from(|_| None).unwrap_or_default();
    let row = |it: &towline::Setting| [it.name, it.variable, &it.default, it.unit, it.help].map(text);
    all.iter().map(row).collect()
});

/// A setting of the list of all settings, which `towline info` prints, too.
///
/// @param index    Which one: from 0.
/// @param setting  Gets it.
/// @return         `TOWLINE_ERR_RANGE` if there are fewer settings.
///
/// Thread-safe. Since ABI version 0.1.
///
/// # Safety
/// `setting` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_setting(index: usize, setting: *mut SettingRow) -> c_int {
    border(|| {
        let Some([name, variable, default_value, unit, help]) = SETTINGS.get(index) else {
            let text = format!("there are {} settings, and none has the index {index}: stop here", SETTINGS.len());
            return Err(Failure::new(crate::error::Code::TOWLINE_ERR_RANGE, text));
        };
        let (name, variable, default_value) = (name.as_ptr(), variable.as_ptr(), default_value.as_ptr());
        let row = SettingRow { name, variable, default_value, unit: unit.as_ptr(), help: help.as_ptr() };
        // SAFETY: the caller's promise.
        unsafe { put("setting", setting, row) }
    })
}
