//! How two ends come to a session, told as what each hello that is heard makes of it. No socket, no clock.

use towline_tcp::JobKey;

use crate::hello::{Hello, Nonce, Stage};
use crate::session::{Seal, Side};

/// One end of a pair, as its own side sees it.
#[derive(Debug)]
pub(crate) struct Meeting {
    /// What never changes: a hello of ours, all but stage, nonce and echo.
    base: Hello,
    /// The challenge for the next session. It is drawn anew for each, so no hello brings about a session twice.
    next: Nonce,
    /// The other's challenge, if it has answered ours.
    answered: Option<Nonce>,
    session: Option<Session>,
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
}

/// What came of a hello.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// What to say.
    pub(crate) answer: Option<Hello>,
    /// There is a new session.
    pub(crate) established: bool,
}

impl Meeting {
    /// `base` is who we are and who is meant; `next` was drawn at random.
    pub(crate) const fn new(base: Hello, next: Nonce) -> Self {
        Self { base, next, answered: None, session: None }
    }

    pub(crate) const fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Whether a hello is from the other end of this pair to this one.
    pub(crate) fn concerns(&self, hello: &Hello) -> bool {
        let (own, theirs) = ((self.base.from, self.base.from_instance), (self.base.to, self.base.to_instance));
        (hello.job, hello.link) == (self.base.job, self.base.link)
            && (hello.from, hello.from_instance) == theirs
            && (hello.to, hello.to_instance) == own
    }

    /// What to say where nothing was heard for a while.
    pub(crate) fn call(&self) -> Hello {
        match self.answered {
            Some(echo) => self.say(Stage::Knows, self.next, echo),
            None => self.say(Stage::Calls, self.next, [0; 16]),
        }
    }

    fn say(&self, stage: Stage, nonce: Nonce, echo: Nonce) -> Hello {
        Hello { stage, nonce, echo, ..self.base }
    }

