//! The loopback rail, and the calls of any rail.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::Span;
use towline_core::rail::loopback::Hub;
use towline_core::rail::{
    Cookie, Endpoint, FrameId, FullRail, Lane, Origin, Peer, Shape, Ticket, send_by_grant, send_now_by_grant,
};
use towline_core::time::Instant;

use crate::{any, bytes, format, keep};

/// Reaches all functions of the loopback rail.
pub fn reach() {
    let mut memory = [0; 4096];
    let _ = hub(&mut Arena::new(bytes(&mut memory)));
}

fn hub(arena: &mut Arena<'_>) -> Result<(), OutOfMemory> {
    keep(Hub::cost(any(0), any(0), any(0)));
    let hub = Hub::new(arena, any(0), any(0), any(0))?;
    if let Some(mut end) = hub.rail(any(0)) {
        rail(&mut end);
    }
    Ok(())
}

/// Calls every method of a rail, in any order, with any arguments.
pub fn rail(rail: &mut impl FullRail) {
    let mut buffer = [0; 256];
    let span = Span::contiguous(any(core::ptr::null_mut()), any(0));
    loop {
        let shape = Shape { tag: any(0), lane: any(Lane::Eager), header: any(0), len: any(0) };
        match any(0) {
            0 => keep((*rail.attributes(), rail.drained(any(Endpoint(0))), rail.poll_at(), rail.arm())),
            20 => rail.flush(),
            1 => keep(rail.add_peer(Peer(any(0)), bytes(&mut buffer))),
            2 => rail.del_peer(Endpoint(any(0))),
            3 => {
                if let Ok(mut grant) = rail.reserve(Endpoint(any(0)), shape) {
                    keep(grant.room());
                    grant.write(any(0), bytes(&mut buffer));
                    grant.write_words(any(0), any([0; 3]));
                    // SAFETY: never run; for the linker only.
                    unsafe { grant.gather(any(0), span) };
                    let ticket = grant.finish();
                    keep(rail.commit(ticket));
                }
            }
            4 => keep(rail.commit(Ticket { endpoint: Endpoint(any(0)), position: any(0), len: any(0), extra: any(0) })),
            5 => {
                // SAFETY: never run; for the linker only.
                let sent = unsafe { rail.send(Endpoint(any(0)), shape, bytes(&mut buffer), span, Cookie(any(0))) };
                keep(sent.map_err(|error| (error.blame(), format(error))).is_ok());
            }
            14 => {
                // SAFETY: never run; for the linker only.
                keep(
                    unsafe { rail.send_summed(Endpoint(any(0)), shape, bytes(&mut buffer), span, Cookie(any(0))) }
                        .is_ok(),
                );
            }
            12 => {
                if let Some(short) = rail.poll_short(any(0)).or_else(|| rail.poll_eager(any(0))) {
                    // SAFETY: never run; for the linker only.
                    unsafe { short.body.deliver(&span) };
                    keep((short.body.len(), rail.poll_again().is_some(), rail.is_idle()));
                }
                keep(rail.poll_copied(any(0), bytes(&mut buffer)).map(|copied| (copied.from, copied.tag, copied.len)));
            }
            11 => {
                // SAFETY: never run; for the linker only.
                keep(unsafe { send_now_by_grant(rail, Endpoint(any(0)), any(0), any([0; 3]), span) });
                // SAFETY: never run; for the linker only.
                keep(unsafe { send_by_grant(rail, Endpoint(any(0)), shape, bytes(&mut buffer), span) });
            }
            6 => {
                if let Some(towline_core::rail::Event::Frame(frame)) = rail.poll(Instant::from_nanos(any(0))) {
                    keep((frame.head().len(), frame.is_whole(), frame.short().is_some()));
                }
            }
            7 => keep(rail.read(FrameId(any(0)), any(0), bytes(&mut buffer))),
            8 => {
                // SAFETY: never run; for the linker only.
                keep(unsafe { rail.deliver(FrameId(any(0)), any(0), span, Cookie(any(0))) });
            }
            9 => rail.release(FrameId(any(0))),
            10 => keep(rail.card().len()),
            13 => {
                let origin = Origin { link: any(0), number: any(0) };
                keep((rail.next_unacked(Endpoint(any(0))), rail.claim(Endpoint(any(0)), origin)));
                rail.migrated(Endpoint(any(0)), origin);
                let (to, header) = (Endpoint(any(0)), bytes(&mut buffer));
                // SAFETY: never run; for the linker only.
                keep(unsafe { rail.send_migrated(to, origin, shape, header, span, any(Some(Cookie(0)))) }.is_ok());
            }
            _ => return,
        }
    }
}
