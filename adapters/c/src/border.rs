//! The border to C: panics and pointers.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use towline::btl::Span;

use crate::error::{Code, Failure, Fault, Outcome, keep};

/// Runs the body of a function, and returns its code. A panic ends here.
#[inline]
pub(crate) fn border(body: impl FnOnce() -> Outcome<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Code::TOWLINE_SUCCESS as c_int,
        Ok(Err(failure)) => keep(failure),
        Err(panic) => keep(of_panic(&*panic)),
    }
}

#[cold]
fn of_panic(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref().cloned());
    let text = text.unwrap_or_else(|| "no text".into());
    Failure {
        code: Code::TOWLINE_ERR_INTERNAL,
        fault: Fault::TOWLINE_FAULT_LIBRARY,
        text: format!("the library has a fault, please report it: {text}"),
    }
}

/// Writes a result of a function.
///
/// # Safety
/// The address is null, or writable and aligned for a `T`.
#[inline]
pub(crate) unsafe fn put<T>(name: &str, to: *mut T, value: T) -> Outcome<()> {
    check_pointer(name, to)?;
    // SAFETY: the caller's promise, and the address is not null.
    unsafe { to.write(value) };
    Ok(())
}

/// As [`put`], where the caller may want no result.
///
/// # Safety
/// As [`put`].
#[inline]
pub(crate) unsafe fn put_if_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

#[inline]
pub(crate) fn check_pointer<T>(name: &str, pointer: *const T) -> Outcome<()> {
    if pointer.is_null() { Err(is_null(name)) } else { Ok(()) }
}

#[cold]
fn is_null(name: &str) -> Failure {
    Failure::argument(format!("`{name}` is a null pointer: pass an address"))
}

/// A list of the caller. A list of length 0 may have a null address.
///
/// # Safety
/// The address is null, or `len` items are readable from there on, and nothing changes them for `'a`.
#[inline]
pub(crate) unsafe fn list<'a, T>(name: &str, base: *const T, len: usize) -> Outcome<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check_list(name, base, len)?;
    // SAFETY: the caller's promise; the length was checked.
    Ok(unsafe { std::slice::from_raw_parts(base, len) })
}

/// As [`list`], to be changed.
///
/// # Safety
/// As [`list`], and nothing else uses the items for `'a`.
pub(crate) unsafe fn list_mut<'a, T>(name: &str, base: *mut T, len: usize) -> Outcome<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check_list(name, base, len)?;
    // SAFETY: the caller's promise; the length was checked.
    Ok(unsafe { std::slice::from_raw_parts_mut(base, len) })
}

/// Memory of the caller, which others may use at the same time.
#[inline]
pub(crate) fn memory(name: &str, base: *const c_void, len: usize) -> Outcome<Span> {
    if len != 0 {
        check_list(name, base.cast::<u8>(), len)?;
    }
    Ok(Span::contiguous(base.cast_mut().cast(), len))
}

/// Copies bytes to memory of the caller, who gets their number in any case.
///
/// # Safety
/// `buffer` is null, or writable for `size` bytes; `length` is null or writable.
pub(crate) unsafe fn copy_bytes(
    what: &str,
    bytes: &[u8],
    buffer: *mut c_void,
    size: usize,
    length: *mut usize,
) -> Outcome<()> {
    // SAFETY: the caller's promise.
    unsafe { put("length", length, bytes.len()) }?;
    if buffer.is_null() || size < bytes.len() {
        let text = format!("the {what} has {} bytes, and the buffer has {size}: pass a longer one", bytes.len());
        return Err(Failure::new(Code::TOWLINE_ERR_NO_MEMORY, text));
    }
    // SAFETY: the caller's promise; they fit, and the caller cannot know where the library has them.
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// Checks the address and the length of a list of the caller.
#[inline]
pub(crate) fn check_list<T>(name: &str, base: *const T, len: usize) -> Outcome<()> {
    let fits = len.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if fits && !base.is_null() && base.is_aligned() {
        return Ok(());
    }
    check_pointer(name, base)?;
    Err(if fits { not_aligned(name) } else { too_long(name, len) })
}

#[cold]
fn not_aligned(name: &str) -> Failure {
    Failure::argument(format!("the address `{name}` is not aligned for its type"))
}

#[cold]
fn too_long(name: &str, len: usize) -> Failure {
    Failure::argument(format!("`{name}` cannot have {len} items: that is more than memory has"))
}

/// A text of the caller. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// The address is null, or that of a text that ends with 0.
pub(crate) unsafe fn text(name: &str, address: *const c_char) -> Outcome<String> {
    check_pointer(name, address)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::error::{towline_error_fault, towline_error_text};

    fn last() -> String {
        let mut buffer = [0u8; 200];
        // SAFETY: the buffer is as long as it says.
        let len = unsafe { towline_error_text(buffer.as_mut_ptr().cast(), buffer.len()) };
        String::from_utf8_lossy(&buffer[..len.min(199)]).into_owned()
    }

    #[test]
    fn a_panic_becomes_a_code() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let codes = [border(|| panic!("of {}", "a kind")), border(|| std::panic::panic_any(7))];
        std::panic::set_hook(hook);
        assert_eq!(codes, [Code::TOWLINE_ERR_INTERNAL as c_int; 2]);
        assert_eq!(border(|| Ok(())), 0);
        assert!(last().contains("report") && towline_error_fault() == Fault::TOWLINE_FAULT_LIBRARY, "{}", last());
    }

    #[test]
    fn impossible_lists_and_pointers_are_refused() {
        // SAFETY: none of these addresses is used.
        unsafe {
            assert!(list::<u64>("x", ptr::null(), 0).unwrap().is_empty());
            assert!(list::<u64>("x", ptr::null(), 1).unwrap_err().text.contains("`x` is a null pointer"));
            assert!(list::<u64>("x", ptr::without_provenance(3), 1).unwrap_err().text.contains("aligned"));
            assert!(list_mut::<u64>("x", ptr::without_provenance_mut(8), usize::MAX).is_err());
            assert!(put::<u64>("x", ptr::null_mut(), 1).is_err());
            put_if_wanted::<u64>(ptr::null_mut(), 1);
            assert!(text("x", ptr::null()).is_err());
        }
    }
}
