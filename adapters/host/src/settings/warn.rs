//! Prints warnings.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Passes a warning to the program's logger, or prints it if the program has none. A process does this once for each text, also
/// if it makes several worlds.
pub(crate) fn warn(warning: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if !WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(warning.into()) {
        return;
    }
    if log::max_level() == log::LevelFilter::Off {
        eprintln!("towline: warning: {warning}");
    } else {
        log::warn!("{warning}");
    }
}
