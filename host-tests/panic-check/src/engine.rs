//! The engine and the matching transport, over the loopback rail and over any rail.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::Span;
use towline_core::mtl::{Comm, Group, Mtl, Source, Tag};
use towline_core::pml::matching::Pattern;
use towline_core::pml::{Config, Mode, Pml, Pool, Rails, Request, Sending, SetUpError};
use towline_core::pool::Handle;
use towline_core::rail::loopback::Hub;
use towline_core::rail::{Endpoint, FullRail, Lost, Peer, Rail, Unreachable};
use towline_core::rma::{Access, Atomic, AtomicFlags, Transfer};
use towline_core::time::{Duration, Instant};
use towline_core::wire::{Ack, Kind, Match, Reason, kind};

use towline_core::ptl::{self, Cache};
use towline_core::rail::Cookie;
use zerocopy::IntoBytes;

use crate::opaque::Opaque;
use crate::{any, bytes, format, keep};

/// Reaches all functions of the engine and the matching transport.
pub fn reach() {
    let mut memory = [0; 4096];
    keep((kind(bytes(&mut memory)), any(Kind::Match).header_len(), Reason::from_wire(any(0))));
    frames(&mut Opaque);
    keep(Match::words(any(0), any(0), any(0), any(0), any(0)));
    let _ = cache(&mut Arena::new(bytes(&mut memory)));
    let _ = over_loopback(&mut Arena::new(bytes(&mut memory)));
    let _ = over_any_rail(&mut Arena::new(bytes(&mut memory)));
}

fn frames(rail: &mut Opaque) {
    let header = Match::new(any(0), any(0), any(0));
    keep(ptl::control(rail, Endpoint(any(0)), header.as_bytes()));
    keep(ptl::control(
        rail,
        Endpoint(any(0)),
        Ack::new(any(0), any(Handle::NONE), any(0)).with_device(any(0), any(0)).as_bytes(),
    ));
    // SAFETY: never run; for the linker only.
    unsafe {
        let mut memory = [0; 64];
        let extra = if any(true) { Some(bytes(&mut memory)) } else { None };
        keep(ptl::first(rail, Endpoint(any(0)), &header, span(), Cookie(any(0)), extra));
        keep(ptl::eager(rail, Endpoint(any(0)), any([0; 3]), span()));
        keep(ptl::fragment(rail, Endpoint(any(0)), &header, span(), Cookie(any(0))));
    }
}

fn cache(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    keep(Cache::cost(any(0), any(0)));
    let mut cache = Cache::new(arena, any(0), any(0), any(0))?;
    loop {
        match any(0) {
            0 => keep(cache.rail()),
            1 => keep(cache.take(|extra| keep(extra.len()))),
            2 => keep(cache.extra(any(0)).map(|extra| extra.len())),
            3 => cache.put(any(0)),
            4 => cache.drain(|extra| keep(extra.len())),
            _ => return Ok(()),
        }
    }
}

fn over_loopback(arena: &mut Arena<'_>) -> Result<(), SetUpError> {
    let mut queues = [0; 1024];
    let hub = Hub::new(&mut Arena::new(&mut queues), any(0), any(0), any(0))?;
    let _ = any(hub.is_empty());
    let (Some(one), Some(other)) = (hub.rail(any(0)), hub.rail(any(0))) else { return Ok(()) };
    transport(Mtl::new(config(), any(0), arena, [one, other])?);
    Ok(())
}

fn over_any_rail(arena: &mut Arena<'_>) -> Result<(), SetUpError> {
    transport(Mtl::new(config(), any(0), arena, [Opaque])?);
    let mut rails = [Opaque, Opaque, Opaque];
    let len = any(rails.len());
    let rails = any(rails.get_mut(..len).unwrap_or(&mut []));
    transport(Mtl::new(config(), any(0), arena, rails)?);
    let mut pml = Pml::new(config(), arena, [Opaque, Opaque])?;
    keep((Pml::<[Opaque; 2]>::arrivals_bytes(any(0)), pml.count_arrivals(arena).is_ok()));
    while any(true) {
        engine(&mut pml);
    }
    keep(pml.finalize().len());
    Ok(())
}

/// A configuration with any limits.
pub fn config() -> Config {
    let config = any(Config::SMALLEST);
    let rails = [Opaque.attributes(), Opaque.attributes()];
    let rails = rails.get(..any(rails.len())).unwrap_or(&[]);
    keep((config.check().is_ok(), config.shares(), config.rma.answers(any(0)), any(Pool::Units).least()));
    keep((config.bytes(rails), Mtl::<[Opaque; 1]>::bytes(&config, any(0), rails)));
    config
}

