//! Counters by name.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use towline::raw::Counter;
use towline_settings::nearest;

use crate::border::{border, check_pointer, put, put_if_wanted, text};
use crate::error::{Failure, Outcome};
use crate::handles::ContextHandle;
use crate::levels::with;
use crate::tally::TALLIED;
use crate::worlds::{Context, find_context};

/// How many counters a context has. The number, the names and their order stay the same as long as the context exists. Other versions
/// of the library may have others, so a program looks them up by name, or lists them all.
///
/// Names have the part that counts, and what it counts: `program.bytes_sent` is what the program itself has sent with functions of
/// this interface, `engine.eager_sent` is of the library's protocol, `one_sided.served` of windows, and `tcp.0.reads` of the first
/// transport of that kind.
///
/// @param context  The context.
/// @param count    Gets the number.
/// @return         `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `count` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_counter_count(context: ContextHandle, count: *mut usize) -> c_int {
    border(|| {
        check_pointer("count", count)?;
        let counters = all(find_context(context.bits)?);
        // SAFETY: the caller's promise.
        unsafe { put("count", count, counters.len()) }
    })
}

/// A counter by its index.
///
/// @param context  The context.
/// @param index    The index: 0 to the number of counters - 1.
/// @param name     Gets the name. The text lives as long as the context. May be null.
/// @param what     Gets what is counted, in words. The text lives as long as the context. May be null.
/// @param value    Gets the number so far. It never decreases, but begins again at 0 after 2^64 - 1. May be null.
/// @return         `TOWLINE_ERR_ARGUMENT` if there is no such index; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// The addresses are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_counter_at(
    context: ContextHandle,
    index: usize,
    name: *mut *const c_char,
    what: *mut *const c_char,
    value: *mut u64,
) -> c_int {
    border(|| {
        let found = find_context(context.bits)?;
        let counters = all(found);
        let counter = counters.get(index).ok_or_else(|| {
            let count = counters.len();
            Failure::argument(format!("there is no counter {index}: there are {count}, numbered from 0"))
        })?;
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let texts = || counters.iter().map(|counter| [text(&counter.name), text(counter.help)]).collect();
        let texts = found.counter_texts.get_or_init(texts).get(index);
        // SAFETY: the caller's promise.
        unsafe {
            put_if_wanted(name, texts.map_or(ptr::null(), |[name, _]| name.as_ptr()));
            put_if_wanted(what, texts.map_or(ptr::null(), |[_, what]| what.as_ptr()));
            put_if_wanted(value, counter.value);
        }
        Ok(())
    })
}

/// The value of a counter by its name.
///
/// @param context  The context.
/// @param name     The name, such as `program.messages_sent`. `towline_counter_at` lists all names.
/// @param value    Gets the number so far, as `towline_counter_at`.
/// @return         `TOWLINE_ERR_ARGUMENT` if this context has no such counter; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`.
///
/// Thread-safe as the context's level says. Since ABI version 0.1.
///
/// # Safety
/// `name` is the address of a text that ends with 0, and `value` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_counter(context: ContextHandle, name: *const c_char, value: *mut u64) -> c_int {
    border(|| {
        check_pointer("value", value)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let counters = all(find_context(context.bits)?);
        let counter = find(&counters, &name)?;
        // SAFETY: the caller's promise.
        unsafe { put("value", value, counter.value) }
    })
}

/// All counters of a context: first those of the program's own calls.
fn all(context: &'static Context) -> Vec<Row> {
    let own = TALLIED.iter().zip(context.tally.values());
    let own = own.map(|((name, help), value)| Row { name: format!("program.{name}"), help, value });
    let library = with!(context.all_ranks(), comm => comm.counters_raw());
    own.chain(library.into_iter().map(Row::from)).collect()
}

/// A counter.
struct Row {
    name: String,
    help: &'static str,
    value: u64,
}

impl From<Counter> for Row {
    fn from(counter: Counter) -> Self {
        let Counter { name, help, value, .. } = counter;
        Self { name, help, value }
    }
}

fn find<'a>(counters: &'a [Row], name: &str) -> Outcome<&'a Row> {
    counters.iter().find(|counter| counter.name == name).ok_or_else(|| {
        let near = nearest(name, counters.iter().map(|counter| counter.name.as_str()));
        let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
        Failure::argument(format!(
            "this context has no counter `{name}`{hint}; counters of a transport exist only where it is in use, and \
             `towline_counter_at` lists them all"
        ))
    })
}
