//! Descriptors: the bytes of a frame, in the module's memory and in that of the program.

use std::ffi::{c_int, c_void};

use towline::btl::{AllocError, Btl, Descriptor, DescriptorError, DescriptorFlags, EndpointId};

use crate::border::{border, check_pointer, memory, put};
use crate::btl::handles::{BtlHandle, DescriptorHandle, EndpointHandle};
use crate::btl::state;
use crate::error::{Code, Failure, Outcome};

/// A part of a frame: bytes in memory.
///
/// Since ABI version 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BtlSegment {
    /// Where they are.
    pub base: *mut c_void,
    /// How many.
    pub length: usize,
}

impl From<AllocError> for Failure {
    #[cold]
    fn from(error: AllocError) -> Self {
        let code = match error {
            AllocError::Exhausted => Code::TOWLINE_ERR_BUSY,
            AllocError::Unreachable => Code::TOWLINE_ERR_PEER_FAILED,
            _ => Code::TOWLINE_ERR_ARGUMENT,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

impl From<DescriptorError> for Failure {
    #[cold]
    fn from(error: DescriptorError) -> Self {
        let code = match error {
            DescriptorError::Stale => Code::TOWLINE_ERR_HANDLE,
            DescriptorError::InFlight => Code::TOWLINE_ERR_BUSY,
            _ => Code::TOWLINE_ERR_ARGUMENT,
        };
        Self { code, fault: error.blame().into(), text: error.to_string() }
    }
}

/// Gives a descriptor to the caller, with the memory of its own.
///
/// # Safety
/// Both addresses are writable.
#[inline]
pub(super) unsafe fn give(
    btl: &Btl<'_>,
    module: BtlHandle,
    made: Descriptor,
    descriptor: *mut DescriptorHandle,
    segment: *mut BtlSegment,
) -> Outcome<()> {
    let own = btl.segment(made, 0).unwrap_or_default();
    let own = BtlSegment { base: std::ptr::with_exposed_provenance_mut(own.addr as usize), length: own.len as usize };
    // SAFETY: the caller's promise.
    unsafe {
        put("segment", segment, own)?;
        put("descriptor", descriptor, DescriptorHandle { bits: made.to_bits(), btl: module })
    }
}

/// Allocates a descriptor with memory of the module, which the program fills before it sends the descriptor.
///
/// @param endpoint    The peer. The descriptor may be sent to others, too.
/// @param order       255, or the order of a complete send to this peer: then the frame arrives after all that was sent to it before.
/// @param flags       Bits, with the values of `MCA_BTL_DES_` of Open MPI's `btl.h`.
/// @param size        How many bytes.
/// @param descriptor  Gets the descriptor. The program frees it with `towline_btl_free`, unless its flags have
///                    `MCA_BTL_DES_FLAGS_BTL_OWNERSHIP`, with which the module frees it after it was sent.
/// @param segment     Gets its memory, which may have fewer bytes than asked for, and old values.
/// @return            `TOWLINE_ERR_BUSY` if all descriptors are in use: make progress and try again; `TOWLINE_ERR_PEER_FAILED`;
///                    `TOWLINE_ERR_ARGUMENT` for an order that is not one; `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`,
///                    `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// `descriptor` and `segment` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_alloc(
    endpoint: EndpointHandle,
    order: u8,
    flags: u32,
    size: usize,
    descriptor: *mut DescriptorHandle,
    segment: *mut BtlSegment,
) -> c_int {
    border(|| {
        check_pointer("descriptor", descriptor)?;
        check_pointer("segment", segment)?;
        state::with(endpoint.btl, |_, btl| {
            let flags = DescriptorFlags::from_bits_truncate(flags);
            let made = btl.alloc(EndpointId::from_bits(endpoint.bits), order, size, flags)?;
            // SAFETY: the caller's promise.
            unsafe { give(btl, endpoint.btl, made, descriptor, segment) }
        })
    })
}

/// Allocates a descriptor for a header, which the program writes, followed by data of the program, which the module sends from where it
/// is.
///
/// @param endpoint    As for `towline_btl_alloc`, as are `order`, `flags`, `descriptor` and the errors.
/// @param reserve     Bytes of the header.
/// @param data        The data.
/// @param size        Its length in bytes. Gets how many of them the descriptor has; for the others, prepare further ones.
/// @param segment     Gets the memory for the header.
/// @return            Also `TOWLINE_ERR_ARGUMENT` if the header leaves no room for data.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
///
/// # Safety
/// The data is readable, and nothing changes it, until all sends of the descriptor are complete. `size`, `descriptor` and `segment` are
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn towline_btl_prepare_src(
    endpoint: EndpointHandle,
    order: u8,
    flags: u32,
    reserve: usize,
    data: *const c_void,
    size: *mut usize,
    descriptor: *mut DescriptorHandle,
    segment: *mut BtlSegment,
) -> c_int {
    border(|| {
        check_pointer("descriptor", descriptor)?;
        check_pointer("segment", segment)?;
        check_pointer("size", size)?;
        // SAFETY: the caller's promise.
        let data = memory("data", data, unsafe { size.read() })?;
        state::with(endpoint.btl, |_, btl| {
            let flags = DescriptorFlags::from_bits_truncate(flags);
            let id = EndpointId::from_bits(endpoint.bits);
            // SAFETY: the caller's promise.
            let (made, taken) = unsafe { btl.prepare_src(id, data, order, reserve, data.len(), flags) }?;
            // SAFETY: the caller's promise.
            unsafe {
                size.write(taken as usize);
                give(btl, endpoint.btl, made, descriptor, segment)
            }
        })
    })
}

/// Makes a descriptor's memory of the module shorter.
///
/// @param descriptor  The descriptor, which is not being sent.
/// @param length      The new length in bytes.
/// @return            `TOWLINE_ERR_ARGUMENT` if the memory is shorter already; `TOWLINE_ERR_BUSY` if a send of it is not complete;
///                    `TOWLINE_ERR_HANDLE`, `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_btl_shorten(descriptor: DescriptorHandle, length: usize) -> c_int {
    border(|| state::with(descriptor.btl, |_, btl| Ok(btl.shorten(Descriptor::from_bits(descriptor.bits), length)?)))
}

/// Frees a descriptor.
///
/// @param descriptor  The descriptor, whose sends are complete.
/// @return            `TOWLINE_ERR_BUSY` if a send of it is not complete; `TOWLINE_ERR_HANDLE` if it was freed before;
///                    `TOWLINE_ERR_THREAD`, `TOWLINE_ERR_FORKED`.
///
/// Thread-safe as the module's level says. Since ABI version 0.1.
#[unsafe(no_mangle)]
pub extern "C" fn towline_btl_free(descriptor: DescriptorHandle) -> c_int {
    border(|| state::with(descriptor.btl, |_, btl| Ok(btl.free(Descriptor::from_bits(descriptor.bits))?)))
}
