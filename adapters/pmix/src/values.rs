//! Values that come from the library, or go to it.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::slice;

use crate::abi::{self, ByteObject, Data, DataArray, Info, KEY, NAMESPACE, Proc, Value};

/// The most bytes of a value that are believed.
const BYTES_MAX: usize = 1 << 30;
/// The most items of an array that are believed.
const ITEMS_MAX: usize = 1 << 20;

/// A value that the library has allocated, and that this process frees.
pub(crate) struct Received(NonNull<Value>);

impl Received {
    /// # Safety
    /// The address is null, or that of a value that the library has allocated for its caller.
    pub unsafe fn new(address: *mut Value) -> Option<Self> {
        NonNull::new(address).map(Self)
    }

    fn value(&self) -> &Value {
        // SAFETY: the address is that of a value, which belongs to this object.
        unsafe { self.0.as_ref() }
    }

    /// The bytes, if it has some.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let bytes = byte_object(self.value())?;
        if bytes.size == 0 {
            return Some(Vec::new());
        }
        let is_plausible = !bytes.bytes.is_null() && bytes.size <= BYTES_MAX;
        // SAFETY: the library says that so many bytes are there.
        is_plausible.then(|| unsafe { slice::from_raw_parts(bytes.bytes.cast::<u8>(), bytes.size) }.to_vec())
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<u32> {
        let Value { kind, data } = self.value();
        // SAFETY: the type says which alternative it is.
        unsafe {
            match *kind {
                abi::UINT32 | abi::PROC_RANK => Some(data.uint32),
                abi::UINT16 => Some(data.uint16.into()),
                abi::INT => u32::try_from(data.integer).ok(),
                _ => None,
            }
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<String> {
        let text = string(self.value()).filter(|text| !text.is_null())?;
        // SAFETY: the type says that it is a text, which ends with 0.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let inner = string(self.value()).or_else(|| byte_object(self.value()).map(|it| it.bytes));
        // SAFETY: the library allocates values by `malloc`, as its standard says, and leaves them to the caller. What the value points
        // to is freed before it. Values of other types are never asked for; what they point to would stay.
        unsafe {
            libc::free(inner.unwrap_or(std::ptr::null_mut()).cast::<c_void>());
            libc::free(self.0.as_ptr().cast::<c_void>());
        }
    }
}

fn byte_object(value: &Value) -> Option<ByteObject> {
    // SAFETY: the type says which alternative it is.
    if value.kind == abi::BYTE_OBJECT { Some(unsafe { value.data.bytes }) } else { None }
}

fn string(value: &Value) -> Option<*mut c_char> {
    // SAFETY: the type says which alternative it is.
    if value.kind == abi::STRING { Some(unsafe { value.data.string }) } else { None }
}

/// A value of these bytes, which the library copies.
pub(crate) fn of_bytes(bytes: &[u8]) -> Value {
    let bytes = ByteObject { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
    Value { kind: abi::BYTE_OBJECT, data: Data { bytes } }
}

/// A directive that is true.
pub(crate) fn flag(key: &CStr) -> Info {
    info(key, Value { kind: abi::BOOL, data: Data { flag: true } })
}

/// A directive that is a number.
pub(crate) fn number(key: &CStr, integer: i32) -> Info {
    info(key, Value { kind: abi::INT, data: Data { integer } })
}

/// A directive that is a text. It is valid as long as the text is.
pub(crate) fn text(key: &CStr, text: &CStr) -> Info {
    info(key, Value { kind: abi::STRING, data: Data { string: text.as_ptr().cast_mut() } })
}

fn info(name: &CStr, value: Value) -> Info {
    Info { key: fixed::<KEY>(name), flags: 0, value }
}

/// A process of a namespace.
pub(crate) fn process(nspace: [c_char; NAMESPACE], rank: u32) -> Proc {
    Proc { nspace, rank }
}

/// A text in a field of `N` bytes. All texts of this crate are shorter.
fn fixed<const N: usize>(text: &CStr) -> [c_char; N] {
    let mut field = [0; N];
    field.iter_mut().zip(text.to_bytes()).for_each(|(to, from)| *to = *from as c_char);
    field
}

/// The processes of a namespace that an event affects. Without any, the event's source counts.
///
/// # Safety
/// The list and the source are null or valid, as the library passes them to a handler.
pub(crate) unsafe fn affected(
    list: *const Info,
    len: usize,
    source: *const Proc,
    nspace: &[c_char; NAMESPACE],
) -> Vec<u32> {
    let is_list = !list.is_null() && len <= ITEMS_MAX;
    // SAFETY: the caller's promise.
    let infos = if is_list { unsafe { slice::from_raw_parts(list, len) } } else { &[] };
    let mut processes: Vec<Proc> = Vec::new();
    for Info { key, value, .. } in infos {
        // SAFETY: the type says which alternative it is, and an address is that of such an object.
        unsafe {
            if value.kind == abi::PROC && is_key(key, c"pmix.evproc") {
                processes.extend(value.data.process.as_ref());
            } else if value.kind == abi::DATA_ARRAY && is_key(key, c"pmix.evaffected") {
                let array = value.data.array.as_ref().filter(|it| it.kind == abi::PROC && it.size <= ITEMS_MAX);
                if let Some(DataArray { array, size, .. }) = array.filter(|it| !it.array.is_null()) {
                    processes.extend_from_slice(slice::from_raw_parts(array.cast::<Proc>(), *size));
                }
            }
        }
    }
    if processes.is_empty() {
        // SAFETY: the caller's promise.
        processes.extend(unsafe { source.as_ref() });
    }
    let ranks = processes.iter().filter(|it| same_text(&it.nspace, nspace)).map(|it| it.rank);
    ranks.filter(|rank| *rank < abi::RANK_WILDCARD).collect()
}

fn is_key(key: &[c_char; KEY], name: &CStr) -> bool {
    same_text(key, &fixed::<KEY>(name))
}

/// Whether two fields have the same text. What follows the 0 does not count.
fn same_text<const N: usize>(one: &[c_char; N], other: &[c_char; N]) -> bool {
    let text = |field: &[c_char; N]| field.iter().take_while(|letter| **letter != 0).copied().collect::<Vec<_>>();
    text(one) == text(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_affected_processes_of_the_own_namespace_are_found() {
        let (own, other) = (fixed::<NAMESPACE>(c"job.1"), fixed::<NAMESPACE>(c"job.10"));
        let mut one = process(own, 3);
        let mut several = [process(own, 1), process(other, 2), process(own, 5), process(own, abi::RANK_WILDCARD)];
        let mut array = DataArray { kind: abi::PROC, size: several.len(), array: several.as_mut_ptr().cast() };
        let infos = [
            info(c"pmix.evproc", Value { kind: abi::PROC, data: Data { process: &raw mut one } }),
            info(c"pmix.evproc", Value { kind: abi::UINT32, data: Data { uint32: 9 } }),
            info(c"pmix.evaffected", Value { kind: abi::DATA_ARRAY, data: Data { array: &raw mut array } }),
            number(c"pmix.timeout", 1),
        ];
        let source = process(own, 7);
        // SAFETY: all addresses are those of objects above, or null.
        unsafe {
            assert_eq!(affected(infos.as_ptr(), infos.len(), &raw const source, &own), [3, 1, 5]);
            assert_eq!(affected(infos.as_ptr(), 0, &raw const source, &own), [7]);
            assert_eq!(affected(std::ptr::null(), 4, &raw const source, &other), [0; 0]);
            assert_eq!(affected(std::ptr::null(), 0, std::ptr::null(), &own), [0; 0]);
        }
    }

    #[test]
    fn values_are_read_by_their_type_and_freed() {
        let allocated = |kind: u16, data: Data| {
            // SAFETY: memory of the size of a value is made one.
            unsafe {
                let value = libc::malloc(size_of::<Value>()).cast::<Value>();
                value.write(Value { kind, data });
                Received::new(value).unwrap()
            }
        };
        // SAFETY: a copy of the text, which the value owns.
        let text = allocated(abi::STRING, Data { string: unsafe { libc::strdup(c"0,2".as_ptr()) } });
        assert_eq!((text.text().as_deref(), text.number(), text.bytes()), (Some("0,2"), None, None));
        // SAFETY: as above.
        let bytes = ByteObject { bytes: unsafe { libc::strdup(c"abc".as_ptr()) }, size: 3 };
        let bytes = allocated(abi::BYTE_OBJECT, Data { bytes });
        assert_eq!((bytes.bytes().unwrap(), bytes.text()), (b"abc".to_vec(), None));
        let none = ByteObject { bytes: std::ptr::null_mut(), size: 3 };
        assert_eq!(allocated(abi::BYTE_OBJECT, Data { bytes: none }).bytes(), None);
        assert_eq!(allocated(abi::UINT32, Data { uint32: 70_000 }).number(), Some(70_000));
        assert_eq!(allocated(abi::UINT16, Data { uint16: 7 }).number(), Some(7));
        assert_eq!(allocated(abi::INT, Data { integer: -1 }).number(), None);
        // SAFETY: a null address is not used.
        assert!(unsafe { Received::new(std::ptr::null_mut()) }.is_none());
    }
}
