//! The search for a port, and the opening of its device.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use rdma_mummy_sys as ffi;
use towline_core::rail::atomics::AtomicSupport;

use super::calls::checked;
use super::context::Device;
use super::port::Port;
use crate::address::{Gid, GidKind, Mtu};
use crate::config::Config;
use crate::error::SetupError;
use crate::port::{GidChoice, GidEntry, choose_port, is_selected};

/// Opens the device of the port that this link uses: one of those that are up and selected.
pub(crate) fn open(config: &Config) -> Result<(Arc<Device>, Port), SetupError> {
    let mut usable = Vec::new();
    let mut refused = Vec::new();
    for (name, device) in open_all()? {
        match ports(&name, &device, config, &mut refused) {
            Ok(ports) => usable.extend(ports.into_iter().map(|port| (Arc::clone(&device), port))),
            Err(why) => refused.push(format!("{name} cannot be queried: {why}")),
        }
    }
    let tables: Vec<(&str, &[GidEntry])> =
        usable.iter().map(|(_, (port, table))| (&port.name[..], &table[..])).collect();
    match choose_port(&tables, config.gid_index, config.link, config.turn) {
        Ok((at, choice)) => {
            let (device, (port, _)) = usable.swap_remove(at);
            Ok((device, Port { address: choice, ..port }))
        }
        Err(why) => {
            refused.extend(why);
            Err(SetupError::NoPort(refused.join("; ")))
        }
    }
}

/// All devices that can be opened.
fn open_all() -> Result<Vec<(String, Arc<Device>)>, SetupError> {
    // A forked child must not share the memory that a provider allocates and the device writes to. Kernels before 5.12 do not
    // ensure that themselves, so the library is asked to. `MemoryRegion` ensures the same for its own memory.
    // SAFETY: a plain call, and the first; where the library is missing, the binding returns an error.
    match unsafe { ffi::ibv_fork_init() } {
        0 | libc::EOPNOTSUPP => {}
        why => log::warn!("verbs: this process must not fork: {}", io::Error::from_raw_os_error(why)),
    }
    let mut count = 0;
    // SAFETY: a plain call; if the library is missing, the binding returns the same as the library does without devices.
    let list = unsafe { ffi::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        let why = io::Error::last_os_error();
        return Err(match why.raw_os_error() {
            Some(libc::EOPNOTSUPP) => SetupError::NoLibrary,
            Some(libc::ENOSYS | libc::ENOENT) => SetupError::NoDevice,
            _ => SetupError::Refused("list the devices", why),
        });
    }
    let mut opened = Vec::new();
    let mut last = None;
    for at in 0..count.max(0) as usize {
        // SAFETY: the list has that many entries, which stay until it is freed.
        let device = unsafe { *list.add(at) };
        // SAFETY: an entry of the list; its name is a string within it.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        match unsafe { Device::open(device) } {
            Ok(device) => opened.push((name, Arc::new(device))),
            Err(why) => last = Some(why),
        }
    }
    // SAFETY: from `ibv_get_device_list`, freed once.
    unsafe { ffi::ibv_free_device_list(list) };
    match (opened.is_empty(), last) {
        (true, Some(why)) => Err(SetupError::Refused("open a device", why)),
        (true, None) => Err(SetupError::NoDevice),
        (false, _) => Ok(opened),
    }
}

/// The ports of a device that are up and selected, with their addresses. For each other port, the reason why it cannot be used is
/// added to `refused`.
fn ports(
    name: &str,
    device: &Device,
    config: &Config,
    refused: &mut Vec<String>,
) -> io::Result<Vec<(Port, Vec<GidEntry>)>> {
    let mut can = std::mem::MaybeUninit::<ffi::ibv_device_attr>::zeroed();
    // SAFETY: an open context, and room for the answer, all of whose fields may be zero.
    checked(unsafe { ffi::ibv_query_device(device.as_ptr(), can.as_mut_ptr()) })?;
    // SAFETY: filled in, or zeros.
    let can = unsafe { can.assume_init() };
    let mut found = Vec::new();
    for number in 1..=can.phys_port_cnt {
        let named = format!("{name}:{number}");
        if !is_selected(&config.devices, name, number) {
            refused.push(format!("{named} is not selected by TOWLINE_VERBS_DEVICES"));
            continue;
        }
        let mut about = std::mem::MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: as above.
        checked(unsafe { ffi::ibv_query_port(device.as_ptr(), number, about.as_mut_ptr()) })?;
        // SAFETY: filled in, or zeros.
        let about = unsafe { about.assume_init() };
        if about.state != ffi::ibv_port_state::IBV_PORT_ACTIVE {
            refused.push(format!("{named} is not up"));
            continue;
        }
        let Some(mtu) = Mtu::of(about.active_mtu as u8) else {
            refused.push(format!("{named} has an unknown MTU"));
            continue;
        };
        let table = addresses(device, number)?;
        let none = GidEntry { index: 0, gid: Gid([0; 16]), kind: GidKind::InfiniBand };
        let port = Port {
            name: named,
            number,
            lid: about.lid,
            mtu,
            address: GidChoice { entry: none, why: "" },
            is_soft_roce: matches!(can.vendor_id, 0 | SOFT_ROCE),
            max_work_requests: can.max_qp_wr.max(0) as u32,
            max_shared_receives: can.max_srq_wr.max(0) as u32,
            max_completions: can.max_cqe.max(0) as u32,
            max_message_bytes: about.max_msg_sz,
            max_reads_out: can.max_qp_init_rd_atom.clamp(0, MAX_READS) as u8,
            max_reads_in: can.max_qp_rd_atom.clamp(0, MAX_READS) as u8,
            atomics: atomics(can.atomic_cap),
        };
        found.push((port, table));
    }
    Ok(found)
}

/// Vendor id of Soft-RoCE: `RXE_VENDOR_ID` of Linux. Older kernels report 0, which no hardware does.
const SOFT_ROCE: u32 = 0xff_ffff;

/// Most reads in flight, also where a device supports more: more would not make it faster.
const MAX_READS: libc::c_int = 16;

/// The atomics of a device, by its `atomic_cap`.
const fn atomics(capability: u32) -> AtomicSupport {
    let all = AtomicSupport::ADD.union(AtomicSupport::CSWAP);
    match capability {
        1 => all, // atomic with respect to the same device alone
        2 => all.union(AtomicSupport::GLOB),
        _ => AtomicSupport::empty(),
    }
}

/// A port's table of addresses.
fn addresses(device: &Device, port: u8) -> io::Result<Vec<GidEntry>> {
    // SAFETY: plain numbers and bytes, for which zero is a value.
    let mut table: Vec<ffi::ibv_gid_entry> = vec![unsafe { std::mem::zeroed() }; 1024];
    // SAFETY: an open context, and room for the number of entries that is passed.
    let count = unsafe { ffi::ibv_query_gid_table(device.as_ptr(), table.as_mut_ptr(), table.len(), 0) };
    if count < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-count).unwrap_or(libc::EIO)));
    }
    let of_port = table.iter().take(count as usize).filter(|entry| entry.port_num == u32::from(port));
    let entry = |it: &ffi::ibv_gid_entry| {
        // SAFETY: bytes, whichever member of the union was written.
        let gid = Gid(unsafe { it.gid.raw });
        Some(GidEntry { index: it.gid_index, gid, kind: GidKind::of(u8::try_from(it.gid_type).ok()?)? })
    };
    Ok(of_port.filter_map(entry).collect())
}
