//! How two ends come to a session, told as what each hello that is heard makes of it. No socket, no clock.
//!
//! An end that has a session keeps it while another one is made: what comes is taken under either, and what leaves is under the
//! older one until the other end has proved that it has the new one, by a hello or by what it sends under it.

use towline_crypt::{Cipher, Handshake, MESSAGE, Window};
use towline_net::JobKey;

use crate::hello::{Hello, NONCE, Nonce, Stage};
use crate::session::auth::{Seal, Side};

/// One end of a pair, as its own side sees it.
#[derive(Debug)]
pub(crate) struct Meeting {
    /// What never changes: a hello of ours, all but stage, nonce and echo.
    base: Hello,
    /// The challenge for the next session. It is drawn anew for each, so no hello brings about a session twice.
    next: Nonce,
    /// The other's challenge, if it has answered ours.
    answered: Option<Nonce>,
    keys: Keys,
    /// What leaves is under the one at [`Self::at`]; beside it may be another one. Both places are there from the beginning, so that
    /// nothing is allocated later on.
    sessions: Box<[Option<Session>; 2]>,
    at: usize,
    /// The session beside it is a new one, of which the other end has not proved yet that it has it. Else it is an old one, until
    /// something comes under the new one: what was sent before may still be on its way.
    coming: bool,
    /// This end wants another session than it has.
    renews: bool,
}

/// Which of two sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// Under which frames leave.
    Current,
    /// The one beside it.
    Beside,
}

/// What of the keys of the next session is there, where datagrams are encrypted. The lower rank begins the handshake, with
/// whatever it says; the other one answers who has answered its challenge, and is so known to be there.
#[derive(Debug)]
enum Keys {
    None,
    /// The lower rank's, for the challenge `next`.
    Begun(Handshake, [u8; MESSAGE]),
    /// The other one's: for whose challenge, with which message, the keys, and what it answers.
    Answered(Nonce, [u8; MESSAGE], Cipher, [u8; MESSAGE]),
}

/// What two ends have agreed on.
#[derive(Debug)]
pub(crate) struct Session {
    own: Nonce,
    theirs: Nonce,
    /// Our number at the other end.
    pub(crate) index: u32,
    /// Proves what we send.
    pub(crate) out: Seal,
    /// Proves what we get.
    pub(crate) into: Seal,
    pub(crate) sealed: Option<Sealed>,
    /// Our part of its keys.
    keys: [u8; MESSAGE],
}

/// What seals the datagrams of a session.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) cipher: Cipher,
    /// Number of the next that leaves.
    pub(crate) next: u64,
    /// Those that have come.
    pub(crate) came: Window,
}

/// What came of a hello.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// What to say.
    pub(crate) answer: Option<Hello>,
    /// There is a new session; perhaps beside an older one, until it is proved.
    pub(crate) established: bool,
}

impl Meeting {
    /// `base` is who we are and who is meant; `next` was drawn at random.
    pub(crate) fn new(base: Hello, next: Nonce) -> Self {
        let sessions = Box::new([const { None }; 2]);
        Self { base, next, answered: None, keys: Keys::None, sessions, at: 0, coming: false, renews: false }
    }

    /// Whether these are the first bytes of a hello of ours for the next session, which nobody knows who has not seen it.
    pub(crate) fn has_said(&self, bytes: &[u8]) -> bool {
        bytes.get(NONCE) == Some(&self.next)
    }

    #[inline]
    pub(crate) fn session(&self) -> Option<&Session> {
        self.places().0
    }

