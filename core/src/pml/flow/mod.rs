//! Bounded memory for unexpected messages, without deadlock: credit, notices, asks and answers.
//!
//! - A sender without credit holds its messages back and sends a notice once ([`wire::Held`](crate::wire::Held)).
//! - The receiver then asks ([`wire::Ask`](crate::wire::Ask)): for each posted receive that the peer could satisfy, in posting
//!   order, one ask at a time and peer.
//! - The sender answers with its first message that fits. The answer is a rendezvous header that takes neither credit nor a
//!   sequence number. Nothing else goes to that peer until the answer is settled: so no message overtakes another with its tag.
//! - An answer is rejected, and held back again, if its receive is gone or if it came before earlier messages. In the second case
//!   the reject waits until these have come: the next answer would be as early as this one, and so on at the speed of the link.
//! - With [`wire::Nothing`](crate::wire::Nothing) the sender says that it has no such message. The next message that it holds back
//!   brings a new notice, and the receiver asks for all receives again.
//! - Probes ask, too: once for each pattern between two notices. Their answers wait in envelopes beyond all credit until they are
//!   received, or until a matched probe moves them to a request.
//!
//! A silent peer cannot be replaced: a send waits until its receiver acknowledges, finishes or refuses it, or is lost. The reason
//! "unmatched" is no refusal: it sends an answer back. For any other send it is counted and ignored.

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod control;
pub(super) mod credit;
pub(super) mod held;
pub(super) mod probe;
pub(super) mod work;
pub(super) mod work_list;
