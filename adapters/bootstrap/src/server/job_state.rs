//! The state of a job, and how frames from ranks change it, without I/O.

use std::sync::Arc;

use towline_core::modex::Set;

use crate::protocol::channel::{DIED, Kind, PAYLOAD_MAX, WHOLE_RANK, reached};
use crate::report::{Report, Unmatched, UnmatchedPolicy};

/// A frame for a rank, if it is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(super) to: u32,
    pub(super) kind: Kind,
    pub(super) payload: Arc<[u8]>,
}

/// The effect of a rank's frame on the launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Nothing,
    Finished,
    Aborted {
        code: i32,
        message: String,
    },
    Warned {
        text: String,
    },
    /// An operation of the rank has failed because it lost this one.
    LostPeer {
        peer: u32,
    },
    Failing {
        panic: bool,
        text: String,
    },
    Reported {
        question: u32,
        report: Box<Report>,
    },
    Unmatched(Unmatched, UnmatchedPolicy),
}

#[derive(Clone, Default)]
struct Rank {
    /// How often it has joined.
    incarnation: u32,
    connected: bool,
    /// It has finished, or its process has ended.
    ended: bool,
    set: Option<Arc<[u8]>>,
    /// The last fence that it reached.
    fence: u32,
    /// Number of parts of which it has reported the end.
    parts: u32,
}

/// An end of a rank or part, which ranks learn of when they ask.
struct End {
    rank: u32,
    /// The incarnation that has ended. A later one has not.
    incarnation: u32,
    part: u32,
}

/// Maximum number of ends in one answer.
const ENDS_MAX: usize = (PAYLOAD_MAX - 4) / 8;
/// Maximum number of parts of a rank whose end is kept, in all its incarnations.
const PARTS_MAX: u32 = 1 << 16;

/// The state of one job.
pub(crate) struct JobState {
    ranks: Vec<Rank>,
    /// Number of ranks that have published.
    published: usize,
    /// In order of arrival. Ranks ask for new ones. If ends were sent at once, the end of a large job would take as
    /// many messages as it has pairs of ranks.
    ends: Vec<End>,
    /// Whether a rank has sent a warning.
    warned: bool,
}

impl JobState {
    pub(super) fn new(size: u32) -> Self {
        Self { ranks: vec![Rank::default(); size as usize], published: 0, ends: Vec::new(), warned: false }
    }

    pub(super) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn complete(&self) -> bool {
        self.published == self.ranks.len()
    }

    /// Accepts an authenticated rank.
    pub(super) fn join(&mut self, me: u32, out: &mut Vec<Message>) -> Result<(), String> {
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        if rank.connected {
            return Err(format!(
                "rank {me} is connected already: a rank is one process, and joins once. A program that a rank starts must not be a \
                 rank itself: unset TOWLINE_RANK, TOWLINE_SIZE, TOWLINE_ROOT, TOWLINE_JOB and TOWLINE_KEY for it"
            ));
        }
        (rank.connected, rank.ended) = (true, false);
        rank.incarnation += 1;
        let welcome = [rank.incarnation.to_le_bytes(), rank.fence.to_le_bytes()].concat();
        out.push(Message { to: me, kind: Kind::Welcome, payload: welcome.into() });
        for (other, rank) in (0..).zip(&self.ranks) {
            if rank.ended {
                out.push(Message { to: me, kind: Kind::Ended, payload: encode_end(other, rank.fence) });
            }
        }
        if self.complete() {
            let all = self.encode_all_sets();
            out.extend(all.into_iter().map(|payload| Message { to: me, kind: Kind::Set, payload }));
        }
        Ok(())
    }

    /// A rank's connection has closed. The rank may join again until [`rank_ended`](Self::rank_ended).
    pub(super) fn disconnected(&mut self, me: u32) {
        if let Some(rank) = self.ranks.get_mut(me as usize) {
            rank.connected = false;
        }
    }

