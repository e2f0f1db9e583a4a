//! How two ends agree on a session, as the answer of an end to each hello that it receives. No socket, no clock.
//!
//! An end with a session keeps it while another one is made. It then receives datagrams under either session, and sends under the
//! older one until the other end has proved that it has the new session, by a hello or by a datagram under it.

use towline_crypt::{Cipher, Handshake, MESSAGE, ReplayWindow};
use towline_net::JobKey;

use crate::session::auth::{Authenticator, End};
use crate::session::state::{Encryption, Session};
use crate::wire::hello::{Hello, NONCE, Nonce, Stage};

/// One end of a pair, with its sessions.
#[derive(Debug)]
pub(crate) struct SessionHandshake {
    /// The constant part of this end's hellos: all but stage, nonce and echo.
    base: Hello,
    /// The challenge for the next session. Each session has a new one, so no hello makes two sessions.
    next: Nonce,
    /// The other end's challenge, if the other end has answered `next`.
    answered: Option<Nonce>,
    keys: Keys,
    /// The current session, under which frames are sent, is at index [`Self::current`]. Beside it may be another one. Both slots
    /// exist from the beginning, so that nothing is allocated later.
    sessions: Box<[Option<Session>; 2]>,
    current: usize,
    /// The other session is a new one, and the other end has not proved yet that it has it. Otherwise the other session is an old
    /// one; it is kept until a datagram arrives under the new one, as datagrams that were sent before may still be in flight.
    unconfirmed: bool,
    /// This end wants another session than it has.
    renews: bool,
}

/// One of the two sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// The session under which frames are sent.
    Current,
    /// The session beside it.
    Other,
}

/// The key exchange for the next session, if datagrams are encrypted. The lower rank begins it, with any kind of hello. The
/// other rank answers once its challenge was answered, which shows that the lower rank is there now.
#[derive(Debug)]
enum Keys {
    None,
    /// Of the lower rank: its message, for the challenge `next`.
    Begun(Handshake, [u8; MESSAGE]),
    /// Of the other rank: the challenge and the message that it answers, the keys, and its answer.
    Answered(Nonce, [u8; MESSAGE], Cipher, [u8; MESSAGE]),
}

/// The result of a received hello.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The hello to answer with.
    pub(crate) answer: Option<Hello>,
    /// A session was made. It may be beside an older one until it is confirmed.
    pub(crate) established: bool,
}

impl SessionHandshake {
    /// `base` names this end and the other one; `next` was drawn at random.
    pub(crate) fn new(base: Hello, next: Nonce) -> Self {
        let sessions = Box::new([const { None }; 2]);
        Self { base, next, answered: None, keys: Keys::None, sessions, current: 0, unconfirmed: false, renews: false }
    }

    /// Whether these are the first bytes of a hello of this end for the next session. Only an observer of the hello knows them.
    pub(crate) fn has_sent(&self, bytes: &[u8]) -> bool {
        bytes.get(NONCE) == Some(&self.next)
    }

    /// The current session.
    #[inline]
    pub(crate) fn session(&self) -> Option<&Session> {
        self.slots().0
    }

