//! What MPI says of matching, without a transport: each message arrives at once. The model shares no code with the core.

use std::collections::{BTreeMap, HashMap};

use replay::loopback::{COMMUNICATORS, CONFIG, CONTEXTS};
use replay::replay::MEMORY;
use replay::{Contexts, Place};
use towline_window::command::{ANY, Mode};
use towline_window::completion::{Done, Failure};

/// Tags from here on do not match a receive of any tag.
const PROTOCOL_TAGS: u32 = 0x8000_0000;

/// A message that no receive has got.
#[derive(Clone, Debug)]
struct Message {
    send: u32,
    from: u32,
    context: u32,
    tag: u32,
    bytes: Vec<u8>,
}

/// What a receive or probe asks for.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    context: u32,
    /// The peer, or [`ANY`].
    source: u32,
    tag: u32,
}

impl Pattern {
    const fn fits(&self, message: &Message) -> bool {
        let tag = if self.tag == ANY { message.tag < PROTOCOL_TAGS } else { self.tag == message.tag };
        self.context == message.context && (self.source == ANY || self.source == message.from) && tag
    }
}

#[derive(Clone, Debug, Default)]
struct Context {
    /// The peers of the ranks of each communicator.
    communicators: BTreeMap<u32, Vec<u32>>,
    /// Posted receives, the oldest first.
    posted: Vec<(u32, Pattern, Place)>,
    /// Messages that have arrived, the oldest first.
    unexpected: Vec<Message>,
    memory: Vec<u8>,
}

/// An operation.
#[derive(Clone, Debug)]
struct Operation {
    at: u32,
    outcome: Option<Result<Done, Failure>>,
    /// It has a message, or is a message that a receive has got.
    is_matched: bool,
}

/// Contexts whose messages arrive at once.
#[derive(Debug)]
pub struct Model {
    contexts: Vec<Context>,
    operations: HashMap<u32, Operation>,
    taken: HashMap<u32, (u32, Message)>,
}

impl Model {
    pub fn new() -> Self {
        let context = Context { memory: vec![0; MEMORY], ..Context::default() };
        Self { contexts: vec![context; CONTEXTS as usize], operations: HashMap::new(), taken: HashMap::new() }
    }

    /// Whether an operation has matched or was cancelled, so that it ends.
    pub fn has_matched(&self, name: u32) -> bool {
        self.operations.get(&name).is_some_and(|operation| operation.is_matched)
    }

    /// Whether an operation has an outcome.
    pub fn is_over(&self, name: u32) -> bool {
        self.operations.get(&name).is_some_and(|operation| operation.outcome.is_some())
    }

    /// Whether it is a receive that waits for a message.
    pub fn is_posted(&self, name: u32) -> bool {
        self.contexts.iter().any(|context| context.posted.iter().any(|(receive, ..)| *receive == name))
    }

    /// Whether a message was taken out and not received.
    pub fn has_taken(&self, name: u32) -> bool {
        self.taken.contains_key(&name)
    }

    /// How many messages of a context no receive of another one has got.
    pub fn waiting(&self, from: u32, at: u32) -> usize {
        let unexpected = self.contexts[at as usize].unexpected.iter().filter(|message| message.from == from).count();
        unexpected + self.taken.values().filter(|(by, message)| *by == at && message.from == from).count()
    }

    /// Communicator, rank of the sender, and tag of a message that waits at a context.
    pub fn oldest(&self, at: u32) -> Option<(u32, u32, u32)> {
        let context = &self.contexts[at as usize];
        let message = context.unexpected.first()?;
        let rank = context.communicators[&message.context].iter().position(|peer| *peer == message.from)?;
        Some((message.context, rank as u32, message.tag))
    }

    /// How many operations of a context are in progress.
    pub fn in_progress(&self, at: u32) -> usize {
        self.operations.values().filter(|operation| operation.at == at).count()
    }

    fn peer(&self, at: u32, context: u32, rank: u32) -> Result<u32, Failure> {
        let peers = self.contexts[at as usize].communicators.get(&context).ok_or(Failure::NoSuchThing)?;
        if rank == ANY { Ok(ANY) } else { peers.get(rank as usize).copied().ok_or(Failure::NoSuchThing) }
    }