    /// A rank takes no further part in the job: it has finished, or its process has `died`.
    pub(super) fn rank_ended(&mut self, me: u32, died: bool, out: &mut Vec<Message>) {
        let Some(rank) = self.ranks.get_mut(me as usize).filter(|rank| !rank.ended) else { return };
        rank.ended = true;
        self.ends.push(End {
            rank: me,
            incarnation: rank.incarnation,
            part: if died { WHOLE_RANK | DIED } else { WHOLE_RANK },
        });
        let (payload, fence, unpublished) = (encode_end(me, rank.fence), rank.fence, rank.set.is_none());
        // Only ranks that wait for the ended rank get the message now. Other ranks get it when they begin to wait. A
        // rank that was restarted waits until all remaining ranks have accepted it again.
        let waiting =
            |other: &Rank| other.connected && (unpublished || !reached(fence, other.fence) || other.incarnation > 1);
        let others = (0..).zip(&self.ranks).filter(|(other, rank)| *other != me && waiting(rank));
        out.extend(others.map(|(to, _)| Message { to, kind: Kind::Ended, payload: Arc::clone(&payload) }));
    }

    /// A rank's process has ended, and a new one is started. Ranks that wait for it go on waiting.
    pub(super) fn rank_restarts(&mut self, me: u32) {
        let complete = self.complete();
        let Some(rank) = self.ranks.get_mut(me as usize) else { return };
        // No rank has received its publications yet, and the addresses in them are no longer valid.
        if !complete && rank.set.take().is_some() {
            self.published -= 1;
        }
        self.ends.push(End { rank: me, incarnation: rank.incarnation, part: WHOLE_RANK | DIED });
    }

    pub(super) fn frame(
        &mut self,
        me: u32,
        kind: Kind,
        payload: &[u8],
        out: &mut Vec<Message>,
    ) -> Result<Effect, String> {
        let to_me = |kind| Message { to: me, kind, payload: Arc::new([]) };
        match kind {
            Kind::Set => self.set(me, payload, out).map(|()| Effect::Nothing),
            Kind::Fence => self.fence(me, payload, out).map(|()| Effect::Nothing),
            Kind::Finish => {
                self.rank_ended(me, false, out);
                out.push(to_me(Kind::Finish));
                Ok(Effect::Finished)
            }
            Kind::Abort => {
                let (code, message) = payload.split_first_chunk().ok_or("an abort has no code")?;
                out.push(to_me(Kind::Abort));
                let message = String::from_utf8_lossy(message).into_owned();
                Ok(Effect::Aborted { code: i32::from_le_bytes(*code), message })
            }
            Kind::Warning if self.warned => Ok(Effect::Nothing),
            Kind::Warning => {
                self.warned = true;
                Ok(Effect::Warned { text: String::from_utf8_lossy(payload).into_owned() })
            }
            Kind::PartEnded => self.part(me, payload).map(|()| Effect::Nothing),
            Kind::Left | Kind::Leaving => {
                let part: [u8; 4] = payload.try_into().map_err(|_| "a rank that leaves names no part")?;
                let payload: Arc<[u8]> = [me.to_le_bytes(), part].concat().into();
                self.tell_others(me, kind, &payload, out);
                Ok(Effect::Nothing)
            }
            Kind::LostPeer => {
                let peer = payload.try_into().map(u32::from_le_bytes);
                let peer = peer.ok().filter(|peer| *peer < self.size()).ok_or("a lost peer is no rank of the job")?;
                Ok(Effect::LostPeer { peer })
            }
            Kind::Failing => {
                let (panic, text) = payload.split_first_chunk().ok_or("a failure has no kind")?;
                let text = String::from_utf8_lossy(text).into_owned();
                Ok(Effect::Failing { panic: u32::from_le_bytes(*panic) != 0, text })
            }
            Kind::Ends => {
                let from =
                    payload.try_into().map(u32::from_le_bytes).map_err(|_| "a request for ends has no number")?;
                out.push(Message { to: me, kind: Kind::Ends, payload: self.ends_from(from) });
                Ok(Effect::Nothing)
            }
            Kind::Report => {
                let (question, report) = payload.split_first_chunk().ok_or("a report has no number")?;
                let of_me = |report: &Report| report.rank == me;
                let report = Report::decode(report).filter(of_me).ok_or("a report is malformed")?;
                Ok(Effect::Reported { question: u32::from_le_bytes(*question), report: Box::new(report) })
            }
            Kind::Unmatched => {
                let decoded = Unmatched::decode(payload).ok_or("the count of unmatched messages is malformed")?;
                Ok(Effect::Unmatched(decoded.1, decoded.0))
            }
            Kind::Welcome | Kind::Refuse | Kind::Ended => {
                Err(format!("a rank sent a frame of kind {kind:?}, which only servers send"))
            }
        }
    }

