//! Peers that are there and do nothing: when the patience for one that something is waited for ends.
//!
//! A rank that computes, or that is stopped, looks to its rails like one that lives: it has a connection, its host answers.
//! Whoever wants it to count as dead sets a stall time-out; there is none unless it is set. It is looked four times in that
//! time, whenever nothing else comes, for which peers something is *waited for*: a request that is not over and that only the
//! peer can bring forward (a message that is held back, an unanswered rendezvous, a rest that is coming or leaving, a receive
//! that names it; one from any source waits for all that anything was ever sent to), or a rail that has not drained to it.
//! Such a peer gives a *sign of life* with any frame and by taking what is on its way to it. It is also asked for one, by a
//! credit frame with [`FLAG_MARK`](crate::wire::FLAG_MARK), which an engine answers as soon as it makes progress: so who waits
//! for a message that is late has nothing to fear for a peer that waits, too. Question and answer go by all links in use, as
//! one of them may be dead without anybody knowing it yet; with a link that is found to be down the patience begins anew. Looks
//! do not count while no keepalive can leave, because the first connection to the peer is still being made. One that gives no
//! sign for four looks is lost as [`Lost::Stalled`], in every way as if its rail had said so; it is told, as far as there
//! is a way, that it was given up, and takes that for an accident.
//!
//! Time alone proves nothing: this process may have been stopped itself. So looks count, each of which comes a quarter of the
//! time after the one before it, and when the rails have nothing more to bring. What a poll says of that is not enough, as
//! some rails do not ask the kernel each time: [`arm`](crate::rail::Rail::arm) says it. Where something comes all the time, the
//! rails have been polled many times since the look was due.

pub(super) mod checks;
pub(super) mod clock;
pub(super) mod liveness;