    fn pattern(&self, at: u32, context: u32, source: u32, tag: u32) -> Result<Pattern, Failure> {
        Ok(Pattern { context, source: self.peer(at, context, source)?, tag })
    }

    /// What a probe of a message says.
    fn found(&self, at: u32, message: &Message) -> Done {
        let peers = self.contexts[at as usize].communicators.get(&message.context);
        let rank = peers.and_then(|peers| peers.iter().position(|peer| *peer == message.from));
        let rank = rank.map_or(ANY, |rank| rank as u32);
        Done { rank, tag: message.tag, received: message.bytes.len() as u64, ..Done::default() }
    }

    fn begin(&mut self, name: u32, at: u32) -> Result<(), Failure> {
        if self.in_progress(at) >= CONFIG.requests as usize {
            return Err(Failure::Full);
        }
        self.operations.insert(name, Operation { at, outcome: None, is_matched: false });
        Ok(())
    }

    fn end(&mut self, name: u32, outcome: Result<Done, Failure>) {
        if let Some(operation) = self.operations.get_mut(&name) {
            (operation.outcome, operation.is_matched) = (Some(outcome), true);
        }
    }

    fn refuse(&mut self, name: u32, at: u32, begun: Result<(), Failure>) {
        if let Err(why) = begun {
            self.operations.insert(name, Operation { at, outcome: Some(Err(why)), is_matched: true });
        }
    }

    /// A receive gets a message.
    fn deliver(&mut self, receive: u32, at: u32, place: Place, message: &Message) {
        let delivered = message.bytes.len().min(place.bytes);
        let memory = &mut self.contexts[at as usize].memory;
        memory[place.at..place.at + delivered].copy_from_slice(&message.bytes[..delivered]);
        let done = Done { delivered: delivered as u64, ..self.found(at, message) };
        self.end(receive, Ok(done));
        self.end(message.send, Ok(Done::default()));
    }

    fn try_send(
        &mut self,
        name: u32,
        at: u32,
        (context, dest, tag, mode): (u32, u32, u32, Mode),
        place: Place,
    ) -> Result<(), Failure> {
        let to = self.peer(at, context, dest)?;
        if to == ANY || tag == ANY {
            return Err(Failure::NoSuchThing);
        }
        self.begin(name, at)?;
        let bytes = self.contexts[at as usize].memory[place.at..place.at + place.bytes].to_vec();
        let is_short = bytes.len() <= CONFIG.unit_bytes as usize;
        let message = Message { send: name, from: at, context, tag, bytes };
        let posted = &mut self.contexts[to as usize].posted;
        if let Some(found) = posted.iter().position(|(_, pattern, _)| pattern.fits(&message)) {
            let (receive, _, place) = posted.remove(found);
            self.deliver(receive, to, place, &message);
        } else if mode == Mode::Ready {
            self.end(name, Err(Failure::NotReady));
        } else {
            self.contexts[to as usize].unexpected.push(message);
            if is_short && matches!(mode, Mode::Standard | Mode::Complete) {
                let operation = self.operations.get_mut(&name).expect("it has begun");
                operation.outcome = Some(Ok(Done::default()));
            }
        }
        Ok(())
    }

    fn try_receive(
        &mut self,
        name: u32,
        at: u32,
        (context, source, tag): (u32, u32, u32),
        place: Place,
    ) -> Result<(), Failure> {
        let pattern = self.pattern(at, context, source, tag)?;
        self.begin(name, at)?;
        let unexpected = &mut self.contexts[at as usize].unexpected;
        match unexpected.iter().position(|message| pattern.fits(message)) {
            Some(found) => {
                let message = unexpected.remove(found);
                self.deliver(name, at, place, &message);
            }
            None => self.contexts[at as usize].posted.push((name, pattern, place)),
        }
        Ok(())
    }

    /// Whether nothing of a send has left: its receiver has no envelope for it.
    fn is_held_back(&self, send: u32) -> bool {
        self.contexts.iter().any(|context| {
            let Some(message) = context.unexpected.iter().find(|message| message.send == send) else { return false };
            let before = context.unexpected.iter().take_while(|message| message.send != send);
            before.filter(|other| other.from == message.from).count() >= (CONFIG.unexpected / CONFIG.peers) as usize
        })
    }
}

