//! What the server does with what ranks say, without I/O.

use std::sync::Arc;

use towline_core::modex::Set;

use crate::channel::{Kind, PAYLOAD_MAX, reached};

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
}

/// The state of one job.
pub(super) struct Hub {
    ranks: Vec<Rank>,
    /// Ranks that have published.
    published: usize,
}

impl Hub {
    pub(super) fn new(size: u32) -> Self {
        Self { ranks: vec![Rank::default(); size as usize], published: 0 }
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

    /// A rank's process will take part in nothing further.
    pub(super) fn gone(&mut self, me: u32, out: &mut Vec<Note>) {
        let Some(rank) = self.ranks.get_mut(me as usize).filter(|rank| !rank.over) else { return };
        rank.over = true;
        let (payload, fence, unpublished) = (gone(me, rank.fence), rank.fence, rank.set.is_none());
        // Only those who wait for it need to know; others will be told when they come to wait.
        let waiting = |other: &Rank| other.connected && (unpublished || !reached(fence, other.fence));
        let others = (0..).zip(&self.ranks).filter(|(other, rank)| *other != me && waiting(rank));
        out.extend(others.map(|(to, _)| Note { to, kind: Kind::Gone, payload: Arc::clone(&payload) }));
    }

    pub(super) fn frame(&mut self, me: u32, kind: Kind, payload: &[u8], out: &mut Vec<Note>) -> Result<Said, String> {
        let to_me = |kind| Note { to: me, kind, payload: Arc::new([]) };
        match kind {
            Kind::Set => self.set(me, payload, out).map(|()| Said::Nothing),
            Kind::Fence => self.fence(me, payload, out).map(|()| Said::Nothing),
            Kind::Finish => {
                self.gone(me, out);
                out.push(to_me(Kind::Finish));
                Ok(Said::Finished)
            }
            Kind::Abort => {
                let (code, message) = payload.split_first_chunk().ok_or("an abort without a code")?;
                out.push(to_me(Kind::Abort));
                let message = String::from_utf8_lossy(message).into_owned();
                Ok(Said::Aborted { code: i32::from_le_bytes(*code), message })
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
        hub.gone(2, &mut out);
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
        hub.gone(2, &mut out);
        assert_eq!(kinds(&mut out), [(0, Kind::Gone)]);
        hub.gone(1, &mut out);
        assert_eq!(kinds(&mut out), [(0, Kind::Gone)]);
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
        ] {
            assert!(hub.frame(0, kind, &payload, &mut out).is_err(), "{kind:?}");
        }
        let aborted = Said::Aborted { code: 7, message: "disk full".into() };
        assert_eq!(hub.frame(0, Kind::Abort, b"\x07\0\0\0disk full", &mut out), Ok(aborted));
    }
}