    /// Asks all connected ranks that have not finished for their reports.
    pub(super) fn ask_for_reports(&self, question: u32, out: &mut Vec<Message>) {
        let payload: Arc<[u8]> = question.to_le_bytes().into();
        let asked = (0..).zip(&self.ranks).filter(|(_, rank)| rank.connected && !rank.ended);
        out.extend(asked.map(|(to, _)| Message { to, kind: Kind::Report, payload: Arc::clone(&payload) }));
    }

    fn set(&mut self, me: u32, payload: &[u8], out: &mut Vec<Message>) -> Result<(), String> {
        let set = Set::parse(payload).map_err(|why| why.to_string())?;
        let was_complete = self.complete();
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        if set.rank() != me || set.stamp().incarnation != rank.incarnation {
            return Err("publications name another rank or incarnation than their sender's".into());
        }
        let payload: Arc<[u8]> = payload.into();
        if rank.set.replace(Arc::clone(&payload)).is_none() {
            self.published += 1;
        }
        if was_complete {
            self.tell_others(me, Kind::Set, &payload, out);
        } else if self.complete() {
            let all = self.encode_all_sets();
            for to in 0..self.size() {
                out.extend(all.iter().map(|payload| Message { to, kind: Kind::Set, payload: Arc::clone(payload) }));
            }
        }
        Ok(())
    }

    fn fence(&mut self, me: u32, payload: &[u8], out: &mut Vec<Message>) -> Result<(), String> {
        let number = payload.try_into().map(u32::from_le_bytes).map_err(|_| "a fence frame has no number")?;
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        if number != rank.fence.wrapping_add(1) {
            return Err(format!("the rank reached fence {number} after fence {}", rank.fence));
        }
        rank.fence = number;
        if self.ranks.iter().all(|rank| reached(rank.fence, number)) {
            let payload: Arc<[u8]> = payload.into();
            out.extend((0..self.size()).map(|to| Message { to, kind: Kind::Fence, payload: Arc::clone(&payload) }));
        } else if let Some((other, rank)) =
            (0..).zip(&self.ranks).find(|(_, rank)| rank.ended && !reached(rank.fence, number))
        {
            out.push(Message { to: me, kind: Kind::Ended, payload: encode_end(other, rank.fence) });
        }
        Ok(())
    }

    fn part(&mut self, me: u32, payload: &[u8]) -> Result<(), String> {
        let part =
            payload.try_into().map(u32::from_le_bytes).map_err(|_| "a frame for the end of a part has no number")?;
        let rank = self.ranks.get_mut(me as usize).ok_or("the job has no such rank")?;
        // Bounds the memory that one rank can occupy.
        if part & !DIED == WHOLE_RANK || rank.parts >= PARTS_MAX {
            return Err(format!("rank {me} reported the end of part {part}, after {} others", rank.parts));
        }
        rank.parts += 1;
        self.ends.push(End { rank: me, incarnation: rank.incarnation, part });
        Ok(())
    }

    /// The ends from number `from` on, as many as fit in a frame. The rank asks again for the rest.
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