fn span() -> Span {
    Span::contiguous(any(core::ptr::null_mut()), any(0))
}

fn add(rail: &mut impl FullRail) -> Result<Endpoint, Unreachable> {
    let mut card = [0; 64];
    rail.add_peer(Peer(any(0)), bytes(&mut card))
}

/// Calls every operation of the transport, in any order, with any arguments.
pub fn transport<R: Rails>(mut mtl: Mtl<'_, R>) {
    let Ok(mut comm) = mtl.add_comm(any(0), Group::World { size: any(0) }, any(0)) else { return };
    loop {
        match any(0) {
            0 => peers(&mut mtl),
            1 => communicators(&mut mtl, &mut comm),
            2 => messages(&mut mtl, any(comm)),
            3 => probes(&mut mtl, any(comm)),
            4 => requests(&mut mtl),
            5 => engine(mtl.pml()),
            _ => break,
        }
    }
    keep(mtl.finalize().count());
}

fn source() -> Source {
    if any(true) { Source::Any } else { Source::Rank(any(0)) }
}

fn tag() -> Tag {
    if any(true) { Tag::Any } else { Tag::Is(any(0)) }
}

fn now() -> Instant {
    Instant::from_nanos(any(0))
}

/// Peers and rails.
fn peers<R: Rails>(mtl: &mut Mtl<'_, R>) {
    let mut buffer = [0; 256];
    match any(0) {
        0 => keep(mtl.params()),
        1 => match mtl.add_peer(Peer(any(0)), bytes(&mut buffer), |_, rail| add(rail)) {
            Ok(()) => {}
            Err(why) => format(why),
        },
        2 => {
            let peers = [Peer(any(0)); 3];
            keep(mtl.add_peers(any(&peers), |_| any(&buffer), |_, _, rail| add(rail)));
        }
        3 => mtl.del_peer(Peer(any(0))),
        _ => {
            if let Err(error) = mtl.enable_rail(any(0), any(true)) {
                keep(error.blame());
                format(error);
            }
        }
    }
}

fn communicators<R: Rails>(mtl: &mut Mtl<'_, R>, comm: &mut Comm) {
    match any(0) {
        0 => {
            let group = if any(true) { Group::World { size: any(0) } } else { Group::Table(any(&[])) };
            let made = if any(true) {
                mtl.add_comm(any(0), group, any(0))
            } else {
                mtl.add_lasting_comm(any(0), group, any(0))
            };
            match made {
                Ok(new) => *comm = new,
                Err(error) => format(error),
            }
        }
        1 => mtl.del_comm(any(*comm)),
        2 => keep((mtl.excluded(any(*comm), source()), mtl.rank(any(*comm)), mtl.rank_of(any(*comm), Peer(any(0))))),
        10 => {
            keep((mtl.comm_of(any(0)), mtl.context_of(any(*comm)), mtl.peer_of(any(*comm), any(0))));
            mtl.operations().for_each(keep);
            mtl.unreceived().for_each(keep);
            mtl.one_sided_operations().for_each(keep);
        }
        11 => {
            keep(mtl.free_comms());
            mtl.del_comms();
        }
        3 => keep((mtl.failed(any(*comm), source()), mtl.broken(any(*comm)))),
        _ => mtl.acknowledge(any(*comm)),
    }
}

fn messages<R: Rails>(mtl: &mut Mtl<'_, R>, comm: Comm) {
    let mut buffer = [0; 256];
    match any(0) {
        // SAFETY: never run; for the linker only.
        0 => match unsafe { mtl.isend(comm, any(0), any(0), any(Mode::Standard), span()) } {
            Ok(Sending::Pending(request)) => keep(request.to_bits()),
            Ok(Sending::Complete) => {}
            Err(refusal) => {
                keep(refusal.blame());
                format(refusal);
            }
        },
        // SAFETY: never run; for the linker only.
        1 => keep(unsafe { mtl.irecv(comm, source(), tag(), span()) }),
        // SAFETY: never run; for the linker only.
        2 => keep(unsafe { mtl.send(comm, any(0), any(0), any(Mode::Standard), bytes(&mut buffer), now) }),
        // SAFETY: never run; for the linker only.
        _ => keep(unsafe { mtl.recv(comm, source(), tag(), bytes(&mut buffer), now) }),
    }
}

fn probes<R: Rails>(mtl: &mut Mtl<'_, R>, comm: Comm) {
    if any(true) {
        keep(mtl.iprobe(comm, source(), tag()));
    } else if let Ok(Some((message, envelope))) = mtl.improbe(comm, source(), tag()) {
        keep(envelope);
        // SAFETY: never run; for the linker only.
        keep(unsafe { mtl.imrecv(any(message), span()) });
    }
}

