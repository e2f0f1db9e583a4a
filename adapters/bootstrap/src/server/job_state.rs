//! What the server does with what ranks say, without I/O.

use std::sync::Arc;

use towline_core::modex::Set;

use crate::protocol::channel::{DIED, Kind, PAYLOAD_MAX, WHOLE, reached};

/// Something to tell a rank, if it is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) to: u32,
    pub(super) kind: Kind,
    pub(super) payload: Arc<[u8]>,
}

/// What a rank's frame means for the launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Nothing,
    Finished,
    Aborted { code: i32, message: String },
}

#[derive(Clone, Default)]
struct Rank {
    /// Number of times that it has joined.
    incarnation: u32,
    connected: bool,
    /// It finished, or its process is known to be gone.
    over: bool,
    set: Option<Arc<[u8]>>,
    /// The last fence that it came to.
    fence: u32,
    /// Parts of it that it told the end of.
    parts: u32,
}

/// An end that ranks hear of when they ask.
struct End {
    rank: u32,
    /// Which of its incarnations: a later one has not ended.
    incarnation: u32,
    part: u32,
}

/// Ends that one answer tells of.
const ENDS_MAX: usize = (PAYLOAD_MAX - 4) / 8;
/// Parts of a rank, in all its incarnations.
const PARTS_MAX: u32 = 1 << 16;

/// The state of one job.
pub(super) struct Hub {
    ranks: Vec<Rank>,
    /// Ranks that have published.
    published: usize,
    /// In the order in which they came. Ranks ask for what is new to them; told at once, the end of a large job would be
    /// told by as many messages as it has pairs of ranks.
    ends: Vec<End>,
}

impl Hub {
    pub(super) fn new(size: u32) -> Self {
        Self { ranks: vec![Rank::default(); size as usize], published: 0, ends: Vec::new() }
    }

    pub(super) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn complete(&self) -> bool {
        self.published == self.ranks.len()
    }

    /// Lets an authenticated rank in.
    pub(super) fn join(&mut self, me: u32, out: &mut Vec<Note>) -> Result<(), String> {
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        if rank.connected {
            return Err(format!("rank {me} is connected already"));
        }
        (rank.connected, rank.over) = (true, false);
        rank.incarnation += 1;
        let welcome = [rank.incarnation.to_le_bytes(), rank.fence.to_le_bytes()].concat();
        out.push(Note { to: me, kind: Kind::Welcome, payload: welcome.into() });
        for (other, rank) in (0..).zip(&self.ranks) {
            if rank.over {
                out.push(Note { to: me, kind: Kind::Gone, payload: gone(other, rank.fence) });
            }
        }
        if self.complete() {
            let all = self.all_sets();
            out.extend(all.into_iter().map(|payload| Note { to: me, kind: Kind::Set, payload }));
        }
        Ok(())
    }

    /// A rank's connection closed. It may come back, until [`gone`](Self::gone).
    pub(super) fn left(&mut self, me: u32) {
        if let Some(rank) = self.ranks.get_mut(me as usize) {
            rank.connected = false;
        }
    }

    /// A rank will take part in nothing further: it finished, or its process `died`.
    pub(super) fn gone(&mut self, me: u32, died: bool, out: &mut Vec<Note>) {
        let Some(rank) = self.ranks.get_mut(me as usize).filter(|rank| !rank.over) else { return };
        rank.over = true;
        self.ends.push(End { rank: me, incarnation: rank.incarnation, part: if died { WHOLE | DIED } else { WHOLE } });
        let (payload, fence, unpublished) = (gone(me, rank.fence), rank.fence, rank.set.is_none());
        // Only those who wait for it need to know; others will be told when they come to wait.
        // One that was started again waits until all that are left have taken it back.
        let waiting =
            |other: &Rank| other.connected && (unpublished || !reached(fence, other.fence) || other.incarnation > 1);
        let others = (0..).zip(&self.ranks).filter(|(other, rank)| *other != me && waiting(rank));
        out.extend(others.map(|(to, _)| Note { to, kind: Kind::Gone, payload: Arc::clone(&payload) }));
    }