impl Contexts for Model {
    const PATIENCE: u32 = 1;

    fn progress(&mut self) {}

    fn poll(&mut self, _at: u32) {}

    fn join(&mut self, at: u32, context: u32, peers: &[u32]) -> Result<(), Failure> {
        let communicators = &mut self.contexts[at as usize].communicators;
        if communicators.contains_key(&context) {
            return Err(Failure::Malformed);
        }
        if communicators.len() >= COMMUNICATORS as usize {
            return Err(Failure::Full);
        }
        let peers = if peers.is_empty() { (0..CONTEXTS).collect() } else { peers.to_vec() };
        communicators.insert(context, peers);
        Ok(())
    }

    fn leave(&mut self, at: u32, context: u32) -> Result<(), Failure> {
        let this = &mut self.contexts[at as usize];
        this.communicators.remove(&context).ok_or(Failure::NoSuchThing)?;
        let (ended, posted) = this.posted.drain(..).partition(|(_, pattern, _)| pattern.context == context);
        this.posted = posted;
        let (dropped, unexpected) = this.unexpected.drain(..).partition(|message| message.context == context);
        this.unexpected = unexpected;
        let (ended, dropped): (Vec<(u32, Pattern, Place)>, Vec<Message>) = (ended, dropped);
        for (receive, ..) in ended {
            self.end(receive, Err(Failure::Cancelled));
        }
        for message in dropped {
            let running = self.operations.get(&message.send).is_some_and(|send| send.outcome.is_none());
            if running {
                self.end(message.send, Err(Failure::Refused));
            }
        }
        Ok(())
    }

    fn send(&mut self, name: u32, at: u32, context: u32, dest: u32, tag: u32, mode: Mode, place: Place) {
        let begun = self.try_send(name, at, (context, dest, tag, mode), place);
        self.refuse(name, at, begun);
    }

    fn receive(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32, place: Place) {
        let begun = self.try_receive(name, at, (context, source, tag), place);
        self.refuse(name, at, begun);
    }

    fn probe(&mut self, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure> {
        let pattern = self.pattern(at, context, source, tag)?;
        let mut unexpected = self.contexts[at as usize].unexpected.iter();
        unexpected.find(|message| pattern.fits(message)).map(|message| self.found(at, message)).ok_or(Failure::NotFound)
    }

    fn take(&mut self, name: u32, at: u32, context: u32, source: u32, tag: u32) -> Result<Done, Failure> {
        let pattern = self.pattern(at, context, source, tag)?;
        let unexpected = &mut self.contexts[at as usize].unexpected;
        let found = unexpected.iter().position(|message| pattern.fits(message)).ok_or(Failure::NotFound)?;
        let message = unexpected.remove(found);
        let done = self.found(at, &message);
        self.taken.insert(name, (at, message));
        Ok(done)
    }

    fn receive_taken(&mut self, name: u32, taken: u32, place: Place) {
        let Some((at, message)) = self.taken.remove(&taken) else {
            return self.refuse(name, 0, Err(Failure::NoSuchThing));
        };
        let begun = self.begin(name, at);
        if begun.is_ok() {
            self.deliver(name, at, place, &message);
        }
        self.refuse(name, at, begun);
    }

    fn cancel(&mut self, name: u32) -> bool {
        let is_held_back = self.is_held_back(name);
        let mut is_cancelled = false;
        for context in &mut self.contexts {
            let before = (context.posted.len(), context.unexpected.len());
            context.posted.retain(|(receive, ..)| *receive != name);
            if is_held_back {
                context.unexpected.retain(|message| message.send != name);
            }
            is_cancelled |= before != (context.posted.len(), context.unexpected.len());
        }
        if is_cancelled {
            self.end(name, Err(Failure::Cancelled));
        }
        is_cancelled
    }

    fn outcome(&mut self, name: u32) -> Option<Result<Done, Failure>> {
        let outcome = self.operations.get(&name)?.outcome?;
        self.operations.remove(&name);
        Some(outcome)
    }

    fn write(&mut self, at: u32, begin: usize, bytes: &[u8]) {
        self.contexts[at as usize].memory[begin..begin + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&mut self, at: u32, begin: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.contexts[at as usize].memory[begin..begin + into.len()]);
    }
}
