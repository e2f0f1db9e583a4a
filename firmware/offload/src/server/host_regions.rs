//! The commands of host regions: bodies of messages in memory of the host outside the window.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::convertor::Span;
use towline_core::pml::Rails;
use towline_window::command::{Body, DESCRIPTION, HostRange, KeyPlace};
use towline_window::completion::{Done, Failure};
use towline_window::header::at;

use super::Server;
use crate::host_memory::{HostMemory, HostTables, NoBody};

/// The most bytes of a description.
const LONGEST: usize = DESCRIPTION as usize;

impl<'m, 'w: 'm, R: Rails> Server<'m, 'w, R> {
    /// Serves host regions from now on: up to `regions` of them, and up to `bodies` sends and receives at a time. `arena` needs
    /// [`HostTables::bytes`]. It is called once, before the first poll.
    ///
    /// # Errors
    /// [`OutOfMemory`]: the server serves no host regions.
    pub fn reach_host(
        &mut self,
        memory: &'m dyn HostMemory,
        regions: u32,
        bodies: u32,
        arena: &mut Arena<'m>,
    ) -> Result<(), OutOfMemory> {
        let none = OutOfMemory { asked: 0, left: arena.left() };
        let wanted = self.device.memory().word(at::WANTED).map_err(|_| none)?; // never, since the window has a header
        self.host = Some(HostTables::new(arena, memory, wanted, regions, bodies)?);
        Ok(())
    }
}

impl<R: Rails> Server<'_, '_, R> {
    pub(super) fn register_host(
        &mut self,
        memory: HostRange,
        description: KeyPlace,
        bytes: u32,
    ) -> Result<Done, Failure> {
        self.memory_of(Body { region: description.region, at: description.at, bytes: bytes.into() })?;
        if memory.bytes == 0 || memory.address.checked_add(memory.bytes).is_none() {
            return Err(Failure::Malformed);
        }
        let mut copy = [0; LONGEST];
        let copy = copy.get_mut(..bytes as usize).ok_or(Failure::Malformed)?;
        if !copy.is_empty() {
            self.device.memory().read(description.at, copy).map_err(|_| Failure::OutOfBounds)?;
        }
        let host = self.host.as_mut().ok_or(Failure::NoHostMemory)?;
        if !host.has_room() {
            return Err(Failure::Full);
        }
        let value = host.register(memory.address, memory.bytes, copy).ok_or(Failure::NoHostMemory)?;
        Ok(Done { value, ..Done::default() })
    }

    pub(super) fn deregister_host(&mut self, region: u32) -> Result<Done, Failure> {
        let host = self.host.as_mut().ok_or(Failure::NoSuchThing)?;
        if host.deregister(region) { Ok(Done::default()) } else { Err(Failure::NoSuchThing) }
    }

    /// The memory of a message, in the window or in a host region. Then the place of the body is returned as well, whose use ends with
    /// [`end_body`](Self::end_body).
    pub(super) fn begin_body(&mut self, body: Body) -> Result<(Span, Option<u32>), Failure> {
        let session = self.device.session();
        match &mut self.host {
            Some(host) if body.region != 0 => {
                host.begin(body.region, body.at, body.bytes, session).map_err(|why| match why {
                    NoBody::OutOfBounds => Failure::OutOfBounds,
                    NoBody::Full => Failure::Full,
                })
            }
            _ => Ok((self.span_of(body)?, None)),
        }
    }

    /// Ends the use of a body. Returns whether a copy from or to it has failed.
    pub(super) fn end_body(&self, place: Option<u32>) -> bool {
        self.host.as_ref().is_some_and(|host| host.end(place))
    }
}