    /// Takes in a hello whose code is right and that [concerns](Self::concerns) this pair. `fresh` is drawn at random for each
    /// call.
    pub(crate) fn hear(&mut self, hello: &Hello, fresh: Nonce, key: &JobKey) -> Heard {
        let answer = |answer: Hello| Heard { answer: (hello.stage < Stage::Up).then_some(answer), established: false };
        if let Some(session) = &self.session
            && (session.own, session.theirs) == (hello.echo, hello.nonce)
        {
            return answer(self.say(Stage::Up, session.own, session.theirs)); // ours to it was lost
        }
        if hello.echo != self.next {
            // Perhaps an old one: whoever says it must answer our challenge first.
            return answer(self.say(Stage::Calls, self.next, hello.nonce));
        }
        self.answered = Some(hello.nonce);
        if hello.stage == Stage::Calls {
            return answer(self.say(Stage::Knows, self.next, hello.nonce));
        }
        let own = std::mem::replace(&mut self.next, fresh);
        self.answered = None;
        let here = Side { rank: self.base.from, instance: self.base.from_instance, nonce: own };
        let there = Side { rank: hello.from, instance: hello.from_instance, nonce: hello.nonce };
        let signed = self.base.signs || hello.signs;
        let [out, into] = [(here, there), (there, here)].map(|(from, to)| Seal::new(key, from, to, signed));
        self.session = Some(Session { own, theirs: hello.nonce, index: hello.index, out, into });
        Heard { established: true, ..answer(self.say(Stage::Up, own, hello.nonce)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: JobKey = JobKey::new([3; 32]);

    fn end(rank: u32, signs: bool, nonce: u8) -> Meeting {
        let base = Hello {
            link: 0,
            stage: Stage::Calls,
            signs,
            job: 1,
            from: rank,
            to: 1 - rank,
            from_instance: u64::from(rank) + 10,
            to_instance: u64::from(1 - rank) + 10,
            index: rank + 20,
            nonce: [0; 16],
            echo: [0; 16],
        };
        Meeting::new(base, [nonce; 16])
    }

    fn understand_each_other(one: &Meeting, other: &Meeting) -> bool {
        let (Some(one), Some(other)) = (one.session(), other.session()) else { return false };
        let goes = |from: &Seal, to: &Seal| to.accepts(&[0; 8], b"frame", &from.proof(&[0; 8], b"frame"));
        goes(&one.out, &other.into) && goes(&other.out, &one.into)
    }

    #[test]
    fn four_hellos_make_a_session_and_a_repeated_one_is_answered_again() {
        let (mut a, mut b) = (end(0, false, 1), end(1, true, 2));
        let to_b = b.hear(&a.call(), [4; 16], &KEY).answer.expect("an answer");
        assert!(b.session().is_none(), "whoever called may have done so long ago");
        let knows = a.hear(&to_b, [3; 16], &KEY).answer.expect("an answer");
        assert!(a.session().is_none() && knows.stage == Stage::Knows);
        let up = b.hear(&knows, [4; 16], &KEY);
        assert!(up.established);
        for lost in [true, false] {
            let again = b.hear(&a.call(), [5; 16], &KEY);
            assert!(!again.established && again.answer == up.answer, "lost: {lost}");
        }
        let end = a.hear(&up.answer.expect("an answer"), [6; 16], &KEY);
        assert!(end.established && end.answer.is_none(), "nothing is left to say");
        assert!(understand_each_other(&a, &b) && a.session().is_some_and(|session| session.out.signs()));
        assert_eq!((a.session().unwrap().index, b.session().unwrap().index), (21, 20));
    }

    #[test]
    fn whoever_begins_anew_is_met_anew_and_old_hellos_bring_no_session_back() {
        let (mut a, mut b) = (end(0, false, 1), end(1, false, 2));
        let mut heard = vec![];
        let mut meet = |a: &mut Meeting, b: &mut Meeting, nonce: u8| {
            let mut said = Some(a.call());
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
            assert!(understand_each_other(a, b));
        };
        meet(&mut a, &mut b, 10);
        let mut again = end(0, false, 30);
        assert!(!understand_each_other(&again, &b));
        meet(&mut again, &mut b, 40);
        for hello in heard {
            let heard = b.hear(&hello, [99; 16], &KEY);
            assert!(!heard.established, "{hello:?}");
        }
        assert!(understand_each_other(&again, &b));
    }

    proptest! {
        /// Whatever is lost, doubled, late or sent again by others: once hellos go through, both have the same session, and
        /// silence follows.
        #[test]
        fn ends_meet_over_any_network(moves in prop::collection::vec((any::<u8>(), any::<u16>()), 0..60)) {
            let mut ends = [end(0, false, 1), end(1, false, 2)];
            let mut ever: [Vec<Hello>; 2] = [vec![], vec![]]; // to each
            let mut nonce = 2u8;
            for (what, which) in moves {
                let to = usize::from(what & 1);
                if what & 6 == 0 || ever[to].is_empty() {
                    ever[to].push(ends[1 - to].call());
                    continue;
                }
                let hello = ever[to][usize::from(which) % ever[to].len()];
                nonce += 1;
                ever[1 - to].extend(ends[to].hear(&hello, [nonce; 16], &KEY).answer);
            }
            let mut calls = 0;
            while !understand_each_other(&ends[0], &ends[1]) {
                calls += 1;
                prop_assert!(calls < 5, "they do not meet");
                // The one that does not know of the session calls.
                let caller = usize::from(ends[0].session().is_some() && calls % 2 == 0);
                let (mut said, mut to) = (Some(ends[caller].call()), 1 - caller);
                let mut said_so_far = 0;
                while let Some(hello) = said {
                    nonce += 1;
                    said_so_far += 1;
                    prop_assert!(said_so_far < 8, "no end to it");
                    said = ends[to].hear(&hello, [nonce; 16], &KEY).answer;
                    to = 1 - to;
                }
            }
        }
    }
}
