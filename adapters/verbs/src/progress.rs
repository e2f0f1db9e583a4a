//! What a poll does: hear what the device has done, call who is wanted, ask how frames do that left silently, hand over what came.

use towline_core::btl::{Event, Frame, FrameId, HEAD, Lost};
use towline_core::time::{Duration, Instant};

use crate::device::Work;
use crate::hello::{self, Hello, Stage};
use crate::layout::ROUTE;
use crate::rail::{Arrival, Held, Id, Rail, Way};
use crate::slots::Slot;

/// So long nothing follows a frame of which the device does not tell, until it is asked for.
pub(crate) const QUIET: Duration = Duration::from_millis(1);

/// What the device says that ends all connections by a port: a fault of the device, the end of it.
const FATAL: u32 = 8;

impl Rail {
    #[inline]
    pub(crate) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        if self.armed {
            self.armed = false;
            self.completions.woken();
        }
        if self.arrived.is_empty() || self.is_full() {
            self.gather();
        }
        if !self.wanted.is_empty() || !self.failed.is_empty() || !self.heard.is_empty() {
            self.set_right();
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.tail_at) || (self.tail_at.is_some() && self.slots.are_few()) {
            self.ask_for_tails();
        }
        if due(self.next_hello) {
            self.call_again();
        }
        if due(self.beat_at) {
            self.beat();
        }
        self.next_arrival()
    }

    /// The reader holds as many frames as it may.
    const fn is_full(&self) -> bool {
        self.held_count >= self.attributes.frames_kept
    }

    /// Hears some of what the device has done; whether there was any.
    #[inline]
    pub(crate) fn gather(&mut self) -> bool {
        let mut any = false;
        for work in self.completions.take() {
            any = true;
            self.hear_of(work);
        }
        any
    }

    /// Hears all of it.
    pub(crate) fn gather_all(&mut self) {
        while self.gather() {}
    }

    #[inline]
    fn hear_of(&mut self, work: Work) {
        match Id::of(work.id) {
            Id::Receive(buffer) => match self.endpoint_of(work.queue_pair).filter(|_| work.good) {
                Some(endpoint) => {
                    self.arrived.push_back(Arrival::Frame { endpoint, buffer, len: work.len, word: work.word });
                }
                None => self.post_again(Id::Receive(buffer)), // of a connection that is gone, or that broke meanwhile
            },
            Id::Send { endpoint, number } => {
                let (now, Self { peers, slots, .. }) = (self.now, &mut *self);
                let known = peers.get_mut(endpoint as usize).and_then(Option::as_mut);
                let Some(line) = known.and_then(|known| known.line.as_mut()) else { return };
                if work.good {
                    line.out.done(number, slots);
                    line.heard = now;
                } else if !self.failed.contains(&endpoint) {
                    log::debug!("verbs: a frame has failed: status {}", work.why);
                    self.failed.push(endpoint);
                }
            }
            Id::HelloIn(buffer) => {
                let said = if work.good { self.said(buffer, work.len) } else { None };
                self.post_again(Id::HelloIn(buffer));
                match said {
                    // Not now: it may end connections of which there is more to hear. Others are said again.
                    Some(hello) if self.heard.len() < self.heard.capacity() => self.heard.push_back(hello),
                    Some(_) => {}
                    None => self.counters.hellos_refused += 1,
                }
            }
            Id::HelloOut(buffer) => self.hellos_out.push(buffer),
        }
    }

    /// The hello that came to a buffer.
    fn said(&self, buffer: u32, len: u32) -> Option<Hello> {
        if len as usize != ROUTE + hello::BYTES {
            return None;
        }
        let at = self.layout.hellos_in.at(buffer)? + ROUTE;
        let from = self.region.pointer(at, hello::BYTES)?;
        let mut bytes = [0; hello::BYTES];
        // SAFETY: within the region, and the device has told that it is done with the buffer, which is not posted again yet.
        unsafe { from.copy_to_nonoverlapping(std::ptr::NonNull::from(&mut bytes).cast(), bytes.len()) };
        Hello::decode(&bytes, &self.config.key)
    }

    #[inline]
    fn endpoint_of(&self, queue_pair: u32) -> Option<u32> {
        let at = self.lines.binary_search_by_key(&queue_pair, |(number, _)| *number).ok()?;
        self.lines.get(at).map(|(_, endpoint)| *endpoint)
    }

    /// Ends what has failed, hears who says hello, and calls who is wanted.
    #[cold]
    fn set_right(&mut self) {
        while let Some(endpoint) = self.failed.pop() {
            self.lose(endpoint, Lost::Broken);
        }
        while let Some(hello) = self.heard.pop_front() {
            self.hear(&hello);
        }
        while let Some(endpoint) = self.wanted.pop() {
            self.call(endpoint);
        }
    }

    /// Has the device tell of the last frames to those to whom none of which it tells follows.
    #[cold]
    pub(crate) fn ask_for_tails(&mut self) {
        let tails = self.tails.len();
        for _ in 0..tails {
            let endpoint = self.tails.remove(0); // which keeps its room
            let Some(line) = self.known(endpoint).and_then(|known| known.line.as_mut()) else { continue };
            line.in_tails = false;
            if line.out.silent() == 0 {
                continue;
            }
            if line.out.will_tell() || !self.mark(endpoint) {
                self.has_tail(endpoint); // look again
            }
        }
        self.tail_at = (!self.tails.is_empty()).then(|| self.now + QUIET);
    }

    /// Remembers that frames left silently.
    #[inline]
    pub(crate) fn has_tail(&mut self, endpoint: u32) {
        let Some(line) = self.known(endpoint).and_then(|known| known.line.as_mut()) else { return };
        if !line.in_tails {
            line.in_tails = true;
            self.tails.push(endpoint);
            self.tail_at.get_or_insert(self.now + QUIET);
        }
    }

    /// Asks a peer's device for a sign of life, which tells of all frames before, too. `false`: not now.
    pub(crate) fn mark(&mut self, endpoint: u32) -> bool {
        if !self.slots.take(Slot::Marker) {
            return false;
        }
        let Self { peers, slots, counters, failed, .. } = self;
        let known = peers.get_mut(endpoint as usize).and_then(Option::as_mut);
        let Some(line) = known.filter(|known| known.way == Way::Up).and_then(|known| known.line.as_mut()) else {
            slots.give_back(Slot::Marker);
            return true;
        };
        match line.pair.mark(Id::Send { endpoint, number: line.out.next() }.word()) {
            Ok(()) => {
                line.out.posted(Slot::Marker, true);
                counters.markers += 1;
            }
            Err(why) => {
                log::debug!("verbs: a marker is refused: {why}");
                slots.give_back(Slot::Marker);
                if !failed.contains(&endpoint) {
                    failed.push(endpoint);
                }
            }
        }
        true
    }

    /// Looks who was silent, and what the device has to say.
    #[cold]
    fn beat(&mut self) {
        let interval = self.interval();
        for endpoint in 0..self.peers.len() as u32 {
            let now = self.now;
            let Some(known) = self.known(endpoint).filter(|known| known.way == Way::Up) else { continue };
            let quiet =
                known.line.as_ref().is_some_and(|line| !line.out.will_tell() && now.since(line.heard) >= interval);
            if quiet {
                self.mark(endpoint);
            }
        }
        while let Some(event) = self.device.event() {
            log::debug!("verbs link {}: the device tells of event {event}", self.config.link);
            if event == FATAL {
                log::error!("verbs link {}: the device has failed", self.config.link);
                for endpoint in 0..self.peers.len() as u32 {
                    self.lose(endpoint, Lost::Broken);
                }
            }
        }
        self.beat_at = (!self.lines.is_empty()).then(|| self.now + interval);
        self.set_right();
    }

    /// Time between two looks.
    pub(crate) fn interval(&self) -> Duration {
        let asked = u64::try_from(self.config.heartbeat.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(if asked == 0 { u64::MAX / 4 } else { asked })
    }

    /// Hands over the next of what came, unless the reader holds too much.
    #[inline]
    fn next_arrival(&mut self) -> Option<Event> {
        loop {
            match *self.arrived.front()? {
                Arrival::Lost { peer, why, .. } => {
                    self.arrived.pop_front();
                    return Some(Event::Lost(peer, why));
                }
                Arrival::Frame { .. } if self.is_full() => return None,
                Arrival::Frame { endpoint, buffer, len, word } => {
                    self.arrived.pop_front();
                    if let Some(event) = self.open_frame(endpoint, buffer, len, word) {
                        return Some(event);
                    }
                }
            }
        }
    }

    #[inline]
    fn open_frame(&mut self, endpoint: u32, buffer: u32, len: u32, word: u32) -> Option<Event> {
        let (from, way) = self.known(endpoint).map(|known| (known.peer, known.way))?;
        if way == Way::Meeting {
            self.is_up(endpoint); // who sends has connected
        }
        let [tag, header, zeros @ ..] = word.to_le_bytes();
        let valid = HEAD.min(len as usize);
        let at = self.layout.received.at(buffer)?;
        let room = self.region.pointer(at, valid)?;
        if usize::from(header) > valid || zeros != [0, 0] || len > self.config.max_send_size_bytes {
            self.counters.malformed += 1;
            self.post_again(Id::Receive(buffer));
            self.lose(endpoint, Lost::Misbehaved);
            return None;
        }
        let mut head = [0; HEAD];
        // SAFETY: within the region, and the device has told that it is done with the buffer, which is not posted again yet.
        unsafe { room.copy_to_nonoverlapping(std::ptr::NonNull::from(&mut head).cast(), valid) };
        if len as usize <= HEAD {
            self.post_again(Id::Receive(buffer));
        } else {
            *self.held.get_mut(buffer as usize)? = Some(Held { endpoint, len });
            self.held_count += 1;
        }
        Some(Event::Frame(Frame { id: FrameId(buffer.into()), from, tag, valid: valid as u8, len, head }))
    }

    /// Waits until all that has left is there, for so long at most, and says good-bye to all.
    fn close(&mut self) {
        let patience = std::time::Duration::from_secs(1);
        let began = std::time::Instant::now();
        let is_up = |rail: &mut Self, endpoint| rail.known(endpoint).is_some_and(|known| known.way == Way::Up);
        loop {
            self.gather_all();
            let mut waits = false;
            for endpoint in 0..self.peers.len() as u32 {
                if !is_up(self, endpoint) || self.failed.contains(&endpoint) {
                    continue;
                }
                let Some(line) = self.known(endpoint).and_then(|known| known.line.as_ref()) else { continue };
                let (told, left) = (line.out.will_tell(), !line.out.is_empty());
                waits |= left;
                if left && !told {
                    self.mark(endpoint);
                }
            }
            if !waits || began.elapsed() >= patience {
                break;
            }
            std::thread::yield_now();
        }
        for endpoint in 0..self.peers.len() as u32 {
            // There may be more of them than buffers for what they are told.
            while self.hellos_out.is_empty() && began.elapsed() < 2 * patience {
                self.gather();
            }
            self.say_last(endpoint, Stage::Bye);
        }
        while self.hellos_out.len() < self.layout.hellos_out.count() as usize && began.elapsed() < 2 * patience {
            self.gather();
        }
    }

    /// Tells a peer that there is no connection any more, if there was one, and how that came.
    pub(crate) fn say_last(&mut self, endpoint: u32, how: Stage) {
        let line = self.known(endpoint).and_then(|known| known.line.as_ref());
        if let Some((number, echo)) = line.map(|line| (line.number, line.theirs)) {
            self.say(endpoint, how, number, echo);
        }
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        self.close();
    }
}
