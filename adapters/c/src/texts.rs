//! Texts for C.

use std::ffi::c_char;
use std::ptr;

/// Copies a text and a 0 into memory of the caller, cut to what fits. Returns the length of the whole text.
///
/// # Safety
/// `buffer` is null, or writable for `size` bytes.
pub(crate) unsafe fn copy_text(text: &str, buffer: *mut c_char, size: usize) -> usize {
    if let Some(most) = size.checked_sub(1)
        && !buffer.is_null()
    {
        // A character is not cut in two.
        let len = text.floor_char_boundary(most);
        // SAFETY: the caller's promise; `len` is below `size`, and not longer than the text.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), len);
            buffer.add(len).write(0);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let mut buffer = [7u8; 6];
        for (size, expected) in
            [(0, &b"\x07"[..]), (1, b"\0"), (2, b"a\0"), (3, b"a\0"), (4, b"a\xc3\xa4\0"), (6, b"a\xc3\xa4b\0")]
        {
            buffer.fill(7);
            // SAFETY: the buffer is at least as long as it says.
            assert_eq!(unsafe { copy_text("a\u{e4}b", buffer.as_mut_ptr().cast(), size) }, 4);
            assert!(buffer.starts_with(expected), "{size}: {buffer:?}");
        }
        // SAFETY: a null address is not used.
        assert_eq!(unsafe { copy_text("four", ptr::null_mut(), 9) }, 4);
    }
}