/// Requests and progress.
fn requests<R: Rails>(mtl: &mut Mtl<'_, R>) {
    let request = Request::from_bits(any(0));
    match any(0) {
        0 => keep(mtl.wait(request, now)),
        1 => keep((mtl.cancel(request), mtl.cancel_send(request))),
        2 => match mtl.test(request) {
            Some(Err(failure)) => {
                keep(failure.blame());
                format(failure);
            }
            outcome => keep(outcome),
        },
        3 => keep(mtl.progress(now())),
        4 => keep((mtl.take_received(request), mtl.pml().take_received(request))),
        _ => keep(mtl.counters().list()),
    }
}

/// Calls the operations of the engine that the transport does not use.
fn engine<R: Rails>(pml: &mut Pml<'_, R>) {
    let request = Request::from_bits(any(0));
    let mut buffer = [0; 64];
    match any(0) {
        0 => pml.notify(request),
        1 => keep(pml.next_completed()),
        2 => pml.detach(request),
        22 => pml.flush(),
        26 => pml.forget_memory(any(core::ptr::null_mut()), any(0)),
        27 => keep(pml.pins()),
        23 => keep(pml.arm_rails()),
        20 => pml.lose_peer(Peer(any(0)), any(Lost::Closed)),
        24 => one_sided(pml),
        21 => keep((pml.enable_rail(any(0), any(true)), pml.is_enabled(any(0)))),
        3 => keep((
            pml.poll_at(),
            pml.arm(),
            pml.is_drained(),
            pml.has_device_sent_all(),
            pml.used(),
            *pml.counters(),
            pml.matcher().counters(),
        )),
        28 => {
            keep((pml.detached(), pml.free_requests(), pml.keep_request(), pml.peer_of(request), pml.is_over(request)))
        }
        30 => keep(pml.add_spare(Peer(any(0)), any(0), Endpoint(any(0)))),
        4 => {
            pml.purge(any(0));
            pml.refuse_unexpected(any(0)..any(0));
            keep(pml.refused_messages());
            pml.keep_ready(any(false));
            pml.drain_caches();
        }
        25 => {
            pml.set_stall_timeout(Duration::from_nanos(any(0)));
            keep(pml.why_lost(Peer(any(0))));
        }
        5 => keep((pml.rails().count(), pml.rails_mut().count())),
        29 => {
            let pattern = Pattern { context: any(0), source: any(0), tag: any(0) };
            keep((pml.has_sent(Peer(any(0))), pml.arrived(Peer(any(0))), pml.has_unexpected(&pattern)));
            keep(pml.offload().is_some());
            pml.operations().for_each(keep);
            pml.unreceived().for_each(|message| keep((message, message.is_internal())));
            pml.one_sided_operations().for_each(keep);
        }
        6 => keep(pml.add_peer(Peer(any(0)), bytes(&mut buffer), |_, rail| add(rail))),
        7 => {
            let pattern = Pattern { context: any(0), source: any(0), tag: any(0) };
            // SAFETY: never run; for the linker only.
            keep(unsafe { pml.irecv(pattern, span()) });
        }
        // SAFETY: never run; for the linker only.
        _ => keep(unsafe { pml.isend(Peer(any(0)), any(0), any(0), any(Mode::Standard), span()) }),
    }
}

fn one_sided<R: Rails>(pml: &mut Pml<'_, R>) {
    // SAFETY: never run; for the linker only.
    let registered = unsafe { pml.register(any(core::ptr::null_mut()), any(0), any(Access::ANY), any(None)) };
    let Some(remote) = registered.and_then(|registration| pml.remote_memory(registration)) else { return };
    let transfer = match any(0) {
        0 => Transfer::Put(span()),
        1 => Transfer::Get(span()),
        _ => Transfer::Atomic(any(Atomic::CompareSwap(any(0), any(0))), AtomicFlags::from_bits_retain(any(0))),
    };
    // SAFETY: never run; for the linker only.
    keep(unsafe { pml.begin(Peer(any(0)), transfer, &any(remote), any(0)) }.is_ok());
    // SAFETY: never run; for the linker only.
    keep(unsafe { pml.at_once(Peer(any(0)), transfer, &any(remote), any(0)) });
    keep((
        pml.next_finished(),
        pml.has_completed(),
        pml.is_flushed(any(None)),
        pml.rma_counters().list(),
        pml.rma_used(),
    ));
    keep(registered.map(|registration| pml.deregister(any(registration)).is_ok()));
}
