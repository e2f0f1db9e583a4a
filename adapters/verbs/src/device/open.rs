//! Finds a port, and opens its device.

use std::ffi::CStr;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as ffi;
use towline_core::rail::atomics::AtomicSupport;

use crate::config::Config;
use crate::error::SetupError;
use crate::bookkeeping::async_event::Event;
use crate::port::{Choice, Entry, Gid, Kind, Mtu, choose_port, names};

/// An open device.
#[derive(Debug)]
pub(crate) struct Opened {
    context: NonNull<ffi::ibv_context>,
}

// SAFETY: libibverbs may be called from any thread, and all of the device's objects may move between them.
unsafe impl Send for Opened {}
// SAFETY: as above; calls at the same time are allowed, too.
unsafe impl Sync for Opened {}

impl Opened {
    pub const fn as_ptr(&self) -> *mut ffi::ibv_context {
        self.context.as_ptr()
    }

    /// Takes what the device has to say that belongs to no work. `None`: nothing. The descriptor does not block.
    pub fn event(&self) -> Option<Event> {
        let mut event = std::mem::MaybeUninit::<ffi::ibv_async_event>::zeroed();
        // SAFETY: the context is open, and the event has room.
        if unsafe { ffi::ibv_get_async_event(self.as_ptr(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: as told by the call, the event is there. Its number is read as one: later versions of the library have more of
        // them than the binding's enumeration, which must not be made of those.
        let number = unsafe { (&raw const (*event.as_ptr()).event_type).cast::<u32>().read() };
        // SAFETY: an event of this number names a queue pair, which is there until the event is acknowledged.
        let pair = Event::is_of_pair(number).then(|| unsafe { (*(*event.as_ptr()).element.qp).qp_num });
        // SAFETY: it was taken just now; what it names is not used from here on.
        unsafe { ffi::ibv_ack_async_event(event.as_mut_ptr()) };
        Some(Event::of(number, pair.unwrap_or(0)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened once, and nothing rests on it any more: that would hold it.
        if unsafe { ffi::ibv_close_device(self.context.as_ptr()) } != 0 {
            log::warn!("verbs: the device does not close: {}", io::Error::last_os_error());
        }
    }
}

/// A port that was chosen.
#[derive(Debug)]
pub(crate) struct Port {
    /// Its name, as `TOWLINE_VERBS_DEVICES` has it.
    pub name: String,
    pub number: u8,
    pub lid: u16,
    pub mtu: Mtu,
    pub address: Choice,
    /// Its device is Soft-RoCE: the kernel's own, over a network interface.
    pub is_soft_roce: bool,
    /// What the device can do.
    pub most_work: u32,
    pub most_shared: u32,
    pub most_completions: u32,
    /// Bytes of one message.
    pub most_bytes: u32,
    /// Reads and atomics that a queue pair has under way, and those of its peer that it answers.
    pub most_reads: u8,
    pub most_answers: u8,
    /// Atomics, and whether they agree with the processor's.
    pub atomics: AtomicSupport,
}

/// Opens the device of the port that this link is to use: of those that are up and allowed.
pub(crate) fn open(config: &Config) -> Result<(Arc<Opened>, Port), SetupError> {
    let mut usable = Vec::new();
    let mut refused = Vec::new();
    for (name, device) in open_all()? {
        match ports(&name, &device, config, &mut refused) {
            Ok(ports) => usable.extend(ports.into_iter().map(|port| (Arc::clone(&device), port))),
            Err(why) => refused.push(format!("{name} tells nothing: {why}")),
        }
    }
    let tables: Vec<(&str, &[Entry])> = usable.iter().map(|(_, (port, table))| (&port.name[..], &table[..])).collect();
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
fn open_all() -> Result<Vec<(String, Arc<Opened>)>, SetupError> {
    // What a provider lays out itself and the device writes to is not for a child that is forked, where the kernel does not see to
    // that. `Region` says the same of its own memory.
    // SAFETY: a plain call, and the first; where the library is missing, the binding says so.
    match unsafe { ffi::ibv_fork_init() } {
        0 | libc::EOPNOTSUPP => {}
        why => log::warn!("verbs: forking does harm here: {}", io::Error::from_raw_os_error(why)),
    }
    let mut count = 0;
    // SAFETY: a plain call; where the library is missing, the binding answers as the library without devices does.
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
        // SAFETY: the list has so many entries, which stay until it is freed.
        let device = unsafe { *list.add(at) };
        // SAFETY: an entry of the list; its name is a string within it.
        let name = unsafe { CStr::from_ptr(ffi::ibv_get_device_name(device)) }.to_string_lossy().into_owned();
        // SAFETY: as above. An open device holds its entry itself.
        match NonNull::new(unsafe { ffi::ibv_open_device(device) }) {
            Some(context) => {
                let device = Opened { context };
                // SAFETY: a descriptor of the open context.
                let waits = unsafe { super::queue::does_not_block((*device.as_ptr()).async_fd) };
                match waits {
                    Ok(()) => opened.push((name, Arc::new(device))),
                    Err(why) => last = Some(why),
                }
            }
            None => last = Some(io::Error::last_os_error()),
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

/// The ports of a device that are up and allowed, with their addresses; others are told of.
fn ports(
    name: &str,
    device: &Opened,
    config: &Config,
    refused: &mut Vec<String>,
) -> io::Result<Vec<(Port, Vec<Entry>)>> {
    let mut can = std::mem::MaybeUninit::<ffi::ibv_device_attr>::zeroed();
    // SAFETY: an open context, and room for the answer, all of whose fields may be zero.
    super::checked(unsafe { ffi::ibv_query_device(device.as_ptr(), can.as_mut_ptr()) })?;
    // SAFETY: filled in, or zeros.
    let can = unsafe { can.assume_init() };
    let mut found = Vec::new();
    for number in 1..=can.phys_port_cnt {
        let named = format!("{name}:{number}");
        if !names(&config.devices, name, number) {
            refused.push(format!("{named} is not among those that are allowed"));
            continue;
        }
        let mut about = std::mem::MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: as above.
        super::checked(unsafe { ffi::ibv_query_port(device.as_ptr(), number, about.as_mut_ptr()) })?;
        // SAFETY: filled in, or zeros.
        let about = unsafe { about.assume_init() };
        if about.state != ffi::ibv_port_state::IBV_PORT_ACTIVE {
            refused.push(format!("{named} is not up"));
            continue;
        }
        let Some(mtu) = Mtu::of(about.active_mtu as u8) else {
            refused.push(format!("{named} has an MTU of no known size"));
            continue;
        };
        let table = addresses(device, number)?;
        let none = Entry { index: 0, gid: Gid([0; 16]), kind: Kind::InfiniBand };
        let port = Port {
            name: named,
            number,
            lid: about.lid,
            mtu,
            address: Choice { entry: none, why: "" },
            is_soft_roce: matches!(can.vendor_id, 0 | SOFT_ROCE),
            most_work: can.max_qp_wr.max(0) as u32,
            most_shared: can.max_srq_wr.max(0) as u32,
            most_completions: can.max_cqe.max(0) as u32,
            most_bytes: about.max_msg_sz,
            most_reads: can.max_qp_init_rd_atom.clamp(0, MOST_READS) as u8,
            most_answers: can.max_qp_rd_atom.clamp(0, MOST_READS) as u8,
            atomics: atomics(can.atomic_cap),
        };
        found.push((port, table));
    }
    Ok(found)
}

/// Who Soft-RoCE says that it is from: `RXE_VENDOR_ID` of Linux, older ones of which say 0, as no hardware does.
const SOFT_ROCE: u32 = 0xff_ffff;

/// So many reads at a time, where a device can do more: that would not make it quicker.
const MOST_READS: libc::c_int = 16;

/// What atomics a device has that says this of them.
const fn atomics(able: u32) -> AtomicSupport {
    let all = AtomicSupport::ADD.union(AtomicSupport::CSWAP);
    match able {
        1 => all, // among those of the device alone
        2 => all.union(AtomicSupport::GLOB),
        _ => AtomicSupport::empty(),
    }
}

/// A port's table of addresses.
fn addresses(device: &Opened, port: u8) -> io::Result<Vec<Entry>> {
    // SAFETY: plain numbers and bytes, for which zero is a value.
    let mut table: Vec<ffi::ibv_gid_entry> = vec![unsafe { std::mem::zeroed() }; 1024];
    // SAFETY: an open context, and room for as many entries as are told.
    let count = unsafe { ffi::ibv_query_gid_table(device.as_ptr(), table.as_mut_ptr(), table.len(), 0) };
    if count < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-count).unwrap_or(libc::EIO)));
    }
    let of_port = table.iter().take(count as usize).filter(|entry| entry.port_num == u32::from(port));
    let entry = |it: &ffi::ibv_gid_entry| {
        // SAFETY: bytes, whatever else they may be taken for.
        let gid = Gid(unsafe { it.gid.raw });
        Some(Entry { index: it.gid_index, gid, kind: Kind::of(u8::try_from(it.gid_type).ok()?)? })
    };
    Ok(of_port.filter_map(entry).collect())
}
