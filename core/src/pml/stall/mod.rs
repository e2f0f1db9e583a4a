//! The stall time-out: peers that are connected and make no progress.
//!
//! A process that computes, or that is stopped, looks alive to its rails: it has a connection, and its host answers. A user who
//! wants such a peer to count as lost sets a stall time-out; by default there is none.
//!
//! *Awaited peers.* Four times in that time, when nothing else arrives, the engine checks for which peers there is something to
//! wait for:
//!
//! - a request that only the peer can bring forward: a held-back message, an unanswered rendezvous, bytes that are arriving or
//!   leaving, a receive that names the peer;
//! - a receive from any source, which waits for all peers that anything was ever sent to;
//! - a rail that has not drained to the peer.
//!
//! *Answers.* Any frame from the peer counts as an answer, and so does progress of frames that were sent to it. The engine also
//! asks for one, by a credit frame with [`FLAG_KEEPALIVE`](crate::wire::FLAG_KEEPALIVE) (a *keepalive*), which an engine answers
//! as soon as it makes progress. So two processes that wait for each other's late messages do not give each other up. Keepalives
//! and replies take all links in use, since one of them may have failed without being noticed. When a link is found to be down,
//! the count of checks starts again. Checks do not count while no keepalive can leave because the first connection to the peer is
//! still being made.
//!
//! *The end.* A peer without an answer for four checks is lost as [`Lost::Stalled`](crate::rail::Lost::Stalled), exactly as if
//! its rail had reported it. The peer is told, if possible. For the peer this process is then lost
//! ([`Lost::Broken`](crate::rail::Lost::Broken)).
//!
//! *Why checks and not time.* Time alone proves nothing: this process may have been stopped itself. So the engine counts checks.
//! A check takes place at least a quarter of the time-out after the one before, and only when the rails have nothing more to
//! deliver. [`arm`](crate::rail::Rail::arm) tells that; a poll without an event does not, as some rails do not ask the kernel
//! each time. If the rails are never idle, a check takes place after many more rounds of progress.

pub(super) mod checks;
pub(super) mod clock;
pub(super) mod liveness;