    /// The publications of all ranks, as many in one payload as fit. All ranks get the same payloads and skip their own
    /// set.
    fn encode_all_sets(&self) -> Vec<Arc<[u8]>> {
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

    fn tell_others(&self, me: u32, kind: Kind, payload: &Arc<[u8]>, out: &mut Vec<Message>) {
        let others = (0..).zip(&self.ranks).filter(|(other, rank)| *other != me && rank.connected);
        out.extend(others.map(|(to, _)| Message { to, kind, payload: Arc::clone(payload) }));
    }
}

fn encode_end(rank: u32, fence: u32) -> Arc<[u8]> {
    [rank.to_le_bytes(), fence.to_le_bytes()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use towline_core::modex::{SetWriter, Stamp};

    fn set(rank: u32, incarnation: u32, revision: u32) -> Vec<u8> {
        let mut bytes = [0; Set::HEADER];
        SetWriter::new(&mut bytes, rank, Stamp { incarnation, revision }).unwrap().finish();
        bytes.to_vec()
    }

    fn kinds(out: &mut Vec<Message>) -> Vec<(u32, Kind)> {
        out.drain(..).map(|note| (note.to, note.kind)).collect()
    }

    #[test]
    fn sets_are_sent_when_all_have_arrived_and_later_ones_at_once() {
        let (mut job, mut out) = (JobState::new(2), Vec::new());
        job.join(0, &mut out).unwrap();
        job.join(1, &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Welcome), (1, Kind::Welcome)]);
        job.frame(0, Kind::Set, &set(0, 1, 1), &mut out).unwrap();
        job.frame(0, Kind::Set, &set(0, 1, 2), &mut out).unwrap();
        assert_eq!(kinds(&mut out), []);
        job.frame(1, Kind::Set, &set(1, 1, 1), &mut out).unwrap();
        assert_eq!(out[1].payload[..], [set(0, 1, 2), set(1, 1, 1)].concat());
        assert_eq!(kinds(&mut out), [(0, Kind::Set), (1, Kind::Set)]);
        job.frame(0, Kind::Set, &set(0, 1, 3), &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(1, Kind::Set)]);
    }

    #[test]
    fn x7_a_restarted_rank_gets_all_sets_and_a_new_incarnation() {
        let (mut job, mut out) = (JobState::new(2), Vec::new());
        for rank in [0, 1] {
            job.join(rank, &mut out).unwrap();
            job.frame(rank, Kind::Set, &set(rank, 1, 1), &mut out).unwrap();
        }
        assert!(job.join(1, &mut out).is_err());
        job.disconnected(1);
        out.clear();
        job.join(1, &mut out).unwrap();
        assert_eq!(out[0].payload[..4], [2, 0, 0, 0]);
        assert_eq!(kinds(&mut out), [(1, Kind::Welcome), (1, Kind::Set)]);
        assert!(job.frame(1, Kind::Set, &set(1, 1, 9), &mut out).is_err());
        job.frame(1, Kind::Set, &set(1, 2, 1), &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Set)]);
    }

    #[test]
    fn fences_open_when_all_ranks_came_and_waiting_ranks_learn_of_ended_ones() {
        let (mut job, mut out) = (JobState::new(3), Vec::new());
        for rank in 0..3 {
            job.join(rank, &mut out).unwrap();
        }
        out.clear();
        job.frame(0, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        job.frame(1, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        assert!(job.frame(1, Kind::Fence, &[3, 0, 0, 0], &mut out).is_err());
        assert_eq!(kinds(&mut out), []);
        job.frame(2, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        assert_eq!(kinds(&mut out), [0, 1, 2].map(|rank| (rank, Kind::Fence)));
        assert_eq!(job.frame(2, Kind::Finish, &[], &mut out), Ok(Effect::Finished));
        job.rank_ended(2, true, &mut out);
        // Rank 2 has published nothing, so all ranks wait for it.
        assert_eq!(out[0].payload[..], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(kinds(&mut out), [(0, Kind::Ended), (1, Kind::Ended), (2, Kind::Finish)]);
        job.frame(0, Kind::Fence, &[2, 0, 0, 0], &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Ended)]);
    }

    #[test]
    fn fences_open_also_where_their_number_wraps() {
        let (mut job, mut out) = (JobState::new(2), Vec::new());
        for rank in 0..2 {
            job.join(rank, &mut out).unwrap();
        }
        job.ranks.iter_mut().for_each(|rank| rank.fence = u32::MAX);
        out.clear();
        job.frame(0, Kind::Fence, &[0; 4], &mut out).unwrap();
        assert_eq!(kinds(&mut out), []);
        job.frame(1, Kind::Fence, &[0; 4], &mut out).unwrap();
        assert_eq!(kinds(&mut out), [(0, Kind::Fence), (1, Kind::Fence)]);
    }

    #[test]
    fn the_end_of_a_rank_is_sent_only_to_waiting_ranks() {
        let (mut job, mut out) = (JobState::new(3), Vec::new());
        for rank in 0..3 {
            job.join(rank, &mut out).unwrap();
            job.frame(rank, Kind::Set, &set(rank, 1, 1), &mut out).unwrap();
        }
        job.frame(0, Kind::Fence, &[1, 0, 0, 0], &mut out).unwrap();
        out.clear();
        job.rank_ended(2, true, &mut out);
        assert_eq!(kinds(&mut out), [(0, Kind::Ended)]);
        job.rank_ended(1, true, &mut out);
        assert_eq!(kinds(&mut out), [(0, Kind::Ended)]);
    }

    #[test]
    fn ends_are_reported_once_to_ranks_that_ask_and_not_of_restarted_ranks() {
        let (mut job, mut out) = (JobState::new(3), Vec::new());
        for rank in 0..3 {
            job.join(rank, &mut out).unwrap();
        }
        let ask = |job: &mut JobState, from: u32| {
            let mut out = Vec::new();
            job.frame(0, Kind::Ends, &from.to_le_bytes(), &mut out).unwrap();
            assert_eq!((out.len(), out[0].to, out[0].kind), (1, 0, Kind::Ends));
            out[0].payload.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(ask(&mut job, 0), [0]);
        assert_eq!(ask(&mut job, 7), [0], "one that is told to have heard more than there is");
        out.clear();
        job.frame(1, Kind::PartEnded, &[5, 0, 0, 0], &mut out).unwrap();
        assert_eq!(kinds(&mut out), []);
        assert_eq!(ask(&mut job, 0), [1, 1, 5]);
        job.frame(1, Kind::Finish, &[], &mut out).unwrap();
        job.rank_ended(2, true, &mut out);
        assert_eq!(ask(&mut job, 1), [3, 1, WHOLE_RANK, 2, WHOLE_RANK | DIED]);
        assert_eq!(ask(&mut job, 3), [3]);
        job.disconnected(1);
        job.join(1, &mut out).unwrap();
        assert_eq!(ask(&mut job, 0), [3, 2, WHOLE_RANK | DIED]);
    }

    #[test]
    fn a_rank_that_leaves_early_is_reported_to_all_others_at_once_and_failures_to_the_launcher() {
        let (mut job, mut out) = (JobState::new(3), Vec::new());
        for rank in 0..3 {
            job.join(rank, &mut out).unwrap();
        }
        out.clear();
        assert_eq!(job.frame(1, Kind::Left, &WHOLE_RANK.to_le_bytes(), &mut out), Ok(Effect::Nothing));
        assert_eq!(out[0].payload[..], [1u32.to_le_bytes(), WHOLE_RANK.to_le_bytes()].concat());
        assert_eq!(kinds(&mut out), [(0, Kind::Left), (2, Kind::Left)]);
        assert_eq!(job.frame(0, Kind::LostPeer, &[1, 0, 0, 0], &mut out), Ok(Effect::LostPeer { peer: 1 }));
        let failing = Effect::Failing { panic: true, text: "no disk".into() };
        assert_eq!(job.frame(0, Kind::Failing, b"\x01\0\0\0no disk", &mut out), Ok(failing));
        assert_eq!(kinds(&mut out), []);
    }

    #[test]
    fn ends_that_do_not_fit_one_payload_are_reported_in_several() {
        let (mut job, mut out) = (JobState::new(2), Vec::new());
        job.join(1, &mut out).unwrap();
        for part in 0..PARTS_MAX {
            job.frame(1, Kind::PartEnded, &part.to_le_bytes(), &mut out).unwrap();
        }
        assert!(job.frame(1, Kind::PartEnded, &[0; 4], &mut out).is_err(), "memory of a rank without bound");
        job.ends.extend((0..ENDS_MAX as u32).map(|part| End { rank: 1, incarnation: 1, part }));
        let first = job.ends_from(0);
        assert_eq!(first.len(), 4 + 8 * ENDS_MAX);
        assert_eq!(first[..4], (ENDS_MAX as u32).to_le_bytes());
        assert_eq!(job.ends_from(ENDS_MAX as u32).len(), 4 + 8 * PARTS_MAX as usize);
    }

    #[test]
    fn sets_that_do_not_fit_one_payload_go_in_several() {
        let (mut job, mut out) = (JobState::new(3), Vec::new());
        let v = towline_core::modex::Version::new(1, 0, 0);
        let component = towline_core::modex::Component { mca: v, kind: "k", kind_version: v, name: "n", version: v };
        for rank in 0..3 {
            job.join(rank, &mut out).unwrap();
            out.clear();
            let mut bytes = vec![0; PAYLOAD_MAX / 2];
            let stamp = Stamp { incarnation: 1, revision: 1 };
            let mut writer = SetWriter::new(&mut bytes, rank, stamp).unwrap();
            let data = vec![0; PAYLOAD_MAX / 2 - Set::HEADER - Set::ENTRY - 2];
            writer.entry(&component, 1, &data).unwrap();
            assert_eq!(writer.finish(), bytes.len());
            job.frame(rank, Kind::Set, &bytes, &mut out).unwrap();
        }
        assert_eq!(kinds(&mut out), [0, 0, 1, 1, 2, 2].map(|rank| (rank, Kind::Set)));
    }

    #[test]
    fn only_the_first_warning_of_a_job_is_passed_on() {
        let (mut job, mut out) = (JobState::new(2), Vec::new());
        let warned = Effect::Warned { text: "no room".into() };
        assert_eq!(job.frame(1, Kind::Warning, b"no room", &mut out), Ok(warned));
        for rank in [0, 1] {
            assert_eq!(job.frame(rank, Kind::Warning, b"no room either", &mut out), Ok(Effect::Nothing));
        }
        assert!(out.is_empty());
    }

    #[test]
    fn frames_that_break_the_protocol_are_refused() {
        let (mut job, mut out) = (JobState::new(2), Vec::new());
        job.join(0, &mut out).unwrap();
        for (kind, payload) in [
            (Kind::Welcome, vec![]),
            (Kind::Ended, vec![0; 8]),
            (Kind::Refuse, vec![]),
            (Kind::Set, b"noise".to_vec()),
            (Kind::Set, set(1, 1, 1)),
            (Kind::Set, set(0, 2, 1)),
            (Kind::Fence, vec![1]),
            (Kind::Abort, vec![1, 2]),
            (Kind::PartEnded, vec![1]),
            (Kind::PartEnded, vec![255; 4]),
            (Kind::Ends, vec![0; 8]),
            (Kind::Left, vec![1]),
            (Kind::Leaving, vec![1]),
            (Kind::LostPeer, vec![2, 0, 0, 0]),
            (Kind::Failing, vec![1]),
            (Kind::Report, vec![1, 0, 0]),
            (Kind::Report, vec![255; 40]),
            (Kind::Unmatched, vec![255; 9]),
        ] {
            assert!(job.frame(0, kind, &payload, &mut out).is_err(), "{kind:?}");
        }
        let aborted = Effect::Aborted { code: 7, message: "disk full".into() };
        assert_eq!(job.frame(0, Kind::Abort, b"\x07\0\0\0disk full", &mut out), Ok(aborted));
    }
}