    /// A rank's process has ended, and another is started in its place: nobody who waits for it has to give up.
    pub(super) fn restarts(&mut self, me: u32) {
        let complete = self.complete();
        let Some(rank) = self.ranks.get_mut(me as usize) else { return };
        // Nobody has its set yet, and what it says leads nowhere.
        if !complete && rank.set.take().is_some() {
            self.published -= 1;
        }
        self.ends.push(End { rank: me, incarnation: rank.incarnation, part: WHOLE | DIED });
    }

    pub(super) fn frame(&mut self, me: u32, kind: Kind, payload: &[u8], out: &mut Vec<Note>) -> Result<Said, String> {
        let to_me = |kind| Note { to: me, kind, payload: Arc::new([]) };
        match kind {
            Kind::Set => self.set(me, payload, out).map(|()| Said::Nothing),
            Kind::Fence => self.fence(me, payload, out).map(|()| Said::Nothing),
            Kind::Finish => {
                self.gone(me, false, out);
                out.push(to_me(Kind::Finish));
                Ok(Said::Finished)
            }
            Kind::Abort => {
                let (code, message) = payload.split_first_chunk().ok_or("an abort without a code")?;
                out.push(to_me(Kind::Abort));
                let message = String::from_utf8_lossy(message).into_owned();
                Ok(Said::Aborted { code: i32::from_le_bytes(*code), message })
            }
            Kind::Part => self.part(me, payload).map(|()| Said::Nothing),
            Kind::Ends => {
                let from = payload.try_into().map(u32::from_le_bytes).map_err(|_| "a question without a number")?;
                out.push(Note { to: me, kind: Kind::Ends, payload: self.ends_from(from) });
                Ok(Said::Nothing)
            }
            Kind::Welcome | Kind::Refuse | Kind::Gone => Err(format!("a rank says {kind:?}, which servers say")),
        }
    }

    fn set(&mut self, me: u32, payload: &[u8], out: &mut Vec<Note>) -> Result<(), String> {
        let set = Set::parse(payload).map_err(|why| why.to_string())?;
        let was_complete = self.complete();
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        if set.rank() != me || set.edition().incarnation != rank.incarnation {
            return Err("a set names another rank or incarnation than the one that sends it".into());
        }
        let payload: Arc<[u8]> = payload.into();
        if rank.set.replace(Arc::clone(&payload)).is_none() {
            self.published += 1;
        }
        if was_complete {
            self.tell_others(me, Kind::Set, &payload, out);
        } else if self.complete() {
            let all = self.all_sets();
            for to in 0..self.size() {
                out.extend(all.iter().map(|payload| Note { to, kind: Kind::Set, payload: Arc::clone(payload) }));
            }
        }
        Ok(())
    }

    fn fence(&mut self, me: u32, payload: &[u8], out: &mut Vec<Note>) -> Result<(), String> {
        let number = payload.try_into().map(u32::from_le_bytes).map_err(|_| "a fence without a number")?;
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        if number != rank.fence.wrapping_add(1) {
            return Err(format!("fence {number} after fence {}", rank.fence));
        }
        rank.fence = number;
        if self.ranks.iter().all(|rank| reached(rank.fence, number)) {
            let payload: Arc<[u8]> = payload.into();
            out.extend((0..self.size()).map(|to| Note { to, kind: Kind::Fence, payload: Arc::clone(&payload) }));
        } else if let Some((other, rank)) =
            (0..).zip(&self.ranks).find(|(_, rank)| rank.over && !reached(rank.fence, number))
        {
            out.push(Note { to: me, kind: Kind::Gone, payload: gone(other, rank.fence) });
        }
        Ok(())
    }

