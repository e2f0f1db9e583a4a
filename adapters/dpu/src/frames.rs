//! A rail over a device: the host gives the device frames for its peers, and buffers for the frames that arrive. So the host's engine,
//! or a user of the BTL face, uses the device as one rail beside others.
//!
//! The frames of a rail are messages between the devices, which are reliable. So the rail loses no frame, needs no link above it, and
//! reports the loss of a peer once. Frames are copied to and from the buffers of the window. A window has one
//! session, so a process has this rail or the [matching transport](crate::transport). All hosts of a job use the same one of both.
//!
//! A frame has its buffer until the device needs no further work for it, so frames to a peer that gives its device no buffers keep
//! theirs. A peer gets no more buffers than remain free. So one such peer takes half of them, and `n` such peers leave one part in `n + 1`
//! to the others. Control frames have buffers of their own, for which the same holds.

use std::collections::VecDeque;
use std::fmt;

use towline_core::convertor::Span;
use towline_core::rail::attributes::{AcceleratorLimits, EXCLUSIVITY_LOW};
use towline_core::rail::native::OneSided;
use towline_core::rail::{
    Attributes, Capabilities, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, Frame, FrameId,
    Grant, HEAD, Lane, Liveness, Lost, Peer, Rail, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket,
    Unreachable,
};
use towline_core::time::{Duration, Instant};
use towline_window::completion;

use crate::errors::{Failure, Refusal};
use crate::owners::Owners;
use crate::transport::{Buffer, Request, Taken, Transport};

/// The first version of the window with frames.
const SINCE: u32 = 1 << 16 | 2;
/// Of this many buffers for sending, one is for control frames alone.
const CONTROL_SHARE: usize = 4;
/// The shortest and the longest time between two polls of a thread that waits: this rail does not use the bell of the window.
const PAUSES: (Duration, Duration) = (Duration::from_nanos(20_000), Duration::from_millis(1));
/// A waiting thread lets this share of the time pass for which it has waited.
const PAUSE_SHARE: u64 = 8;

/// Sizes of a rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Bytes of the longest frame, header included. At least twice [`HEAD`].
    pub frame_bytes: u32,
    /// Buffers for frames that are sent, and as many for frames that arrive. At most a quarter of the slots of the ring of commands
    /// is used.
    pub buffers: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { frame_bytes: 8192, buffers: 64 }
    }
}

/// A device cannot be used as a rail.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramesError {
    /// The device has no commands for frames. Its window has this version.
    Old(u32),
    /// The device or its window has no room, or the device has failed.
    Refused(Refusal),
}

impl fmt::Display for FramesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old(version) => write!(
                f,
                "the device cannot be used as a rail: its window has version {}.{}, and frames came with {}.{}: update its firmware",
                version >> 16,
                version & 0xffff,
                SINCE >> 16,
                SINCE & 0xffff
            ),
            Self::Refused(why) => write!(f, "the device cannot be used as a rail: {why}"),
        }
    }
}

impl std::error::Error for FramesError {}

towline_core::debug_as_display!(FramesError);

impl From<Refusal> for FramesError {
    fn from(why: Refusal) -> Self {
        Self::Refused(why)
    }
}

/// Whose share of the buffers for sending a frame takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Share {
    /// That of all frames.
    Any = 0,
    /// That of control frames.
    Control = 1,
}

/// What a buffer is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// For nothing: a buffer for sending is free, and one for receiving is to be given to the device.
    Idle,
    /// It has a frame of that many bytes for a peer, with a tag.
    Sending { to: u32, tag: u8, len: u32, share: Share },
    /// The device puts the next frame there.
    Given,
    /// It has a frame of a peer, which waits for a poll or is held by the reader.
    Arrived { from: u32, tag: u8, len: u32, is_held: bool },
}

/// A peer of the device. Its place in the table is its number at the device, and its endpoint.
#[derive(Clone, Copy, Debug)]
struct Remote {
    name: Peer,
    /// Sends to it are refused.
    is_unreachable: bool,
    /// Its loss was noted, and was or will be reported.
    is_lost: bool,
    /// Buffers with frames for it, of each share.
    sending: [usize; 2],
}

