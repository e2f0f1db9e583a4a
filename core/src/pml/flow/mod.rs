//! Bounded unexpected memory without deadlock: credit, notices of what is held back, asks and answers.
//!
//! A sender without credit holds its messages back and says so once ([`wire::Held`]). The receiver then asks, one ask
//! at a time and peer, for each posted receive that the peer could satisfy, in posting order ([`wire::Ask`]). The
//! sender answers with its first message that fits: a rendezvous header that takes neither credit nor a sequence
//! number, and nothing else goes to that peer until the answer is settled, so no message overtakes another with its
//! tag. An answer that comes before earlier messages, or finds its receive gone, is rejected and held back again, in the
//! first case when those have come: the next answer would be as early as this one, and so on at the speed of the link. With
//! [`wire::Nothing`] the sender says that it has none; the next message that it holds back brings a new notice, and the
//! receiver asks for all again. Probes ask too, for one thing once as long as there is no notice; their answers wait in spare envelopes beyond all credit
//! until they are received, or taken by a matched probe, which gives them to a request.
//!
//! What a peer does not say cannot be made up for: a send waits until its receiver acknowledges, finishes or refuses it,
//! or is lost. "Unmatched" is no refusal but what sends an answer back, so for any other send it is counted and ignored.

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod control;
pub(super) mod credit;
pub(super) mod held;
pub(super) mod probe;
pub(super) mod work;
pub(super) mod work_list;
