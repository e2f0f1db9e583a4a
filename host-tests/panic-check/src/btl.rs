//! The BTL interface over any rail: descriptors, active messages, callbacks, components.

use core::fmt;

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::btl::active::Received;
use towline_core::btl::descriptor::{Descriptor, DescriptorFlags};
use towline_core::btl::endpoint::{EndpointId, Proc};
use towline_core::btl::module::{
    Btl, Completed, Completion, Config, Consumer, ErrorFlags, ErrorHandler, Immediate, Outcome, RmaCompleted,
    RmaCompletion, RmaParams,
};
use towline_core::convertor::Span;
use towline_core::modex::{Component as Identity, Modex, Store, StoreConfig, Version};
use towline_core::rail::apply_atomic;
use towline_core::rail::component::{Component, Refusal, Started, Threads, start};
use towline_core::rail::native::{NativeError, OneSided};
use towline_core::rail::{FullRail, Lost, Rail, Unreachable};
use towline_core::rma::{Access, Atomic, AtomicFlags, AtomicOp, Registration, RemoteMemory, Transfer};
use towline_core::time::Instant;

use crate::opaque::Opaque;
use crate::{any, bytes, format, keep};

/// Reaches all functions of the BTL interface.
pub fn reach() {
    let mut memory = [0; 4096];
    let _ = module(&mut Arena::new(bytes(&mut memory)));
    let _ = components(&mut Arena::new(bytes(&mut memory)));
}

/// Callbacks that may call any function of the module.
#[derive(Debug)]
struct Callbacks;

impl<R: FullRail> Consumer<R> for Callbacks {
    fn receive(&self, btl: &mut Btl<'_, R>, received: &Received<'_>) {
        keep((received.endpoint(), received.tag(), received.data(), received.segments()));
        send(btl);
    }
}

impl<R: FullRail> Completed<R> for Callbacks {
    fn completed(&self, btl: &mut Btl<'_, R>, completion: Completion) {
        keep(completion);
        send(btl);
    }
}

impl<R: FullRail> ErrorHandler<R> for Callbacks {
    fn failed(&self, btl: &mut Btl<'_, R>, flags: ErrorFlags, proc: Option<u32>, reason: Lost) {
        keep((flags, proc));
        format(reason);
        send(btl);
    }
}

impl<R: FullRail> RmaCompleted<R> for Callbacks {
    fn rma_completed(&self, btl: &mut Btl<'_, R>, completion: &RmaCompletion) {
        keep(*completion);
        if let Err(failure) = completion.status {
            format(failure);
        }
        access(btl);
    }
}

static CALLBACKS: Callbacks = Callbacks;

fn endpoint<R: FullRail>(btl: &mut Btl<'_, R>) -> Option<EndpointId> {
    let mut card = [0; 64];
    let procs = [Proc { id: any(0), card: bytes(&mut card) }];
    let mut endpoints = [Err(Unreachable::Full)];
    let mut mask = [0u64; 2];
    let mask = if any(true) { mask.get_mut(..any(1)) } else { None };
    keep(btl.add_procs(any(&procs), &mut endpoints, mask));
    any(endpoints.first().copied()?.ok())
}

fn send<R: FullRail>(btl: &mut Btl<'_, R>) {
    let Some(to) = endpoint(btl) else { return };
    let data = Span::contiguous(any(core::ptr::null_mut()), any(0));
    let flags = any(DescriptorFlags::empty());
    // SAFETY: never run; for the linker only.
    let descriptor: Descriptor = match any(0) {
        0 => match btl.alloc(to, any(0), any(0), flags) {
            Ok(descriptor) => descriptor,
            Err(error) => return format_error(error.blame(), error),
        },
        _ => match unsafe { btl.prepare_src(to, data, any(0), any(0), any(0), flags) } {
            Ok((descriptor, _)) => descriptor,
            Err(error) => return format(error),
        },
    };
    loop {
        let descriptor = any(descriptor);
        match any(0) {
            0 => match btl.free(descriptor) {
                Ok(()) => {}
                Err(error) => format_error(error.blame(), error),
            },
            // SAFETY: never run; for the linker only.
            1 => keep(unsafe { btl.attach(descriptor, data) }),
            2 => keep(btl.shorten(descriptor, any(0))),
            3 => keep(btl.memory(descriptor).map(|memory| memory.len())),
            4 => keep(btl.segment(descriptor, any(0))),
            5 => keep(btl.properties(descriptor).map(|properties| properties.flags)),
            6 => {
                if let Some(properties) = btl.properties_mut(descriptor) {
                    properties.flags.remove(any(flags));
                }
            }
            7 => match btl.send(any(to), descriptor, any(0)) {
                Ok(Outcome::Queued | Outcome::Sent) => {}
                Err(error) => format_error(error.blame(), error),
            },
            8 => {
                let mut header = [0; 64];
                let message = Immediate {
                    tag: any(0),
                    header: bytes(&mut header),
                    payload: data,
                    order: any(0),
                    flags,
                    or_descriptor: any(true),
                };
                // SAFETY: never run; for the linker only.
                match unsafe { btl.sendi(any(to), message) } {
                    Ok(()) => {}
                    Err(error) => format_error(error.blame(), error),
                }
            }
            9 => keep(btl.del_procs(any(&[to]))),
            10 => keep((
                btl.is_reachable(any(to)),
                btl.has_ended(any(to)),
                btl.is_drained(),
                (EndpointId::from_bits(any(to).to_bits()), to.slot(), Descriptor::from_bits(any(descriptor).to_bits())),
                btl.poll_at(),
                btl.arm(),
                btl.wake_on_demand(any(true)),
                btl.counters(),
                btl.rail().card().len(),
            )),
            11 => format(btl.dump(any(None), any(false))),
            12 => keep((
                btl.deliver(),
                btl.progress_after_delivery(Instant::from_nanos(any(0))),
                btl.progress(Instant::ZERO),
            )),
            _ => return,
        }
    }
}

