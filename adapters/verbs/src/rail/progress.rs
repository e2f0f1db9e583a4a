//! What a poll does: hear what the device has done, call who is wanted, ask how frames do that left silently, hand over what came.

use towline_core::rail::native::NativeError;
use towline_core::rail::{Event, Frame, FrameId, HEAD, Lost};
use towline_core::time::{Duration, Instant};

use crate::bookkeeping::pending_events::{Arrival, Came};
use crate::device::{BATCH, Done, Work};
use crate::bookkeeping::async_event::Event as Said;
use crate::wire::hello::{self, Hello, Stage};
use crate::bookkeeping::layout::ROUTE;
use crate::rail::one_sided::finish;
use crate::rail::state::{Held, Id, Rail, Way};
use crate::bookkeeping::send_queue::Slot;

/// So long nothing follows a frame of which the device does not tell, until it is asked for. Nobody waits for that but who leaves,
/// and a marker costs as much as a frame.
pub(crate) const QUIET: Duration = Duration::from_millis(10);

/// Time between two looks at what the device has to say, where peers are not asked for signs of life.
const LOOK: Duration = Duration::from_secs(1);

impl Rail {
    #[inline]
    pub(crate) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        if self.armed {
            self.armed = false;
            self.completions.woken();
        }
        if (self.arrived.is_empty() || self.is_full()) && !self.gather() && !self.used.is_empty() {
            self.post_used();
        }
        if self.has_to_set_right() {
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
        if due(self.leaving.look_at()) {
            self.let_go();
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
        let mut done = Done::new();
        self.completions.take(&mut done);
        if done.is_broken {
            self.fail("its completion queue has failed");
        }
        for work in &mut done {
            any = true;
            self.hear_of(work);
        }
        any
    }

    /// Hears all that it has done so far: no more than there is room for, so this ends also where more comes all the time.
    pub(crate) fn gather_all(&mut self) {
        for _ in 0..=self.room / BATCH as u32 {
            if !self.gather() {
                return;
            }
        }
    }

    #[inline]
    fn hear_of(&mut self, work: Work) {
        match Id::of(work.id) {
            Id::Receive(buffer) => match self.endpoint_of(work.queue_pair).filter(|_| work.good) {
                Some(endpoint) => {
                    let Work { len, word, .. } = work;
                    self.arrived.push(Arrival::Frame(Came { endpoint, buffer, len, word, is_new: true }));
                }
                None => self.post_again(buffer), // of a connection that is gone, or that broke meanwhile
            },
            Id::Send { endpoint, number } => {
                let (now, Self { peers, slots, leaving, failed, layout, region, .. }) = (self.now, &mut *self);
                let known = peers.get_mut(endpoint as usize).and_then(Option::as_mut);
                let line = known.and_then(|known| known.line.as_mut());
                let Some(line) = line.filter(|line| line.pair.number() == work.queue_pair) else {
                    return leaving.flushed(work.queue_pair, number, slots);
                };
                let slot = line.out.at(number);
                if work.good {
                    if let Some(Slot::Work(at)) = slot {
                        finish(at, slots, layout, region);
                    }
                    line.out.done(number, slots);
                    line.heard = now;
                } else {
                    if let Some(Slot::Work(at) | Slot::Lead(at)) = slot.filter(|_| work.is_refused()) {
                        slots.works.over(at, Err(NativeError::Refused));
                    }
                    line.out.done(number, slots); // the device is through with it all the same
                    if !failed.contains(&endpoint) {
                        log::debug!("verbs: a frame has failed: status {}", work.why);
                        failed.push(endpoint);
                    }
                }
            }
            Id::HelloIn(buffer) => {
                self.hellos_in -= 1;
                if !work.good {
                    return self.fail_hellos(work.why);
                }
                let said = self.said(buffer, work.len);
                if !self.mending
                    && let Err(why) = self.post_hello(buffer)
                {
                    log::error!("verbs link {}: a buffer of hellos is lost: {why}", self.config.link);
                }
                match said {
                    // Not now: it may end connections of which there is more to hear. Others are said again.
                    Some(hello) if self.heard.len() < self.heard.capacity() => self.heard.push_back(hello),
                    Some(_) => {}
                    None => self.counters.hellos_refused += 1,
                }
            }
            Id::HelloOut(buffer) => {
                self.outbox.done(buffer);
                if !work.good {
                    self.fail_hellos(work.why);
                }
            }
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

    /// The queue pair of hellos has failed: it gives back all of its buffers, and is mended then.
    #[cold]
    fn fail_hellos(&mut self, why: u32) {
        if self.mending {
            return;
        }
        log::debug!("verbs link {}: the queue pair of hellos has failed: status {why}", self.config.link);
        self.mending = true;
        // It may go on receiving although it does not send any more.
        if let Err(why) = self.datagrams.break_down() {
            log::debug!("verbs: the queue pair of hellos does not break down: {why}");
        }
    }

    /// Has the queue pair of hellos begin anew.
    fn mend_hellos(&mut self) {
        self.mending = false;
        if let Err(why) = self.datagrams.mend().and_then(|()| self.post_hellos()) {
            log::error!("verbs link {}: the queue pair of hellos cannot be mended: {why}", self.config.link);
            self.fail("its queue pair of hellos has failed");
        }
    }

    /// All buffers of the queue pair of hellos are back.
    fn can_mend(&self) -> bool {
        self.mending && self.hellos_in == 0 && self.outbox.is_idle()
    }

    /// There is something for [`set_right`](Self::set_right).
    #[inline]
    pub(crate) fn has_to_set_right(&self) -> bool {
        let somebody = !self.wanted.is_empty() || !self.failed.is_empty() || !self.heard.is_empty();
        somebody || self.fault.is_some() || self.can_mend()
    }

    /// Ends what has failed, hears who says hello, and calls who is wanted.
    #[cold]
    fn set_right(&mut self) {
        if self.can_mend() {
            self.mend_hellos();
        }
        if let Some(why) = self.fault.take() {
            self.die(why);
        }
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

    /// Has the device tell of the last frames to those to whom nothing has followed, or to all where buffers are few.
    #[cold]
    fn ask_for_tails(&mut self) {
        let few = self.slots.are_few();
        let mut tails = std::mem::take(&mut self.tails); // and back: it keeps its room
        tails.retain(|endpoint| {
            let Some(line) = self.known(*endpoint).and_then(|known| known.line.as_mut()) else { return false };
            let seen = std::mem::replace(&mut line.tail, line.out.next());
            if line.out.silent() > 0 && line.tail != seen && !few {
                return true; // one that is told of may follow, and costs less than a marker
            }
            // Else look again.
            let done = line.out.silent() == 0 || (!line.out.will_tell() && self.mark(*endpoint));
            if done && let Some(line) = self.known(*endpoint).and_then(|known| known.line.as_mut()) {
                line.in_tails = false;
            }
            !done
        });
        self.tails = tails;
        self.tail_at = (!self.tails.is_empty()).then(|| self.now + QUIET);
    }

    /// Remembers that frames left silently.
    #[inline]
    pub(crate) fn has_tail(&mut self, endpoint: u32) {
        let Some(line) = self.known(endpoint).and_then(|known| known.line.as_mut()) else { return };
        if !line.in_tails {
            (line.in_tails, line.tail) = (true, line.out.next());
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
        let mut turn = self.turn;
        let enough = turn.go(self.peers.len() as u32, |endpoint| !self.is_quiet(endpoint) || self.mark(endpoint));
        self.turn = turn;
        self.hear_device();
        // Where there were not enough markers for all, some come back soon.
        let next = if enough { self.interval() } else { QUIET };
        self.beat_at = (!self.lines.is_empty()).then(|| self.now + next);
        self.set_right();
    }

    /// A peer is to be asked for a sign of life.
    fn is_quiet(&mut self, endpoint: u32) -> bool {
        let (now, interval) = (self.now, self.interval());
        let never = self.config.heartbeat.is_zero();
        let line = self.known(endpoint).filter(|known| known.way == Way::Up && !never).and_then(|it| it.line.as_ref());
        line.is_some_and(|line| !line.out.will_tell() && now.since(line.heard) >= interval)
    }

    /// Hears what the device has to say that belongs to no work.
    pub(crate) fn hear_device(&mut self) {
        while let Some(said) = self.device.event() {
            log::debug!("verbs link {}: the device says {said:?}", self.config.link);
            match said {
                Said::Empty(queue_pair) => self.leaving.is_empty(queue_pair),
                Said::Failed(queue_pair) => {
                    if let Some(endpoint) = self.endpoint_of(queue_pair).filter(|it| !self.failed.contains(it)) {
                        self.failed.push(endpoint);
                    }
                }
                Said::Fatal(why) => self.fail(why),
                Said::Other(_) => {}
            }
        }
    }

    /// What all rests on has failed. That is seen to later, as connections may be about to end of which there is more to hear.
    fn fail(&mut self, why: &'static str) {
        if self.dead.is_none() {
            self.fault = Some(why);
        }
    }

    /// There is no way to anybody any more.
    fn die(&mut self, why: &'static str) {
        log::error!("verbs link {}: {} cannot be used any more: {why}", self.config.link, self.port.name);
        self.dead = Some(why);
        for endpoint in 0..self.peers.len() as u32 {
            self.lose(endpoint, Lost::Broken);
        }
    }

    /// Time between two looks.
    pub(crate) fn interval(&self) -> Duration {
        let asked = Duration::from_nanos(u64::try_from(self.config.heartbeat.as_nanos()).unwrap_or(u64::MAX / 4));
        if self.config.heartbeat.is_zero() { LOOK } else { asked }
    }

    /// Hands over the next of what came, unless the reader holds too much.
    #[inline]
    fn next_arrival(&mut self) -> Option<Event> {
        // Before it is told that their peers are lost, if they are.
        if let Some((cookie, how)) = self.slots.works.told() {
            return Some(Event::Performed(cookie, how));
        }
        loop {
            match self.arrived.first()? {
                Arrival::Lost { peer, why, .. } => {
                    self.arrived.remove_first();
                    return Some(Event::Lost(peer, why));
                }
                Arrival::Frame(_) if self.is_full() => return None,
                Arrival::Frame(came) => {
                    self.arrived.remove_first();
                    if let Some(event) = self.open_frame(came) {
                        return Some(event);
                    }
                }
            }
        }
    }

    #[inline]
    fn open_frame(&mut self, came: Came) -> Option<Event> {
        let Came { endpoint, buffer, len, word, is_new } = came;
        let (from, way) = self.known(endpoint).map(|known| (known.peer, known.way))?;
        if way == Way::Meeting && is_new {
            self.is_up(endpoint); // who sends has connected
        }
        // Without a word it is no frame.
        let [tag, header, zeros @ ..] = word.unwrap_or(u32::MAX).to_le_bytes();
        let valid = HEAD.min(len as usize);
        let at = self.layout.received.at(buffer)?;
        let room = self.region.pointer(at, valid)?;
        if usize::from(header) > valid || zeros != [0, 0] || len > self.config.max_send_size_bytes {
            self.counters.malformed += 1;
            self.post_again(buffer);
            self.lose(endpoint, Lost::Misbehaved);
            return None;
        }
        let mut head = [0; HEAD];
        // SAFETY: within the region, and the device has told that it is done with the buffer, which is not posted again yet.
        unsafe { room.copy_to_nonoverlapping(std::ptr::NonNull::from(&mut head).cast(), valid) };
        if len as usize <= HEAD {
            self.post_again(buffer);
        } else {
            *self.held.get_mut(buffer as usize)? = Some(Held { endpoint, len });
            self.held_count += 1;
        }
        Some(Event::Frame(Frame { id: FrameId(buffer.into()), from, tag, valid: valid as u8, len, head }))
    }

    /// Waits until all that has left is there, for so long at most, and says good-bye to all.
    fn close(&mut self) {
        if self.dead.is_some() {
            return; // nothing arrives
        }
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
            while self.outbox.next().is_none() && began.elapsed() < 2 * patience {
                self.gather();
            }
            self.say_last(endpoint, Stage::Bye);
        }
        while !self.outbox.is_idle() && began.elapsed() < 2 * patience {
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
