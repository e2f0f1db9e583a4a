//! Implements the core's module exchange for a [`Job`].

use std::time::Duration;

use towline_core::modex::{self, Change, Component, ExchangeError, Modex, RecvError, SendError, Watch, WatchError};

use super::carrier::Carrier;
use super::job::Job;
use super::publication::Name;
use crate::error::Error;

/// The module exchange as the core's components see it. The caller drives it, and no call waits, except
/// [`exchange`](Modex::exchange) of a job [over](Job::over) another exchange, which waits until the deadline.
/// [`finalize`](Modex::finalize) is [`finish`](Job::finish).
impl Modex for Job {
    fn rank(&self) -> u32 {
        Job::rank(self)
    }

    fn size(&self) -> u32 {
        Job::size(self)
    }

    fn send(&mut self, component: &Component<'_>, data: &[u8]) -> Result<(), SendError> {
        self.publish(component, data).map_err(|why| match why {
            Error::Publish(why) => why,
            Error::Finished | Error::TooLate => SendError::Closed,
            _ => SendError::Lost,
        })
    }

    fn recv(&mut self, component: &Component<'_>, peer: u32, into: &mut [u8]) -> Result<usize, RecvError> {
        let data = self.card(component, peer)?;
        into.get_mut(..data.len()).ok_or(RecvError::TooShort { needed: data.len() })?.copy_from_slice(data);
        Ok(data.len())
    }

    fn recv_nb(&mut self, component: &Component<'_>, peer: u32) -> Result<Watch, WatchError> {
        if self.finished {
            return Err(WatchError::Closed);
        }
        if !component.is_valid() {
            return Err(WatchError::BadComponent);
        }
        if peer >= self.environment.size {
            return Err(WatchError::NoSuchPeer);
        }
        let same = |(name, of): &(Name, u32)| *of == peer && name.component().corresponds(component);
        if let Some(index) = self.watches.iter().position(same) {
            return Ok(Watch::from_bits(index as u64));
        }
        let watch = Watch::from_bits(self.watches.len() as u64);
        self.watches.push((Name::new(component), peer));
        if self.card(component, peer).is_ok() {
            self.changes.push_back(Change { watch, peer });
        }
        Ok(watch)
    }

    fn next_change(&mut self) -> Option<Change> {
        // The operations that need the launcher report that it is lost.
        let _ = self.progress("check for changes");
        self.changes.pop_front()
    }

    fn exchange(
        &mut self,
        now: towline_core::time::Instant,
        deadline: towline_core::time::Instant,
    ) -> Result<modex::Exchange, ExchangeError> {
        if matches!(self.carrier, Carrier::Exchange { .. }) {
            return self.exchange_within(Duration::from_nanos(deadline.since(now).as_nanos()));
        }
        self.progress_exchange("module exchange").map_err(|why| match why {
            Error::Finished => ExchangeError::Closed,
            _ => ExchangeError::Lost,
        })?;
        if self.has_all_sets() {
            return Ok(modex::Exchange::Done);
        }
        if let Some(rank) = self.ended.keys().copied().find(|rank| !self.has_set(*rank)) {
            return Err(ExchangeError::PeerEnded { rank });
        }
        if now < deadline {
            return Ok(modex::Exchange::Pending);
        }
        let mut missing = (0..Job::size(self)).filter(|rank| !self.has_set(*rank));
        let first = missing.next().unwrap_or(0);
        Err(ExchangeError::Timeout { missing: 1 + missing.count() as u32, first })
    }

    fn finalize(&mut self) {
        // If the message does not reach the launcher, the launcher notices the closed connection.
        let _ = self.finish();
    }
}