    /// The current session, to be changed.
    #[inline]
    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        self.slots_mut().0.as_mut()
    }

    /// The session beside the current one.
    fn other(&self) -> Option<&Session> {
        self.slots().1
    }

    /// The session beside the current one, if it is a new one that is not confirmed.
    fn unconfirmed(&self) -> Option<&Session> {
        self.other().filter(|_| self.unconfirmed)
    }

    /// The current session and the one beside it.
    #[inline]
    fn slots(&self) -> (Option<&Session>, Option<&Session>) {
        let [one, other] = &*self.sessions;
        let (one, other) = (one.as_ref(), other.as_ref());
        if self.current == 0 { (one, other) } else { (other, one) }
    }

    #[inline]
    fn slots_mut(&mut self) -> (&mut Option<Session>, &mut Option<Session>) {
        let [one, other] = &mut *self.sessions;
        if self.current == 0 { (one, other) } else { (other, one) }
    }

    /// Drops the session beside the current one.
    fn drop_other(&mut self) {
        *self.slots_mut().1 = None;
        self.unconfirmed = false;
    }

    /// The sessions under which a datagram may arrive, the more likely one first.
    #[inline]
    pub(crate) fn sessions_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Session)> {
        let (current, other) = self.slots_mut();
        let current = current.iter_mut().map(|session| (Slot::Current, session));
        current.chain(other.iter_mut().map(|session| (Slot::Other, session)))
    }

    /// A datagram has arrived under this session. If it is the new session, the other end has it, and does not use the old one
    /// any more.
    #[inline]
    pub(crate) fn received_under(&mut self, slot: Slot) {
        match slot {
            Slot::Current if !self.unconfirmed && self.other().is_some() => self.drop_other(),
            Slot::Other if self.unconfirmed => {
                self.confirm();
                self.drop_other();
            }
            _ => {}
        }
    }

    /// The other end has the new session, which becomes the current one.
    #[cold]
    fn confirm(&mut self) {
        if self.unconfirmed {
            self.current ^= 1;
            self.unconfirmed = false;
        }
    }

    /// Puts a new session beside the current one.
    fn add_unconfirmed(&mut self, session: Session) {
        *self.slots_mut().1 = Some(session);
        self.unconfirmed = true;
    }

    /// Requests another session than the present one. `false`: one is being made already.
    pub(crate) fn renew(&mut self) -> bool {
        let idle = !self.is_unsettled();
        self.renews |= idle;
        idle
    }

    /// Whether an end with a session has a [hello to send](Self::next_hello) until it is answered.
    #[inline]
    pub(crate) const fn is_unsettled(&self) -> bool {
        self.renews || self.unconfirmed
    }

    /// Whether this end has sent a challenge to which a challenge with this echo can be the answer. Otherwise that is the answer
    /// to an old hello of this end that an attacker has replayed.
    fn has_challenged(&self, echo: Nonce) -> bool {
        self.session().is_none() || self.renews || self.unconfirmed().is_some_and(|session| session.own == echo)
    }

    /// The constant part of this end's hellos.
    pub(crate) const fn base(&self) -> &Hello {
        &self.base
    }

    /// Whether a hello was sent by the other end of this pair to this end.
    pub(crate) fn concerns(&self, hello: &Hello) -> bool {
        hello.link == self.base.link && hello.identity == self.base.identity.reversed()
    }

    /// The hello to send where no answer has arrived for a while.
    pub(crate) fn next_hello(&mut self, key: &JobKey) -> Hello {
        if let Some(session) = self.unconfirmed() {
            return session.hello(Stage::Verified, &self.base);
        }
        match self.answered {
            Some(echo) => self.hello(Stage::Verified, echo, key),
            None => self.hello(Stage::Challenge, [0; 16], key),
        }
    }

    /// A hello on the way to the next session.
    fn hello(&mut self, stage: Stage, echo: Nonce, key: &JobKey) -> Hello {
        if self.base.encrypted && self.begins_keys() && matches!(self.keys, Keys::None) {
            // If there are no keys now, this hello has no effect, and the next one tries again.
            self.keys = Handshake::begin(key.bytes()).map_or(Keys::None, |(begun, first)| Keys::Begun(begun, first));
        }
        let keys = match &self.keys {
            Keys::Begun(_, first) => *first,
            Keys::Answered(challenge, _, _, answer) if *challenge == echo => *answer,
            _ => [0; MESSAGE],
        };
        Hello { stage, nonce: self.next, echo, keys, ..self.base }
    }

    /// Of two ends that encrypt, whether this one begins the key exchange.
    const fn begins_keys(&self) -> bool {
        self.base.identity.from < self.base.identity.to
    }

    /// The end that does not begin the key exchange has verified the sender of this hello, and answers its message. `false`: it
    /// cannot.
    fn answer_keys(&mut self, hello: &Hello, key: &JobKey) -> bool {
        if !self.base.encrypted || self.begins_keys() {
            return true;
        }
        if matches!(&self.keys, Keys::Answered(challenge, message, ..) if (*challenge, *message) == (hello.nonce, hello.keys))
        {
            return true;
        }
        match Handshake::answer(key.bytes(), &hello.keys) {
            Ok((cipher, answer)) => self.keys = Keys::Answered(hello.nonce, hello.keys, cipher, answer),
            Err(_) => return false,
        }
        true
    }

    /// The cipher of a session with the sender of this hello, and this end's message. `None` where the key exchange failed; a
    /// cipher of `None` where nothing is encrypted.
    fn take_keys(&mut self, hello: &Hello) -> Option<(Option<Cipher>, [u8; MESSAGE])> {
        match std::mem::replace(&mut self.keys, Keys::None) {
            _ if !self.base.encrypted => Some((None, [0; MESSAGE])),
            Keys::Begun(begun, first) => Some((Some(begun.finish(&hello.keys).ok()?), first)),
            Keys::Answered(_, _, cipher, answer) => Some((Some(cipher), answer)),
            Keys::None => None,
        }
    }

    /// Handles a hello whose code is right and that [concerns](Self::concerns) this pair. `fresh` is drawn at random for each
    /// call.
    pub(crate) fn on_hello(&mut self, hello: &Hello, fresh: Nonce, key: &JobKey) -> Outcome {
        let answer = |answer: Hello| Outcome {
            answer: (hello.stage < Stage::Established).then_some(answer),
            established: false,
        };
        let is_of = |session: &Session| (session.own, session.theirs) == (hello.echo, hello.nonce);
        if let Some(session) = self.session().filter(|session| is_of(session)) {
            return answer(session.hello(Stage::Established, &self.base)); // this end's answer was lost
        }
        if let Some(session) = self.other().filter(|session| is_of(session)) {
            let established = session.hello(Stage::Established, &self.base);
            return match hello.stage {
                _ if !self.unconfirmed => Outcome::default(), // an old session
                Stage::Established => {
                    self.confirm();
                    Outcome::default()
                }
                _ => answer(established),
            };
        }
        let is_used = self.session().into_iter().chain(self.other()).any(|session| session.theirs == hello.nonce);
        if hello.echo != self.next {
            // The hello may be old: its sender must answer a challenge of this end first. An end that has answered a challenge
            // goes on with that one, so a challenge that is older than the session needs no answer.
            let echoes = hello.echo != [0; 16];
            if hello.stage == Stage::Challenge && (is_used || echoes && !self.has_challenged(hello.echo)) {
                return Outcome::default();
            }
            return answer(self.hello(Stage::Challenge, hello.nonce, key));
        }
        // A challenge makes one session, and the other end sent this hello before it had that session. An answer would replace
        // the keys that are agreed on for the next one.
        if is_used || !self.answer_keys(hello, key) {
            return Outcome::default();
        }
        self.answered = Some(hello.nonce);
        if hello.stage == Stage::Challenge {
            return answer(self.hello(Stage::Verified, hello.nonce, key));
        }
        let Some((cipher, keys)) = self.take_keys(hello) else { return Outcome::default() };
        let session = self.make_session(hello, fresh, cipher, keys, key);
        let established = session.hello(Stage::Established, &self.base);
        self.renews = false;
        let confirmed = hello.stage == Stage::Established || self.session().is_none();
        self.add_unconfirmed(session);
        if confirmed {
            self.confirm(); // the old session serves datagrams that are in flight
        }
        Outcome { established: true, ..answer(established) }
    }

    /// The session with the sender of this hello. From now on `fresh` is the next challenge.
    fn make_session(
        &mut self,
        hello: &Hello,
        fresh: Nonce,
        cipher: Option<Cipher>,
        keys: [u8; MESSAGE],
        key: &JobKey,
    ) -> Session {
        let own = std::mem::replace(&mut self.next, fresh);
        self.answered = None;
        let identity = self.base.identity;
        let here = End { rank: identity.from, instance: identity.from_instance, nonce: own };
        let there = End { rank: identity.to, instance: identity.to_instance, nonce: hello.nonce };
        let signed = self.base.signs || hello.signs;
        let [outbound, inbound] =
            [(here, there), (there, here)].map(|(from, to)| Authenticator::new(key, from, to, signed));
        let encryption = cipher.map(|cipher| Encryption { cipher, next_number: 0, received: ReplayWindow::new() });
        Session { own, theirs: hello.nonce, index: hello.index, outbound, inbound, encryption, keys }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use towline_net::{Encrypt, Identity};

    use super::*;

    const KEY: JobKey = JobKey::new([3; 32]);

    fn end(rank: u32, signs: bool, nonce: u8) -> SessionHandshake {
        end_of(rank, signs, false, nonce)
    }

    fn end_of(rank: u32, signs: bool, encrypted: bool, nonce: u8) -> SessionHandshake {
        let base = Hello {
            link: 0,
            stage: Stage::Challenge,
            signs,
            encrypted,
            encrypt: if encrypted { Encrypt::Always } else { Encrypt::Off },
            identity: Identity {
                job: 1,
                from: rank,
                to: 1 - rank,
                from_instance: u64::from(rank) + 10,
                to_instance: u64::from(1 - rank) + 10,
            },
            index: rank + 20,
            nonce: [0; 16],
            echo: [0; 16],
            keys: [0; MESSAGE],
        };
        SessionHandshake::new(base, [nonce; 16])
    }

    fn share_a_session(one: &SessionHandshake, other: &SessionHandshake) -> bool {
        let (Some(one), Some(other)) = (one.session(), other.session()) else { return false };
        let goes =
            |from: &Authenticator, to: &Authenticator| to.accepts(&[0; 8], b"frame", &from.proof(&[0; 8], b"frame"));
        let reads = |from: &Session, to: &Session| match (&from.encryption, &to.encryption) {
            (None, None) => true,
            (Some(from), Some(to)) => {
                let (mut sealed, mut open) = ([0; 21], [0; 21]);
                from.cipher.seal_as(9, b"frame", &mut sealed);
                to.cipher.open_as(9, &sealed, &mut open) == Ok(5) && open[..5] == *b"frame"
            }
            _ => false,
        };
        goes(&one.outbound, &other.inbound)
            && goes(&other.outbound, &one.inbound)
            && reads(one, other)
            && reads(other, one)
    }

    /// Whether datagrams of one end are accepted by the other.
    fn accepts(from: &SessionHandshake, to: &SessionHandshake) -> bool {
        let Some(session) = from.session() else { return false };
        let is_of = |to: &Session| (session.own, session.theirs) == (to.theirs, to.own);
        to.session().into_iter().chain(to.other()).any(is_of)
    }

    /// Each hello of a renewal may be lost: both ends accept the datagrams of the other all the time.
    #[test]
    fn a_renewal_keeps_the_session_until_the_new_one_is_confirmed() {
        for (encrypted, lost) in [false, true].into_iter().flat_map(|it| (0..6).map(move |lost| (it, lost))) {
            let (mut a, mut b) = (end_of(0, false, encrypted, 1), end_of(1, false, encrypted, 2));
            let mut nonce = 10;
            let mut exchange = |a: &mut SessionHandshake, b: &mut SessionHandshake, lost: usize| {
                let mut hello = Some(a.next_hello(&KEY));
                for turn in 0.. {
                    let (true, Some(received)) = (turn != lost, hello) else { break };
                    nonce += 1;
                    let to = if turn % 2 == 0 { &mut *b } else { &mut *a };
                    hello = to.on_hello(&received, [nonce; 16], &KEY).answer;
                    assert!(a.session().is_none() || accepts(a, b) && accepts(b, a), "{lost} is lost");
                }
            };
            exchange(&mut a, &mut b, usize::MAX);
            let old = a.session().unwrap().own;
            assert!(a.renew() && !a.renew());
            exchange(&mut a, &mut b, lost);
            for _ in 0..2 {
                if a.is_unsettled() {
                    exchange(&mut a, &mut b, usize::MAX);
                }
                if b.is_unsettled() {
                    exchange(&mut b, &mut a, usize::MAX);
                }
            }
            assert!(!a.is_unsettled() && !b.is_unsettled() && share_a_session(&a, &b));
            assert_ne!(a.session().unwrap().own, old);
            // A datagram under the new session ends the old one.
            a.received_under(Slot::Other);
            assert!(a.other().is_some());
            a.received_under(Slot::Current);
            assert!(a.other().is_none());
        }
    }

    /// The new session is confirmed by a datagram under it instead of a hello.
    #[test]
    fn a_datagram_under_a_new_session_confirms_it() {
        let (mut a, mut b) = (end(0, false, 1), end(1, false, 2));
        for nonce in [10, 20] {
            a.renew();
            let asks = b.on_hello(&a.next_hello(&KEY), [nonce; 16], &KEY).answer.unwrap();
            let knows = a.on_hello(&asks, [nonce + 1; 16], &KEY).answer.unwrap();
            let up = b.on_hello(&knows, [nonce + 2; 16], &KEY).answer.unwrap();
            assert!(a.on_hello(&up, [nonce + 3; 16], &KEY).answer.is_none());
        }
        assert!(!share_a_session(&a, &b) && accepts(&a, &b) && accepts(&b, &a) && b.is_unsettled());
        b.received_under(Slot::Current); // a datagram under the old session
        assert!(b.is_unsettled());
        b.received_under(Slot::Other);
        assert!(share_a_session(&a, &b) && !b.is_unsettled() && b.other().is_none());
    }

    /// An attacker replays a challenge of an end with a session: the answer to it is not answered, and nothing changes.
    #[test]
    fn an_end_that_has_not_challenged_does_not_answer_an_answer() {
        let (mut a, mut b) = (end(0, false, 1), end(1, false, 2));
        let first = a.next_hello(&KEY);
        for nonce in [10, 20] {
            a.renew();
            let asks = b.on_hello(&a.next_hello(&KEY), [nonce; 16], &KEY).answer.unwrap();
            let knows = a.on_hello(&asks, [nonce + 1; 16], &KEY).answer.unwrap();
            let up = b.on_hello(&knows, [nonce + 2; 16], &KEY).answer.unwrap();
            a.on_hello(&up, [nonce + 3; 16], &KEY);
            b.received_under(Slot::Other);
        }
        let last = Hello { nonce: b.session().unwrap().theirs, ..first };
        assert!(b.on_hello(&last, [40; 16], &KEY).answer.is_none(), "of the present session");
        let answer = b.on_hello(&first, [41; 16], &KEY).answer.expect("its sender may have forgotten its session");
        assert!(answer.stage == Stage::Challenge && a.on_hello(&answer, [42; 16], &KEY).answer.is_none());
        assert!(share_a_session(&a, &b) && !a.is_unsettled() && !b.is_unsettled());
    }

    #[test]
    fn four_hellos_make_a_session_and_a_repeated_one_is_answered_again() {
        let (mut a, mut b) = (end(0, false, 1), end(1, true, 2));
        let to_b = b.on_hello(&a.next_hello(&KEY), [4; 16], &KEY).answer.expect("an answer");
        assert!(b.session().is_none(), "the challenge may be old");
        let knows = a.on_hello(&to_b, [3; 16], &KEY).answer.expect("an answer");
        assert!(a.session().is_none() && knows.stage == Stage::Verified);
        let up = b.on_hello(&knows, [4; 16], &KEY);
        assert!(up.established);
        for lost in [true, false] {
            let again = b.on_hello(&a.next_hello(&KEY), [5; 16], &KEY);
            assert!(!again.established && again.answer == up.answer, "lost: {lost}");
        }
        let end = a.on_hello(&up.answer.expect("an answer"), [6; 16], &KEY);
        assert!(end.established && end.answer.is_none(), "no hello is left to send");
        assert!(share_a_session(&a, &b) && a.session().is_some_and(|session| session.outbound.signs()));
        assert_eq!((a.session().unwrap().index, b.session().unwrap().index), (21, 20));
    }

    #[test]
    fn an_end_that_starts_over_gets_a_new_session_and_replayed_hellos_make_none() {
        starts_over(false);
        starts_over(true);
    }

    fn starts_over(encrypted: bool) {
        let (mut a, mut b) = (end_of(0, false, encrypted, 1), end_of(1, false, encrypted, 2));
        let mut recorded = vec![];
        let mut connect = |a: &mut SessionHandshake, b: &mut SessionHandshake, nonce: u8| {
            let mut next = Some(a.next_hello(&KEY));
            for turn in 0u8.. {
                let Some(hello) = next else { break };
                let fresh = [nonce + turn; 16];
                next = if turn % 2 == 0 {
                    recorded.push(hello);
                    b.on_hello(&hello, fresh, &KEY).answer
                } else {
                    a.on_hello(&hello, fresh, &KEY).answer
                };
            }
            assert!(!a.is_unsettled() && b.is_unsettled() == b.other().is_some());
            if b.is_unsettled() {
                let (asks, fresh) = (b.next_hello(&KEY), [nonce + 20; 16]);
                let up = a.on_hello(&asks, fresh, &KEY).answer.expect("an answer");
                assert!(b.on_hello(&up, fresh, &KEY).answer.is_none() && !b.is_unsettled());
            }
            assert!(share_a_session(a, b));
        };
        connect(&mut a, &mut b, 10);
        let mut again = end_of(0, false, encrypted, 30);
        assert!(!share_a_session(&again, &b));
        connect(&mut again, &mut b, 40);
        for hello in recorded {
            let outcome = b.on_hello(&hello, [99; 16], &KEY);
            assert!(!outcome.established, "{hello:?}");
        }
        assert!(share_a_session(&again, &b));
    }

    proptest! {
        /// Whichever hellos are lost, duplicated, late or replayed, and whichever end wants another session: once hellos arrive,
        /// both ends have the same session, and no hello follows.
        #[test]
        fn ends_establish_a_session_over_any_network(
            moves in prop::collection::vec((any::<u8>(), any::<u16>()), 0..80), encrypted in any::<bool>(),
        ) {
            let mut ends = [end_of(0, false, encrypted, 1), end_of(1, false, encrypted, 2)];
            let mut ever: [Vec<Hello>; 2] = [vec![], vec![]]; // to each
            let mut nonce = 2u8;
            for (what, which) in moves {
                let to = usize::from(what & 1);
                if what & 6 == 0 || ever[to].is_empty() {
                    let caller = &mut ends[1 - to];
                    if what & 8 != 0 && caller.session().is_some() {
                        caller.renew();
                    }
                    ever[to].push(caller.next_hello(&KEY));
                    continue;
                }
                let count = ever[to].len();
                // In most cases one of the latest.
                let back = if what & 64 == 0 { usize::from(which) % count } else { usize::from(which) % count.min(3) };
                let hello = ever[to][count - 1 - back];
                nonce += 1;
                ever[1 - to].extend(ends[to].on_hello(&hello, [nonce; 16], &KEY).answer);
            }
            let mut calls = 0;
            // As the rail does: an end without a session, or with one that is not confirmed, sends hellos.
            let wants = |end: &SessionHandshake| end.session().is_none() || end.is_unsettled();
            while let Some(caller) = (0..2).find(|at| wants(&ends[(at + calls) % 2])).map(|at| (at + calls) % 2) {
                calls += 1;
                prop_assert!(calls < 9, "they establish no session");
                let (mut next, mut to) = (Some(ends[caller].next_hello(&KEY)), 1 - caller);
                let mut sent = 0;
                while let Some(hello) = next {
                    nonce += 1;
                    sent += 1;
                    prop_assert!(sent < 8, "hellos without end");
                    next = ends[to].on_hello(&hello, [nonce; 16], &KEY).answer;
                    to = 1 - to;
                }
            }
            prop_assert!(share_a_session(&ends[0], &ends[1]));
        }
    }
}