    #[inline]
    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        self.places_mut().0.as_mut()
    }

    /// The session beside the current one.
    fn beside(&self) -> Option<&Session> {
        self.places().1
    }

    /// That one, if it is new.
    fn coming(&self) -> Option<&Session> {
        self.beside().filter(|_| self.coming)
    }

    /// The session under which frames leave, and the one beside it.
    #[inline]
    fn places(&self) -> (Option<&Session>, Option<&Session>) {
        let [one, other] = &*self.sessions;
        let (one, other) = (one.as_ref(), other.as_ref());
        if self.at == 0 { (one, other) } else { (other, one) }
    }

    #[inline]
    fn places_mut(&mut self) -> (&mut Option<Session>, &mut Option<Session>) {
        let [one, other] = &mut *self.sessions;
        if self.at == 0 { (one, other) } else { (other, one) }
    }

    /// What was beside the current session is over.
    fn drop_beside(&mut self) {
        *self.places_mut().1 = None;
        self.coming = false;
    }

    /// The sessions under which something may have come, the likelier one first.
    #[inline]
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = (Which, &mut Session)> {
        let (current, beside) = self.places_mut();
        let current = current.iter_mut().map(|session| (Which::Current, session));
        current.chain(beside.iter_mut().map(|session| (Which::Beside, session)))
    }

    /// Something has come that was sent under this session: the other end has it, if it is the new one, and no longer uses the
    /// old one.
    #[inline]
    pub(crate) fn took(&mut self, which: Which) {
        match which {
            Which::Current if !self.coming && self.beside().is_some() => self.drop_beside(),
            Which::Beside if self.coming => {
                self.promote();
                self.drop_beside();
            }
            _ => {}
        }
    }

    /// The other end has the new session: from now on it is used.
    #[cold]
    fn promote(&mut self) {
        if self.coming {
            self.at ^= 1;
            self.coming = false;
        }
    }

    /// There is another session, which the other end has not proved yet.
    fn put_beside(&mut self, session: Session) {
        *self.places_mut().1 = Some(session);
        self.coming = true;
    }

    /// Wants another session than the one that there is. `false` where that is under way.
    pub(crate) fn renew(&mut self) -> bool {
        let idle = !self.is_unsettled();
        self.renews |= idle;
        idle
    }

    /// Whether, with a session, there is something to [say](Self::call) until it is answered.
    #[inline]
    pub(crate) const fn is_unsettled(&self) -> bool {
        self.renews || self.coming
    }

    /// Whether this end has asked for a session, so that it makes sense that somebody asks back. Otherwise it is the answer to
    /// an old hello of ours that others have sent again.
    fn has_asked(&self, echo: Nonce) -> bool {
        self.session().is_none() || self.renews || self.coming().is_some_and(|coming| coming.own == echo)
    }

    /// Our own hello, all but stage, nonce and echo.
    pub(crate) const fn base(&self) -> &Hello {
        &self.base
    }

    /// Whether a hello is from the other end of this pair to this one.
    pub(crate) fn concerns(&self, hello: &Hello) -> bool {
        let (own, theirs) = ((self.base.from, self.base.from_instance), (self.base.to, self.base.to_instance));
        (hello.job, hello.link) == (self.base.job, self.base.link)
            && (hello.from, hello.from_instance) == theirs
            && (hello.to, hello.to_instance) == own
    }

    /// What to say where nothing was heard for a while.
    pub(crate) fn call(&mut self, key: &JobKey) -> Hello {
        if let Some(coming) = self.coming() {
            return coming.hello(Stage::Knows, &self.base);
        }
        match self.answered {
            Some(echo) => self.say(Stage::Knows, echo, key),
            None => self.say(Stage::Calls, [0; 16], key),
        }
    }

    /// Something on the way to the next session.
    fn say(&mut self, stage: Stage, echo: Nonce, key: &JobKey) -> Hello {
        if self.base.encrypted && self.begins() && matches!(self.keys, Keys::None) {
            // If there are none now, what is said is of no use, and said again.
            self.keys = Handshake::begin(key.bytes()).map_or(Keys::None, |(begun, said)| Keys::Begun(begun, said));
        }
        let keys = match &self.keys {
            Keys::Begun(_, said) => *said,
            Keys::Answered(whom, _, _, said) if *whom == echo => *said,
            _ => [0; MESSAGE],
        };
        Hello { stage, nonce: self.next, echo, keys, ..self.base }
    }

    /// Of two that encrypt, whether this is the one that begins.
    const fn begins(&self) -> bool {
        self.base.from < self.base.to
    }

    /// The one that does not begin has seen that who says this is there: answers. Whether it can.
    fn answer_keys(&mut self, hello: &Hello, key: &JobKey) -> bool {
        if !self.base.encrypted || self.begins() {
            return true;
        }
        if matches!(&self.keys, Keys::Answered(whom, what, ..) if (*whom, *what) == (hello.nonce, hello.keys)) {
            return true;
        }
        match Handshake::answer(key.bytes(), &hello.keys) {
            Ok((cipher, said)) => self.keys = Keys::Answered(hello.nonce, hello.keys, cipher, said),
            Err(_) => return false,
        }
        true
    }

    /// The keys for a session with who says this, and our part of them: `None` where they are not to be had. Nothing where
    /// nothing is encrypted.
    fn take_keys(&mut self, hello: &Hello) -> Option<(Option<Cipher>, [u8; MESSAGE])> {
        match std::mem::replace(&mut self.keys, Keys::None) {
            _ if !self.base.encrypted => Some((None, [0; MESSAGE])),
            Keys::Begun(begun, said) => Some((Some(begun.finish(&hello.keys).ok()?), said)),
            Keys::Answered(_, _, cipher, said) => Some((Some(cipher), said)),
            Keys::None => None,
        }
    }

    /// Takes in a hello whose code is right and that [concerns](Self::concerns) this pair. `fresh` is drawn at random for each
    /// call.
    pub(crate) fn hear(&mut self, hello: &Hello, fresh: Nonce, key: &JobKey) -> Heard {
        let answer = |answer: Hello| Heard { answer: (hello.stage < Stage::Up).then_some(answer), established: false };
        let is_of = |session: &Session| (session.own, session.theirs) == (hello.echo, hello.nonce);
        if let Some(session) = self.session().filter(|session| is_of(session)) {
            return answer(session.hello(Stage::Up, &self.base)); // ours to it was lost
        }
        if let Some(session) = self.beside().filter(|session| is_of(session)) {
            let up = session.hello(Stage::Up, &self.base);
            return match hello.stage {
                _ if !self.coming => Heard::default(), // an old one
                Stage::Up => {
                    self.promote();
                    Heard::default()
                }
                _ => answer(up),
            };
        }
        let is_used = self.session().into_iter().chain(self.beside()).any(|session| session.theirs == hello.nonce);
        if hello.echo != self.next {
            // Perhaps an old one: whoever says it must answer our challenge first. Who has answered a challenge goes on with
            // that one, so a call that is older than a session is not worth an answer.
            let asks_back = hello.echo != [0; 16];
            if hello.stage == Stage::Calls && (is_used || asks_back && !self.has_asked(hello.echo)) {
                return Heard::default();
            }
            return answer(self.say(Stage::Calls, hello.nonce, key));
        }
        // A challenge brings about one session: this was said before the other end had that. To answer it would take the keys
        // that are answered for the next one out of their place.
        if is_used || !self.answer_keys(hello, key) {
            return Heard::default();
        }
        self.answered = Some(hello.nonce);
        if hello.stage == Stage::Calls {
            return answer(self.say(Stage::Knows, hello.nonce, key));
        }
        let Some((cipher, keys)) = self.take_keys(hello) else { return Heard::default() };
        let own = std::mem::replace(&mut self.next, fresh);
        self.answered = None;
        let here = Side { rank: self.base.from, instance: self.base.from_instance, nonce: own };
        let there = Side { rank: hello.from, instance: hello.from_instance, nonce: hello.nonce };
        let signed = self.base.signs || hello.signs;
        let [out, into] = [(here, there), (there, here)].map(|(from, to)| Seal::new(key, from, to, signed));
        let sealed = cipher.map(|cipher| Sealed { cipher, next: 0, came: Window::new() });
        let session = Session { own, theirs: hello.nonce, index: hello.index, out, into, sealed, keys };
        let said = session.hello(Stage::Up, &self.base);
        self.renews = false;
        let proved = hello.stage == Stage::Up || self.session().is_none();
        self.put_beside(session);
        if proved {
            self.promote(); // the old one is for what was sent before
        }
        Heard { established: true, ..answer(said) }
    }
}