/// What the next polls report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    /// A frame in a buffer.
    Frame(usize),
    /// The loss of a peer.
    Lost(u32, Lost),
}

/// The rail. It is used by one thread at a time. When it is dropped, the device forgets its peers, and frames that are not
/// [drained](Rail::drained) may be lost.
#[derive(Debug)]
pub struct Frames {
    transport: Transport,
    attributes: Attributes,
    card: Vec<u8>,
    peers: Vec<Option<Remote>>,
    /// The buffers for sending, then those for receiving.
    buffers: Vec<(Buffer, Use)>,
    /// The buffers for sending that are free.
    free: Vec<usize>,
    /// How many of them each share has.
    room: [usize; 2],
    /// The buffers for receiving that are to be given to the device.
    idle: Vec<usize>,
    /// The buffers with frames for which the device had no room.
    refused: VecDeque<usize>,
    /// The buffers of commands in progress.
    requests: Owners<usize>,
    news: VecDeque<News>,
    /// How many frames the reader holds.
    held: u32,
    /// Whether the end of the device was noted.
    has_ended: bool,
    /// When the rail was polled last, and when a poll had an event last.
    polled: Instant,
    had_event: Instant,
}

impl Frames {
    /// A rail over a device. It takes its buffers from the window.
    ///
    /// # Errors
    /// [`FramesError`].
    pub fn new(mut transport: Transport, config: Config) -> Result<Self, FramesError> {
        let Some(window) = transport.card_of_window() else { return Err(Refusal::Busy.into()) };
        if window.version < SINCE {
            return Err(FramesError::Old(window.version));
        }
        let frame = config.frame_bytes.max(2 * HEAD as u32);
        // So there is always room for a command, and no call waits for the device to take one.
        let most = (window.layout.command_slots / 4).min(window.operations / 2);
        let count = config.buffers.min(most).max(2); // one for control frames, and one for others
        let control = (count as usize).div_ceil(CONTROL_SHARE);
        let card = transport.card()?;
        transport.list_ended();
        let buffers = (0..2 * count)
            .map(|_| transport.buffer(frame.into()).map(|buffer| (buffer, Use::Idle)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut rail = Self {
            transport,
            attributes: attributes(frame, count.div_ceil(2)),
            card,
            peers: Vec::new(),
            buffers,
            free: (0..count as usize).collect(),
            room: [count as usize - control, control],
            idle: (count as usize..2 * count as usize).collect(),
            refused: VecDeque::new(),
            requests: Owners::default(),
            news: VecDeque::new(),
            held: 0,
            has_ended: false,
            polled: Instant::ZERO,
            had_event: Instant::ZERO,
        };
        rail.give();
        Ok(rail)
    }

    /// Which device it is: its window, its firmware and the version of its window.
    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    /// Makes the end of this rail a failure of this process for its peers.
    pub const fn end_as_failure(&mut self) {
        self.transport.end_as_failure();
    }

    fn remote(&self, endpoint: u32) -> Option<&Remote> {
        self.peers.get(endpoint as usize)?.as_ref()
    }

    fn remote_mut(&mut self, endpoint: u32) -> Option<&mut Remote> {
        self.peers.get_mut(endpoint as usize)?.as_mut()
    }

    /// Gives buffers to the device for the next frames.
    fn give(&mut self) {
        while let Some(at) = self.idle.pop() {
            let begun = match self.buffers.get(at) {
                Some((buffer, _)) => self.transport.receive_frame(buffer),
                None => continue,
            };
            match begun {
                Ok(request) => self.note(request, at, Use::Given),
                Err(_) => {
                    // The next poll tries again, unless the device has failed.
                    self.idle.push(at);
                    return;
                }
            }
        }
    }

    fn note(&mut self, request: Request, at: usize, is_for: Use) {
        self.requests.add(request.0, at);
        self.set(at, is_for);
    }

    fn set(&mut self, at: usize, is_for: Use) {
        if let Some((_, what)) = self.buffers.get_mut(at) {
            *what = is_for;
        }
    }

    /// Gives the frame in a buffer to the device. Returns whether the device has taken it.
    fn begin(&mut self, at: usize) -> bool {
        let Some((buffer, Use::Sending { to, tag, len, .. })) = self.buffers.get(at) else { return true };
        match self.transport.send_frame(*to, (*tag).into(), buffer, (*len).into()) {
            Ok(request) => {
                self.requests.add(request.0, at);
                true
            }
            Err(_) => false,
        }
    }

    /// Takes what the device has done.
    fn settle(&mut self) {
        self.transport.progress();
        while let Some(request) = self.transport.next_ended() {
            let taken = self.transport.take(request);
            let Some(at) = self.requests.remove(request.0) else { continue };
            match self.buffers.get(at).map(|(_, what)| *what) {
                Some(Use::Sending { to, share, .. }) => self.sent(at, to, share, &taken),
                Some(Use::Given) => self.arrived(at, &taken),
                _ => {}
            }
        }
        if self.transport.lost().is_some() && !self.has_ended {
            self.end();
        }
    }

    fn sent(&mut self, at: usize, to: u32, share: Share, taken: &Taken) {
        if taken.outcome == Err(Failure::Operation(completion::Failure::Full)) {
            self.refused.push_back(at);
            return;
        }
        if let Some(remote) = self.remote_mut(to) {
            // The device reports the loss behind the frames of the peer.
            remote.is_unreachable |= taken.outcome.is_err();
        }
        self.return_buffer(at, to, share);
    }

    /// The buffer of a frame for a peer is free again.
    fn return_buffer(&mut self, at: usize, to: u32, share: Share) {
        if let Some(remote) = self.remote_mut(to) {
            remote.sending[share as usize] = remote.sending[share as usize].saturating_sub(1);
        }
        self.room[share as usize] += 1;
        self.set(at, Use::Idle);
        self.free.push(at);
    }

    /// The share in which a frame for a peer may have a buffer. The peer may have as many as remain free, so that the others can go on if
    /// it takes no frames.
    fn share_for(&self, to: Endpoint, lane: Lane) -> Option<Share> {
        let remote = self.remote(to.0)?;
        let has_room = |share: &Share| remote.sending[*share as usize] < self.room[*share as usize];
        let control = Some(Share::Control).filter(|_| lane == Lane::Control);
        control.into_iter().chain([Share::Any]).find(has_room)
    }

    fn arrived(&mut self, at: usize, taken: &Taken) {
        self.set(at, Use::Idle);
        match taken.outcome {
            Ok(status) if self.remote(status.rank).is_some_and(|remote| !remote.is_lost) => {
                match (u8::try_from(status.tag), u32::try_from(status.received)) {
                    (Ok(tag), Ok(len)) if status.delivered == status.received => {
                        self.set(at, Use::Arrived { from: status.rank, tag, len, is_held: false });
                        self.news.push_back(News::Frame(at));
                        return;
                    }
                    _ => self.lose(status.rank, Lost::Misbehaved),
                }
            }
            Ok(_) | Err(Failure::Device(_) | Failure::NoRequest) => {}
            Err(Failure::Operation(why)) => self.lose(taken.failed, reason(why)),
        }
        self.idle.push(at);
    }

    /// Notes the loss of a peer, once.
    fn lose(&mut self, endpoint: u32, why: Lost) {
        let Some(remote) = self.remote_mut(endpoint).filter(|remote| !remote.is_lost) else { return };
        (remote.is_lost, remote.is_unreachable) = (true, true);
        self.news.push_back(News::Lost(endpoint, why));
    }

    /// The device has failed: so have all peers. Nothing reads the window any more, since it may belong to another session.
    fn end(&mut self) {
        self.has_ended = true;
        self.news.retain(|news| matches!(news, News::Lost(..)));
        for endpoint in 0..self.peers.len() as u32 {
            self.lose(endpoint, Lost::DeviceFailed);
        }
    }

    /// The next event, after the device was looked at.
    fn next_event(&mut self) -> Option<Event> {
        self.settle();
        if !self.has_ended {
            for _ in 0..self.refused.len() {
                let Some(at) = self.refused.pop_front() else { break };
                if !self.begin(at) {
                    self.refused.push_front(at);
                    break;
                }
            }
            self.give();
        }
        loop {
            match *self.news.front()? {
                News::Frame(_) if self.held >= self.attributes.frames_kept => return None,
                News::Frame(at) => {
                    self.news.pop_front();
                    if let Some(frame) = self.frame(at) {
                        return Some(Event::Frame(frame));
                    }
                }
                News::Lost(endpoint, why) => {
                    self.news.pop_front();
                    if let Some(remote) = self.remote(endpoint) {
                        return Some(Event::Lost(remote.name, why));
                    }
                }
            }
        }
    }

    /// The frame that the reader holds.
    fn held(&self, frame: FrameId) -> Option<(usize, &Buffer, usize)> {
        let at = usize::try_from(frame.0).ok()?;
        match self.buffers.get(at) {
            Some((buffer, Use::Arrived { len, is_held: true, .. })) => Some((at, buffer, *len as usize)),
            _ => None,
        }
    }

    /// A frame in a buffer, with its first bytes. A short one leaves the buffer.
    fn frame(&mut self, at: usize) -> Option<Frame> {
        let (buffer, Use::Arrived { from, tag, len, .. }) = self.buffers.get(at)? else { return None };
        let (from, tag, len) = (*from, *tag, *len);
        let mut head = [0; HEAD];
        let valid = (len as usize).min(HEAD);
        if !self.transport.copy(buffer, 0, head.get_mut(..valid)?) {
            return None;
        }
        let name = self.remote(from)?.name;
        if len as usize <= HEAD {
            self.set(at, Use::Idle);
            self.idle.push(at);
        } else {
            self.set(at, Use::Arrived { from, tag, len, is_held: true });
            self.held += 1;
        }
        Some(Frame { id: FrameId(at as u64), from: name, tag, valid: valid as u8, len, head })
    }
}

/// Why a peer was lost, as the device tells it.
const fn reason(why: completion::Failure) -> Lost {
    match why {
        completion::Failure::PeerFinished => Lost::Closed,
        completion::Failure::Unreachable => Lost::DeviceFailed,
        _ => Lost::Broken,
    }
}

/// Why a peer was not added.
const fn unreachable(why: Refusal) -> Unreachable {
    match why {
        why if why.is_full_of_peers() => Unreachable::Full,
        Refusal::Device(_) | Refusal::TooLong => Unreachable::BadCard,
        _ => Unreachable::System,
    }
}

const fn attributes(frame: u32, frames_kept: u32) -> Attributes {
    Attributes {
        name: "dpu-frames",
        capabilities: Capabilities::SEND,
        exclusivity: EXCLUSIVITY_LOW,
        latency: 20_000,
        bandwidth: 1000,
        eager_limit: frame,
        rendezvous_eager_limit: 0,
        min_fragment: frame / 2,
        max_send_size: frame,
        cache_size: 0,
        cache_bytes: 0,
        frames_kept,
        one_sided: OneSided::NONE,
        accelerator: AcceleratorLimits::NONE,
    }
}

impl Rail for Frames {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let at = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        let endpoint = u32::try_from(at).map_err(|_| Unreachable::Full)?;
        self.transport.add_peer(endpoint, card).map_err(unreachable)?;
        let remote = Some(Remote { name: peer, is_unreachable: false, is_lost: false, sending: [0; 2] });
        match self.peers.get_mut(at) {
            Some(place) => *place = remote,
            None => self.peers.push(remote),
        }
        Ok(Endpoint(endpoint))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        if self.peers.get_mut(endpoint.0 as usize).and_then(Option::take).is_none() {
            return;
        }
        // The device ends the operations with the peer before the command. An error means that the device has failed, and has forgotten the peer.
        let _ = self.transport.del_peer(endpoint.0);
        self.settle();
        self.news.retain(|news| !matches!(news, News::Lost(lost, _) if *lost == endpoint.0));
        for at in 0..self.buffers.len() {
            match self.buffers.get(at).map(|(_, what)| *what) {
                Some(Use::Arrived { from, is_held, .. }) if from == endpoint.0 => {
                    self.held -= u32::from(is_held);
                    self.news.retain(|news| *news != News::Frame(at));
                    self.set(at, Use::Idle);
                    self.idle.push(at);
                }
                Some(Use::Sending { to, share, .. }) if to == endpoint.0 && self.refused.contains(&at) => {
                    self.refused.retain(|refused| *refused != at);
                    self.return_buffer(at, to, share);
                }
                _ => {}
            }
        }
        self.give();
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        if shape.len > self.attributes.max_send_size || usize::from(shape.header) > HEAD {
            return Err(SendError::TooLong);
        }
        if self.remote(to.0).is_none_or(|remote| remote.is_unreachable) {
            return Err(SendError::Unreachable);
        }
        if self.transport.lost().is_some() {
            return Err(SendError::Unreachable); // its memory may be that of another session
        }
        if self.share_for(to, shape.lane).is_none() {
            self.settle();
        }
        let share = self.share_for(to, shape.lane).ok_or(SendError::Busy)?;
        let at = *self.free.last().ok_or(SendError::Busy)?;
        let (buffer, _) = self.buffers.get(at).ok_or(SendError::Busy)?;
        let room = self.transport.address_of(buffer).as_ptr();
        let ticket = Ticket {
            endpoint: to,
            position: at as u64,
            len: shape.len,
            extra: u32::from(shape.tag) | (share as u32) << 8,
        };
        // SAFETY: the buffer is in the mapped window, has room for the longest frame, and is not in use.
        Ok(unsafe { Grant::new(room, shape.len as usize, ticket) })
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        let at = ticket.position as usize;
        if self.free.last() == Some(&at) {
            self.free.pop();
            let share = if ticket.extra >> 8 == 0 { Share::Any } else { Share::Control };
            let to = ticket.endpoint.0;
            if let Some(remote) = self.remote_mut(to) {
                remote.sending[share as usize] += 1;
            }
            self.room[share as usize] = self.room[share as usize].saturating_sub(1);
            self.set(at, Use::Sending { to, tag: ticket.extra as u8, len: ticket.len, share });
            if !self.refused.is_empty() || !self.begin(at) {
                self.refused.push_back(at);
            }
        }
        Sent::Staged
    }

    fn drained(&self, to: Endpoint) -> bool {
        let is_to = |(_, what): &(Buffer, Use)| matches!(what, Use::Sending { to: other, .. } if *other == to.0);
        !self.buffers.iter().any(is_to)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.polled = now;
        let event = self.next_event();
        if event.is_some() {
            self.had_event = now;
        }
        event
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some((_, buffer, len)) = self.held(frame) else { return 0 };
        let count = len.saturating_sub(at).min(into.len());
        let Some(into) = into.get_mut(..count) else { return 0 };
        if self.transport.copy(buffer, at as u64, into) { count } else { 0 }
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        let delivery = match self.held(frame) {
            // The window may be that of another session. The loss of the peer is reported.
            Some(_) if self.transport.lost().is_some() => Delivery::Pending,
            Some((_, buffer, len)) => {
                let begin = self.transport.address_of(buffer).as_ptr().wrapping_add(skip.min(len));
                // SAFETY: the frame is inside its buffer in the mapped window; the caller vouches for the sink.
                unsafe { sink.unpack(begin, len.saturating_sub(skip)) };
                Delivery::Done
            }
            None => Delivery::Done,
        };
        self.release(frame);
        delivery
    }

    fn release(&mut self, frame: FrameId) {
        if let Some((at, ..)) = self.held(frame) {
            self.held -= 1;
            self.set(at, Use::Idle);
            self.idle.push(at);
        }
    }

    /// Soon, as long as the device works: this rail does not use the bell of the window, so frames come only by polling.
    fn poll_at(&self) -> Option<Instant> {
        let quiet = self.polled.since(self.had_event).as_nanos();
        let (shortest, longest) = PAUSES;
        let pause = Duration::from_nanos(quiet / PAUSE_SHARE).max(shortest).min(longest);
        (!self.has_ended).then_some(self.polled + pause)
    }

    fn arm(&mut self) -> bool {
        self.settle();
        let has_settled = self.has_ended || (self.refused.is_empty() && self.idle.is_empty());
        has_settled && self.news.is_empty()
    }
}

impl FastPath for Frames {}
impl RequestCache for Frames {}
impl SingleCopy for Frames {}
impl DeviceMemory for Frames {}
impl Failover for Frames {}
impl Liveness for Frames {}
