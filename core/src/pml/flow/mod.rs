//! Bounded memory for unexpected messages, without deadlock: credit, notices, asks and answers.
//!
//! - A sender without credit holds its messages back and sends a notice once ([`wire::Held`](crate::wire::Held)).
//! - The receiver then asks ([`wire::Ask`](crate::wire::Ask)): for each posted receive that the peer could satisfy, in posting
//!   order. One ask is out to a peer at a time.
//! - The sender answers with its first held-back message that the ask accepts. The answer is a rendezvous header that takes
//!   neither credit nor a sequence number. No other message goes to that peer until the answer is settled, so no message
//!   overtakes another.
//! - An answer is rejected, and held back again, if its receive is gone or if it has overtaken earlier messages. In the second
//!   case the reject waits until these have arrived. Otherwise the next answer would overtake them as well, and asks and answers
//!   would follow each other at the speed of the link.
//! - With [`wire::Nothing`](crate::wire::Nothing) the sender replies that it holds no such message back. The next message that it
//!   holds back brings a new notice, and the receiver asks for all receives again.
//! - Probes ask as well: once for each pattern between two notices. The answers wait in envelopes beyond all credit until they
//!   are received, or until a matched probe moves them to a request.
//!
//! A send has no time-out: it waits until its receiver acknowledges, finishes or refuses it, or is lost. A reject with the reason
//! "unmatched" is no refusal: it sends an answer back. For any other send it is counted as stale and ignored.

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod control;
pub(super) mod credit;
pub(super) mod held;
pub(super) mod probe;
pub(super) mod work;
pub(super) mod work_list;