    fn part(&mut self, me: u32, payload: &[u8]) -> Result<(), String> {
        let part = payload.try_into().map(u32::from_le_bytes).map_err(|_| "a part without a number")?;
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        // What is kept of a rank is bounded.
        if part & !DIED == WHOLE || rank.parts >= PARTS_MAX {
            return Err(format!("part {part} of rank {me} has ended, after {} others", rank.parts));
        }
        rank.parts += 1;
        self.ends.push(End { rank: me, incarnation: rank.incarnation, part });
        Ok(())
    }

    /// What there is to tell from end number `from` on, if it fits; what does not is for the next question.
    fn ends_from(&self, from: u32) -> Arc<[u8]> {
        let new = self.ends.get(from as usize..).unwrap_or_default();
        let new = &new[..new.len().min(ENDS_MAX)];
        let next = self.ends.len().min(from as usize) + new.len();
        let mut payload = (next as u32).to_le_bytes().to_vec();
        let incarnation = |rank: u32| self.ranks.get(rank as usize).map(|rank| rank.incarnation);
        for end in new.iter().filter(|end| incarnation(end.rank) == Some(end.incarnation)) {
            payload.extend_from_slice(&end.rank.to_le_bytes());
            payload.extend_from_slice(&end.part.to_le_bytes());
        }
        payload.into()
    }

    /// All sets, as many in one payload as fit: shared by all ranks, which skip their own.
    fn all_sets(&self) -> Vec<Arc<[u8]>> {
        let mut payloads = Vec::new();
        let mut payload = Vec::new();
        for set in self.ranks.iter().filter_map(|rank| rank.set.as_ref()) {
            if payload.len() + set.len() > PAYLOAD_MAX {
                payloads.push(std::mem::take(&mut payload).into());
            }
            payload.extend_from_slice(set);
        }
        payloads.push(payload.into());
        payloads
    }

    fn tell_others(&self, me: u32, kind: Kind, payload: &Arc<[u8]>, out: &mut Vec<Note>) {
        let others = (0..).zip(&self.ranks).filter(|(other, rank)| *other != me && rank.connected);
        out.extend(others.map(|(to, _)| Note { to, kind, payload: Arc::clone(payload) }));
    }
}

