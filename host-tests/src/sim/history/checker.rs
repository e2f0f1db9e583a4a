//! Checks a history: MPI order, exact bytes, exactly-once completion, and no leaked resource.
//!
//! The rule of MPI order: of the messages of one sender that match a receive, the receive gets the one that was sent
//! first among those that no earlier receive has taken. So with receives in posting order, each takes the first
//! remaining message of the sender that it reports. A receive from any source may choose the sender.
//!
//! Nodes may die and restart. A request may fail only because of a node that died or was disconnected for too long.
//! Messages from or to such a node may be lost, but a receive never gets a message in place of a lost earlier one: of the
//! messages from one incarnation to another, those that arrive are the first ones, except for messages that failed
//! receives may have taken. Between all other nodes no message is lost or duplicated, and no request fails.

use std::collections::HashMap;

use super::lives::{Incarnations, Posted, Stream};
use super::matching::Matching;
use super::messages::{Message, Outcome, Receive, SendFailure};
use super::one_sided::RmaOutcome;
use super::record::{History, Record};
use super::rma_checker::RmaChecker;
use super::violation::{Summary, Violation};

/// Checks the complete history of a job.
///
/// # Errors
/// The first violation that was found.
pub fn check(history: &History) -> Result<Summary, Violation> {
    let (mut sends, mut receives) = (Vec::<Posted<Message>>::new(), Vec::<Posted<Receive>>::new());
    let mut outcomes: Vec<Option<Outcome>> = vec![];
    let mut rooms: HashMap<u32, (u64, bool)> = HashMap::new();
    let (mut incarnations, mut failed, mut rma) = (Incarnations::default(), 0, RmaChecker::default());
    for (at, record) in history.records.iter().enumerate() {
        match record {
            Record::Send(message) => {
                let Message { comm, from, to, .. } = *message;
                let stream = Stream { comm, from: incarnations.of(from), to: incarnations.known(from, to) };
                sends.push(Posted { what: *message, at, end: None, void: false, failed: false, stream });
            }
            Record::Recv(receive) => {
                receives.push(Posted {
                    what: *receive,
                    at,
                    end: None,
                    void: false,
                    failed: false,
                    stream: Stream::default(),
                });
                outcomes.push(None);
            }
            Record::Sent(send, error) => {
                let posted = end(&mut sends, "send", *send, at)?;
                posted.failed = error.is_some();
                let message = posted.what;
                match error {
                    None => {}
                    Some(SendFailure::Peer(node))
                        if *node == message.to && incarnations.failed(message.from, *node) =>
                    {
                        failed += 1
                    }
                    Some(error) => return Err(Violation::SendFailed(*send, error.clone())),
                }
            }
            Record::Received(receive, outcome) => {
                let posted = end(&mut receives, "receive", *receive, at)?;
                let Receive { at, comm, source, .. } = posted.what;
                match outcome {
                    Outcome::Received { source, .. } => {
                        posted.stream = Stream { comm, from: incarnations.known(at, *source), to: incarnations.of(at) };
                    }
                    Outcome::PeerFailed(node)
                        if source.is_some_and(|one| one != *node) || !incarnations.failed(at, *node) =>
                    {
                        return Err(Violation::FalseFailure(*receive, posted.what, *node));
                    }
                    Outcome::PeerFailed(_) => failed += 1,
                    Outcome::Cancelled => {}
                }
                outcomes[*receive as usize] = Some(*outcome);
            }
            Record::Died(node) => {
                rma.forget(*node);
                let life = incarnations.of(*node);
                incarnations.died.insert(life);
                incarnations.now.insert(*node, life.1 + 1);
                incarnations.known.retain(|(by, _), _| by != node);
                let mine = sends.iter_mut().filter(|send| send.what.from == *node && send.end.is_none());
                mine.for_each(|send| (send.end, send.void) = (Some(at), true));
                let mine = receives.iter_mut().filter(|receive| receive.what.at == *node && receive.end.is_none());
                mine.for_each(|receive| (receive.end, receive.void) = (Some(at), true));
            }
            Record::Disconnected(one, other) => {
                incarnations.disconnected.insert((*one.min(other), *one.max(other)));
            }
            Record::Refused { node, peer } if !incarnations.failed(*node, *peer) => {
                return Err(Violation::FalseRefusal(*node, *peer));
            }
            Record::Refused { .. } => {}
            Record::Introduced { node, peer } => {
                incarnations.known.insert((*node, *peer), incarnations.of(*peer).1);
            }
            Record::Window(window) => rma.open(*window),
            Record::WindowClosed(window) => rma.close(*window),
            Record::Memory(window, memory) => rma.look(*window, memory)?,
            Record::RmaBegun(ask) => rma.ask(*ask),
            Record::RmaEnded(number, ended) => {
                let Some([from, to]) = rma.target(*number) else {
                    return Err(Violation::NotCompleted("operation", *number));
                };
                if *ended == RmaOutcome::Lost {
                    if !incarnations.failed(from, to) {
                        return Err(Violation::OneSided(rma.false_loss(*number)));
                    }
                    failed += 1;
                }
                rma.end(*number, *ended)?;
            }
            Record::Buffer(receive, digest, intact) => {
                rooms.insert(*receive, (*digest, *intact));
            }
            Record::Level { node, what, before, after } if before != after => {
                return Err(Violation::Leaked(*node, what, *before, *after));
            }
            Record::Level { .. } => {}
        }
    }
    all_ended(&sends, "send")?;
    all_ended(&receives, "receive")?;
    let mut summary = Matching::new(&sends, &incarnations).check(&receives, &outcomes, &rooms)?;
    rma.check()?;
    [summary.one_sided, summary.denied] = rma.counts;
    summary.failed = failed;
    Ok(summary)
}

fn end<'p, T>(
    posted: &'p mut [Posted<T>],
    what: &'static str,
    number: u32,
    at: usize,
) -> Result<&'p mut Posted<T>, Violation> {
    let entry = posted.get_mut(number as usize).ok_or(Violation::NotCompleted(what, number))?;
    match entry.end.replace(at) {
        None => Ok(entry),
        Some(_) => Err(Violation::CompletedTwice(what, number)),
    }
}

fn all_ended<T>(posted: &[Posted<T>], what: &'static str) -> Result<(), Violation> {
    match posted.iter().position(|entry| entry.end.is_none()) {
        None => Ok(()),
        Some(number) => Err(Violation::NotCompleted(what, number as u32)),
    }
}