fn access<R: FullRail>(btl: &mut Btl<'_, R>) {
    let Some(to) = endpoint(btl) else { return };
    let local = Span::contiguous(any(core::ptr::null_mut()), any(0));
    keep(btl.registration_handle_bytes());
    // SAFETY: never run; for the linker only.
    let registered = unsafe { btl.register_mem(any(None), any(core::ptr::null_mut()), any(0), any(Access::ANY)) };
    let registration: Registration = match registered {
        Ok(registration) => registration,
        Err(error) => return format_error(error.blame(), error),
    };
    let registration = Registration::from_bits(any(registration.to_bits()));
    let Some(remote) = btl.remote_memory(registration) else { return };
    let Some(remote) = RemoteMemory::from_bytes(&any(remote.to_bytes())) else { return };
    keep((remote.len(), remote.is_empty(), remote.base(), remote.by_address()));
    format_error(any(NativeError::Busy).blame(), any(NativeError::Busy));
    while any(true) {
        let params = RmaParams { registration: any(None), callback: Some(&CALLBACKS as _), context: any([0; 2]) };
        let begun = match any(0) {
            // SAFETY: never run; for the linker only.
            0 => unsafe { btl.put(any(to), local, &remote, any(0), params) },
            // SAFETY: never run; for the linker only.
            1 => unsafe { btl.get(any(to), local, &remote, any(0), params) },
            2 => {
                let Some(op) = AtomicOp::of(any(0)) else { return };
                let atomic = any(Atomic::Op(op, any(0)));
                let flags = AtomicFlags::from_bits_retain(any(0));
                keep(flags.bits());
                keep((op.takes(flags), atomic.takes(flags), atomic.of_word(any(0), flags), flags.word_bytes()));
                let can = any(OneSided::NONE);
                keep((atomic.support(), can.does(atomic, flags), can.any(), can.put.takes(any(0), any(0), any(0))));
                keep(can.mixes_at_once());
                // SAFETY: never run; for the linker only.
                keep(unsafe { apply_atomic(any(core::ptr::null_mut()), atomic, flags) });
                btl.atomic(any(to), atomic, flags, &remote, any(0), params)
            }
            3 => {
                // SAFETY: never run; for the linker only.
                keep(unsafe { btl.perform_here(any(Transfer::Put(local)), &remote, any(0)) });
                keep((btl.flush(any(None)), btl.capabilities(), btl.atomics(), btl.rma_counters()));
                continue;
            }
            _ => match btl.deregister_mem(any(registration)) {
                Ok(()) => return,
                Err(error) => return format_error(error.blame(), error),
            },
        };
        if let Err(error) = begun {
            format_error(error.blame(), error);
        }
    }
}

fn format_error(blame: towline_core::error::Blame, error: impl fmt::Display) {
    keep(blame);
    format(error);
}

fn module(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    let config = any(Config::default());
    keep(config.bytes::<Opaque>(Opaque.attributes()));
    let mut btl = Btl::new(config, arena, Opaque)?;
    btl.register_error(any(&CALLBACKS));
    while any(true) {
        match btl.register(any(0), any(&CALLBACKS)) {
            Ok(()) => keep(btl.unregister(any(0))),
            Err(error) => format_error(error.blame(), error),
        }
        send(&mut btl);
        access(&mut btl);
    }
    keep(btl.finalize().1);
    Ok(())
}

impl Component<Opaque> for Callbacks {
    fn identity(&self) -> Identity<'static> {
        let version = Version::new(any(0), any(0), any(0));
        Identity { mca: version, kind: any(""), kind_version: version, name: any(""), version }
    }

    fn open(&mut self) -> Result<(), Refusal> {
        any(Ok(()))
    }

    fn init(
        &mut self,
        threads: Threads,
        modex: &mut dyn Modex,
        accept: &mut dyn FnMut(Opaque) -> bool,
    ) -> Result<(), Refusal> {
        keep((threads, modex.rank()));
        while accept(Opaque) {}
        any(Ok(()))
    }

    fn close(&mut self) {}
}

fn components(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    let mut store = Store::new(any(StoreConfig::default()), arena)?;
    let (mut one, mut two) = (Callbacks, Callbacks);
    let mut outcomes = [Started::Rails(0); 2];
    let mut scratch = [0; 256];
    let threads = any(Threads::default());
    start(&mut [&mut one, &mut two], &mut outcomes, threads, &mut store, bytes(&mut scratch), &mut |_| any(true));
    outcomes.iter().for_each(format);
    Ok(())
}