impl Session {
    /// That it is there; with [`Stage::Knows`], also the question whether it is at the other end.
    fn hello(&self, stage: Stage, base: &Hello) -> Hello {
        Hello { stage, nonce: self.own, echo: self.theirs, keys: self.keys, ..*base }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use towline_net::Encrypt;

    use super::*;

    const KEY: JobKey = JobKey::new([3; 32]);

    fn end(rank: u32, signs: bool, nonce: u8) -> Meeting {
        end_of(rank, signs, false, nonce)
    }

    fn end_of(rank: u32, signs: bool, encrypted: bool, nonce: u8) -> Meeting {
        let base = Hello {
            link: 0,
            stage: Stage::Calls,
            signs,
            encrypted,
            encrypt: if encrypted { Encrypt::Always } else { Encrypt::Off },
            job: 1,
            from: rank,
            to: 1 - rank,
            from_instance: u64::from(rank) + 10,
            to_instance: u64::from(1 - rank) + 10,
            index: rank + 20,
            nonce: [0; 16],
            echo: [0; 16],
            keys: [0; MESSAGE],
        };
        Meeting::new(base, [nonce; 16])
    }

    fn understand_each_other(one: &Meeting, other: &Meeting) -> bool {
        let (Some(one), Some(other)) = (one.session(), other.session()) else { return false };
        let goes = |from: &Seal, to: &Seal| to.accepts(&[0; 8], b"frame", &from.proof(&[0; 8], b"frame"));
        let reads = |from: &Session, to: &Session| match (&from.sealed, &to.sealed) {
            (None, None) => true,
            (Some(from), Some(to)) => {
                let (mut sealed, mut open) = ([0; 21], [0; 21]);
                from.cipher.seal_as(9, b"frame", &mut sealed);
                to.cipher.open_as(9, &sealed, &mut open) == Ok(5) && open[..5] == *b"frame"
            }
            _ => false,
        };
        goes(&one.out, &other.into) && goes(&other.out, &one.into) && reads(one, other) && reads(other, one)
    }

    /// Whether what leaves one end is taken by the other.
    fn takes(from: &Meeting, to: &Meeting) -> bool {
        let Some(session) = from.session() else { return false };
        let is_of = |to: &Session| (session.own, session.theirs) == (to.theirs, to.own);
        to.session().into_iter().chain(to.beside()).any(is_of)
    }

    /// Each hello of a renewal may be lost: both ends take what the other sends all the time.
    #[test]
    fn a_renewal_keeps_what_there_is_until_the_new_one_is_proved() {
        for (encrypted, lost) in [false, true].into_iter().flat_map(|it| (0..6).map(move |lost| (it, lost))) {
            let (mut a, mut b) = (end_of(0, false, encrypted, 1), end_of(1, false, encrypted, 2));
            let mut nonce = 10;
            let mut talk = |a: &mut Meeting, b: &mut Meeting, lost: usize| {
                let mut said = Some(a.call(&KEY));
                for turn in 0.. {
                    let (true, Some(hello)) = (turn != lost, said) else { break };
                    nonce += 1;
                    let to = if turn % 2 == 0 { &mut *b } else { &mut *a };
                    said = to.hear(&hello, [nonce; 16], &KEY).answer;
                    assert!(a.session().is_none() || takes(a, b) && takes(b, a), "{lost} is lost");
                }
            };
            talk(&mut a, &mut b, usize::MAX);
            let old = a.session().unwrap().own;
            assert!(a.renew() && !a.renew());
            talk(&mut a, &mut b, lost);
            for _ in 0..2 {
                if a.is_unsettled() {
                    talk(&mut a, &mut b, usize::MAX);
                }
                if b.is_unsettled() {
                    talk(&mut b, &mut a, usize::MAX);
                }
            }
            assert!(!a.is_unsettled() && !b.is_unsettled() && understand_each_other(&a, &b));
            assert_ne!(a.session().unwrap().own, old);
            // What comes under the new one ends the old one.
            a.took(Which::Beside);
            assert!(a.beside().is_some());
            a.took(Which::Current);
            assert!(a.beside().is_none());
        }
    }

    /// Instead of by a hello, the new session is proved by what comes under it.
    #[test]
    fn what_comes_under_a_new_session_proves_it() {
        let (mut a, mut b) = (end(0, false, 1), end(1, false, 2));
        for nonce in [10, 20] {
            a.renew();
            let asks = b.hear(&a.call(&KEY), [nonce; 16], &KEY).answer.unwrap();
            let knows = a.hear(&asks, [nonce + 1; 16], &KEY).answer.unwrap();
            let up = b.hear(&knows, [nonce + 2; 16], &KEY).answer.unwrap();
            assert!(a.hear(&up, [nonce + 3; 16], &KEY).answer.is_none());
        }
        assert!(!understand_each_other(&a, &b) && takes(&a, &b) && takes(&b, &a) && b.is_unsettled());
        b.took(Which::Current); // an old one
        assert!(b.is_unsettled());
        b.took(Which::Beside);
        assert!(understand_each_other(&a, &b) && !b.is_unsettled() && b.beside().is_none());
    }

    /// A call of those that have a session, sent again by others: its answer goes unanswered, and nothing has changed.
    #[test]
    fn who_has_not_asked_does_not_answer_an_answer() {
        let (mut a, mut b) = (end(0, false, 1), end(1, false, 2));
        let first = a.call(&KEY);
        for nonce in [10, 20] {
            a.renew();
            let asks = b.hear(&a.call(&KEY), [nonce; 16], &KEY).answer.unwrap();
            let knows = a.hear(&asks, [nonce + 1; 16], &KEY).answer.unwrap();
            let up = b.hear(&knows, [nonce + 2; 16], &KEY).answer.unwrap();
            a.hear(&up, [nonce + 3; 16], &KEY);
            b.took(Which::Beside);
        }
        let last = Hello { nonce: b.session().unwrap().theirs, ..first };
        assert!(b.hear(&last, [40; 16], &KEY).answer.is_none(), "of the session that there is");
        let answer = b.hear(&first, [41; 16], &KEY).answer.expect("it may have begun anew");
        assert!(answer.stage == Stage::Calls && a.hear(&answer, [42; 16], &KEY).answer.is_none());
        assert!(understand_each_other(&a, &b) && !a.is_unsettled() && !b.is_unsettled());
    }

    #[test]
    fn four_hellos_make_a_session_and_a_repeated_one_is_answered_again() {
        let (mut a, mut b) = (end(0, false, 1), end(1, true, 2));
        let to_b = b.hear(&a.call(&KEY), [4; 16], &KEY).answer.expect("an answer");
        assert!(b.session().is_none(), "whoever called may have done so long ago");
        let knows = a.hear(&to_b, [3; 16], &KEY).answer.expect("an answer");
        assert!(a.session().is_none() && knows.stage == Stage::Knows);
        let up = b.hear(&knows, [4; 16], &KEY);
        assert!(up.established);
        for lost in [true, false] {
            let again = b.hear(&a.call(&KEY), [5; 16], &KEY);
            assert!(!again.established && again.answer == up.answer, "lost: {lost}");
        }
        let end = a.hear(&up.answer.expect("an answer"), [6; 16], &KEY);
        assert!(end.established && end.answer.is_none(), "nothing is left to say");
        assert!(understand_each_other(&a, &b) && a.session().is_some_and(|session| session.out.signs()));
        assert_eq!((a.session().unwrap().index, b.session().unwrap().index), (21, 20));
    }

    #[test]
    fn whoever_begins_anew_is_met_anew_and_old_hellos_bring_no_session_back() {
        whoever_begins_anew(false);
        whoever_begins_anew(true);
    }

    fn whoever_begins_anew(encrypted: bool) {
        let (mut a, mut b) = (end_of(0, false, encrypted, 1), end_of(1, false, encrypted, 2));
        let mut heard = vec![];
        let mut meet = |a: &mut Meeting, b: &mut Meeting, nonce: u8| {
            let mut said = Some(a.call(&KEY));
            for turn in 0u8.. {
                let Some(hello) = said else { break };
                let fresh = [nonce + turn; 16];
                said = if turn % 2 == 0 {
                    heard.push(hello);
                    b.hear(&hello, fresh, &KEY).answer
                } else {
                    a.hear(&hello, fresh, &KEY).answer
                };
            }
            assert!(!a.is_unsettled() && b.is_unsettled() == b.beside().is_some());
            if b.is_unsettled() {
                let (asks, fresh) = (b.call(&KEY), [nonce + 20; 16]);
                let up = a.hear(&asks, fresh, &KEY).answer.expect("an answer");
                assert!(b.hear(&up, fresh, &KEY).answer.is_none() && !b.is_unsettled());
            }
            assert!(understand_each_other(a, b));
        };
        meet(&mut a, &mut b, 10);
        let mut again = end_of(0, false, encrypted, 30);
        assert!(!understand_each_other(&again, &b));
        meet(&mut again, &mut b, 40);
        for hello in heard {
            let heard = b.hear(&hello, [99; 16], &KEY);
            assert!(!heard.established, "{hello:?}");
        }
        assert!(understand_each_other(&again, &b));
    }

    proptest! {
        /// Whatever is lost, doubled, late or sent again by others, and whoever wants another session: once hellos go through,
        /// both have the same session, and silence follows.
        #[test]
        fn ends_meet_over_any_network(
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
                    ever[to].push(caller.call(&KEY));
                    continue;
                }
                let count = ever[to].len();
                // Mostly one of the last.
                let back = if what & 64 == 0 { usize::from(which) % count } else { usize::from(which) % count.min(3) };
                let hello = ever[to][count - 1 - back];
                nonce += 1;
                ever[1 - to].extend(ends[to].hear(&hello, [nonce; 16], &KEY).answer);
            }
            let mut calls = 0;
            // As the rail does it: who has no session, or waits for proof, calls.
            let wants = |end: &Meeting| end.session().is_none() || end.is_unsettled();
            while let Some(caller) = (0..2).find(|at| wants(&ends[(at + calls) % 2])).map(|at| (at + calls) % 2) {
                calls += 1;
                prop_assert!(calls < 9, "they do not meet");
                let (mut said, mut to) = (Some(ends[caller].call(&KEY)), 1 - caller);
                let mut said_so_far = 0;
                while let Some(hello) = said {
                    nonce += 1;
                    said_so_far += 1;
                    prop_assert!(said_so_far < 8, "no end to it");
                    said = ends[to].hear(&hello, [nonce; 16], &KEY).answer;
                    to = 1 - to;
                }
            }
            prop_assert!(understand_each_other(&ends[0], &ends[1]));
        }
    }
}
