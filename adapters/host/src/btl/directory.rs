//! The processes that a module knows, and its card for them.

use std::collections::HashMap;
use std::fmt;

use towline_bootstrap::Job;
use towline_core::btl::endpoint::{EndpointId, Proc};
use towline_core::error::Blame;
use towline_core::rail::{Rail as _, Unreachable};

use crate::btl::module::Btl;
use crate::errors::setup::SetupError;
use crate::job::cards::component;
use crate::transports::rails::AnyRail;

/// The processes that a module knows by their cards, and its own card. Kept beside the module, so that callbacks can add peers.
#[derive(Debug)]
pub struct Directory {
    job: Job,
    /// The name under which the card of the rail is published: that of the rail, and its number among rails of that name.
    rail: String,
    endpoints: HashMap<u32, EndpointId>,
}

impl Directory {
    /// The directory of the module over `rail`, with the name `name`.
    pub(super) fn new(mut job: Job, rail: &AnyRail, name: String) -> Result<Self, SetupError> {
        job.publish(&component(&name), rail.card())?;
        Ok(Self { job, rail: name, endpoints: HashMap::new() })
    }

    /// What other processes need to reach this one by the rail of this module. The same bytes for all of them, for as long as the
    /// module lives; some hundred bytes.
    pub fn card(&self) -> Vec<u8> {
        self.job.own_publications()
    }

    /// Adds the process with this card to the module, and returns its endpoint and its number. Sends nothing: the transport connects
    /// with the first frame. A process that was added before may be added again, which changes nothing.
    ///
    /// If the number is that of a process that has ended, or if there is no room and some processes have ended, this fails:
    /// [`remove_ended`](Self::remove_ended) removes them, and the caller tries again.
    ///
    /// # Errors
    /// [`AddError`]. Nothing has changed then.
    pub fn add(&mut self, btl: &mut Btl<'_>, card: &[u8]) -> Result<(EndpointId, u32), AddError> {
        let number = self.job.accept_publications(card).map_err(AddError::Card)?;
        if let Some(endpoint) = self.endpoints.get(&number) {
            return Ok((*endpoint, number));
        }
        let mut endpoints = [Err(Unreachable::NoCard)];
        if let Ok(card) = self.job.card(&component(&self.rail), number) {
            btl.add_procs(&[Proc { id: number, card }], &mut endpoints, None);
        }
        let [endpoint] = endpoints;
        match endpoint {
            Ok(endpoint) => {
                self.endpoints.insert(number, endpoint);
                Ok((endpoint, number))
            }
            Err(why) => {
                self.job.forget_publications(number);
                Err(AddError::Unreachable { number, why })
            }
        }
    }

    /// Removes processes that [have ended](towline_core::btl::module::Btl::has_ended) and were the reason why [`add`](Self::add) failed
    /// with this card, as [`remove`](Self::remove) does: the one with its number, or if there was no room, all. Returns their endpoints,
    /// which are stale then. If there are any, the caller tries again to add the process.
    ///
    /// No callback tells the loss of a process that has closed in order and is removed here first.
    pub fn remove_ended(&mut self, btl: &mut Btl<'_>, card: &[u8], why: &AddError) -> Vec<EndpointId> {
        let is_in_the_way = |number: u32| match why {
            AddError::Card(_) => Job::rank_in(card) == Some(number),
            AddError::Unreachable { why, .. } => *why == Unreachable::Full,
        };
        let known = self.endpoints.iter().filter(|(number, _)| is_in_the_way(**number));
        let known: Vec<EndpointId> = known.map(|(_, endpoint)| *endpoint).collect();
        let ended: Vec<EndpointId> = known.into_iter().filter(|endpoint| btl.has_ended(*endpoint)).collect();
        for endpoint in &ended {
            self.remove(btl, *endpoint);
        }
        ended
    }

    /// Removes a process from the module: [`del_procs`](towline_core::btl::module::Btl::del_procs). Returns whether it was there.
    pub fn remove(&mut self, btl: &mut Btl<'_>, endpoint: EndpointId) -> bool {
        if let Some(number) = self.endpoints.iter().find(|(_, known)| **known == endpoint).map(|(number, _)| *number) {
            self.endpoints.remove(&number);
            self.job.forget_publications(number);
        }
        btl.del_procs(&[endpoint]) != 0
    }
}

/// Why a process was not added to a module.
#[non_exhaustive]
pub enum AddError {
    /// The bytes are no card of this job, or the card of another process with a number that is in use.
    Card(towline_bootstrap::Error),
    /// The rail does not reach the process.
    Unreachable {
        /// The number of the process.
        number: u32,
        /// Why not.
        why: Unreachable,
    },
}

impl AddError {
    /// The side that has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Card(why) => why.blame(),
            Self::Unreachable { .. } => Blame::Peer,
        }
    }
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Card(why) => why.fmt(f),
            Self::Unreachable { number, why } => {
                write!(
                    f,
                    "this transport does not reach process {number} ({why}): use a module of another transport for it"
                )
            }
        }
    }
}

impl std::error::Error for AddError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Card(why) => Some(why),
            Self::Unreachable { why, .. } => Some(why),
        }
    }
}

towline_core::debug_as_display!(AddError);