fn gone(rank: u32, fence: u32) -> Arc<[u8]> {
    [rank.to_le_bytes(), fence.to_le_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_core::modex::{Edition, SetWriter};

    fn set(rank: u32, incarnation: u32, revision: u32) -> Vec<u8> {
        let mut bytes = [0; Set::HEADER];
        SetWriter::new(&mut bytes, rank, Edition { incarnation, revision }).unwrap().finish();
        bytes.to_vec()
    }

    fn kinds(out: &mut Vec<Note>) -> Vec<(u32, Kind)> {
        out.drain(..).map(|note| (note.to, note.kind)).collect()
    }

    #[test]
    fn sets_go_out_when_all_are_there_and_later_ones_at_once() {
        let (mut hub, mut out) = (Hub::new(2), Vec::new());
        hub.join(0, &mut out).unwrap();
        hub.join(1, &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Welcome), (1, Kind::Welcome)]);
        hub.frame(0, Kind::Set, &set(0, 1, 1), &mut out).unwrap();
        hub.frame(0, Kind::Set, &set(0, 1, 2), &mut out).unwrap();
        assert_eq!(kinds(&mut out), []);
        hub.frame(1, Kind::Set, &set(1, 1, 1), &mut out).unwrap();
        assert_eq!(out[1].payload[..], [set(0, 1, 2), set(1, 1, 1)].concat());
        assert_eq!(kinds(&mut out), [(0, Kind::Set), (1, Kind::Set)]);
        hub.frame(0, Kind::Set, &set(0, 1, 3), &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(1, Kind::Set)]);
    }

    #[test]
    fn x7_a_restarted_rank_gets_all_sets_and_a_new_incarnation() {
        let (mut hub, mut out) = (Hub::new(2), Vec::new());
        for rank in [0, 1] {
            hub.join(rank, &mut out).unwrap();
            hub.frame(rank, Kind::Set, &set(rank, 1, 1), &mut out).unwrap();
        }
        assert!(hub.join(1, &mut out).is_err());
        hub.left(1);
        out.clear();
        hub.join(1, &mut out).unwrap();
        assert_eq!(out[0].payload[..4], [2, 0, 0, 0]);
        assert_eq!(kinds(&mut out), [(1, Kind::Welcome), (1, Kind::Set)]);
        assert!(hub.frame(1, Kind::Set, &set(1, 1, 9), &mut out).is_err());
        hub.frame(1, Kind::Set, &set(1, 2, 1), &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Set)]);
    }

    #[test]
    fn fences_open_when_all_came_and_those_who_wait_hear_of_the_dead() {
        let (mut hub, mut out) = (Hub::new(3), Vec::new());
        for rank in 0..3 {
            hub.join(rank, &mut out).unwrap();
        }
        out.clear();
        hub.frame(0, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        hub.frame(1, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        assert!(hub.frame(1, Kind::Fence, &[3, 0, 0, 0], &mut out).is_err());
        assert_eq!(kinds(&mut out), []);
        hub.frame(2, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        assert_eq!(kinds(&mut out), [0, 1, 2].map(|rank| (rank, Kind::Fence)));
        assert_eq!(hub.frame(2, Kind::Finish, &[], &mut out), Ok(Said::Finished));
        hub.gone(2, true, &mut out);
        // Rank 2 has published nothing, so all need to know.
        assert_eq!(out[0].payload[..], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(kinds(&mut out), [(0, Kind::Gone), (1, Kind::Gone), (2, Kind::Finish)]);
        hub.frame(0, Kind::Fence, &[2, 0, 0, 0], &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Gone)]);
    }

    #[test]
    fn fences_open_also_where_their_number_wraps() {
        let (mut hub, mut out) = (Hub::new(2), Vec::new());
        for rank in 0..2 {
            hub.join(rank, &mut out).unwrap();
        }
        hub.ranks.iter_mut().for_each(|rank| rank.fence = u32::MAX);
        out.clear();
        hub.frame(0, Kind::Fence, &[0; 4], &mut out).unwrap();
        assert_eq!(kinds(&mut out), []);
        hub.frame(1, Kind::Fence, &[0; 4], &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Fence), (1, Kind::Fence)]);
    }

    #[test]
    fn the_end_of_a_rank_that_nobody_waits_for_is_not_announced() {
        let (mut hub, mut out) = (Hub::new(3), Vec::new());
        for rank in 0..3 {
            hub.join(rank, &mut out).unwrap();
            hub.frame(rank, Kind::Set, &set(rank, 1, 1), &mut out).unwrap();
        }
        hub.frame(0, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        out.clear();
        hub.gone(2, true, &mut out);
        assert_eq!(kinds(&mut out), [(0, Kind::Gone)]);
        hub.gone(1, true, &mut out);
        assert_eq!(kinds(&mut out), [(0, Kind::Gone)]);
    }

    #[test]
    fn ends_are_told_to_those_who_ask_once_and_not_of_ranks_that_are_back() {
        let (mut hub, mut out) = (Hub::new(3), Vec::new());
        for rank in 0..3 {
            hub.join(rank, &mut out).unwrap();
        }
        let ask = |hub: &mut Hub, from: u32| {
            let mut out = Vec::new();
            hub.frame(0, Kind::Ends, &from.to_le_bytes(), &mut out).unwrap();
            assert_eq!((out.len(), out[0].to, out[0].kind), (1, 0, Kind::Ends));
            out[0].payload.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(ask(&mut hub, 0), [0]);
        assert_eq!(ask(&mut hub, 7), [0], "one that is told to have heard more than there is");
        out.clear();
        hub.frame(1, Kind::Part, &[5, 0, 0, 0], &mut out).unwrap();
        assert_eq!(kinds(&mut out), []);
        assert_eq!(ask(&mut hub, 0), [1, 1, 5]);
        hub.frame(1, Kind::Finish, &[], &mut out).unwrap();
        hub.gone(2, true, &mut out);
        assert_eq!(ask(&mut hub, 1), [3, 1, WHOLE, 2, WHOLE | DIED]);
        assert_eq!(ask(&mut hub, 3), [3]);
        hub.left(1);
        hub.join(1, &mut out).unwrap();
        assert_eq!(ask(&mut hub, 0), [3, 2, WHOLE | DIED]);
    }

    #[test]
    fn ends_that_do_not_fit_one_payload_are_told_in_several() {
        let (mut hub, mut out) = (Hub::new(2), Vec::new());
        hub.join(1, &mut out).unwrap();
        for part in 0..PARTS_MAX {
            hub.frame(1, Kind::Part, &part.to_le_bytes(), &mut out).unwrap();
        }
        assert!(hub.frame(1, Kind::Part, &[0; 4], &mut out).is_err(), "memory of a rank without bound");
        hub.ends.extend((0..ENDS_MAX as u32).map(|part| End { rank: 1, incarnation: 1, part }));
        let first = hub.ends_from(0);
        assert_eq!(first.len(), 4 + 8 * ENDS_MAX);
        assert_eq!(first[..4], (ENDS_MAX as u32).to_le_bytes());
        assert_eq!(hub.ends_from(ENDS_MAX as u32).len(), 4 + 8 * PARTS_MAX as usize);
    }

    #[test]
    fn sets_that_do_not_fit_one_payload_go_in_several() {
        let (mut hub, mut out) = (Hub::new(3), Vec::new());
        let v = towline_core::modex::Version::new(1, 0, 0);
        let component = towline_core::modex::Component { mca: v, kind: "k", kind_version: v, name: "n", version: v };
        for rank in 0..3 {
            hub.join(rank, &mut out).unwrap();
            out.clear();
            let mut bytes = vec![0; PAYLOAD_MAX / 2];
            let edition = Edition { incarnation: 1, revision: 1 };
            let mut writer = SetWriter::new(&mut bytes, rank, edition).unwrap();
            let data = vec![0; PAYLOAD_MAX / 2 - Set::HEADER - Set::ENTRY - 2];
            writer.entry(&component, 1, &data).unwrap();
            assert_eq!(writer.finish(), bytes.len());
            hub.frame(rank, Kind::Set, &bytes, &mut out).unwrap();
        }
        assert_eq!(kinds(&mut out), [0, 0, 1, 1, 2, 2].map(|rank| (rank, Kind::Set)));
    }

    #[test]
    fn what_only_a_foreign_program_would_say_is_refused() {
        let (mut hub, mut out) = (Hub::new(2), Vec::new());
        hub.join(0, &mut out).unwrap();
        for (kind, payload) in [
            (Kind::Welcome, vec![]),
            (Kind::Gone, vec![0; 8]),
            (Kind::Refuse, vec![]),
            (Kind::Set, b"noise".to_vec()),
            (Kind::Set, set(1, 1, 1)),
            (Kind::Set, set(0, 2, 1)),
            (Kind::Fence, vec![1]),
            (Kind::Abort, vec![1, 2]),
            (Kind::Part, vec![1]),
            (Kind::Part, vec![255; 4]),
            (Kind::Ends, vec![0; 8]),
        ] {
            assert!(hub.frame(0, kind, &payload, &mut out).is_err(), "{kind:?}");
        }
        let aborted = Said::Aborted { code: 7, message: "disk full".into() };
        assert_eq!(hub.frame(0, Kind::Abort, b"\x07\0\0\0disk full", &mut out), Ok(aborted));
    }
}
