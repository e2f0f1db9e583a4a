//! Opens the modules of a process.

use towline_bootstrap::Job;
use towline_core::rail::Rail as _;

use crate::btl::directory::Directory;
use crate::btl::module::Module;
use crate::errors::setup::SetupError;
use crate::job::{cards, warnings};
use crate::settings::config::DPU;
use crate::setup::builder::{Alone, Builder};
use crate::setup::place::Place;
use crate::threads::levels::Threads;
use crate::transports::bundled::Bundled;
use crate::transports::rails::AnyRail;

impl<L: Threads> Builder<L> {
    /// Opens the transports for a runtime that does its own matching: one [module](crate::btl::Module) for each rail, with the
    /// directory of its peers, in the order sm, tcp, udp, verbs, dpu-frames. Several [links](crate::Config::links) of a transport are several
    /// rails; or with [`bundle`](crate::Config::bundle) they are one rail, which goes on while one of the links works. A job of several
    /// processes is assumed; no launcher and no other process is needed, and nothing waits.
    ///
    /// There is no progress thread, whatever the setting says: the runtime makes progress.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// For an example see [`btl`](crate::btl).
    pub fn open_btl(self, place: Place) -> Result<Vec<(Module, Directory)>, SetupError> {
        let Alone { config, mut job, opened, warnings, .. } = self.open_rails(&place, |_| Ok(false))?;
        if opened.dpu.is_some() {
            let why = "a runtime that does its own matching cannot use it: name other transports".into();
            return Err(SetupError::Transport { name: DPU.into(), why });
        }
        warnings::publish(&mut job, &warnings)?;
        warnings::print(&job);
        let rails = if config.bundle { bundle(opened.rails, place.peers)? } else { opened.rails };
        let names = cards::names(&rails);
        let open = |(rail, name)| {
            let directory = Directory::new(Job::carried(place.environment()), &rail, name)?;
            Ok((Module::new(rail, place.peers)?, directory))
        };
        rails.into_iter().zip(names).map(open).collect()
    }
}

/// Makes one rail of all links of each transport.
fn bundle(rails: Vec<AnyRail>, peers: u32) -> Result<Vec<AnyRail>, SetupError> {
    let mut bundled = Vec::new();
    let mut links: Vec<AnyRail> = Vec::new();
    // The links of a transport follow each other.
    let is_next = |links: &[AnyRail], rail: &AnyRail| {
        rail.is_link() && links.last().is_none_or(|last| last.attributes().name == rail.attributes().name)
    };
    for rail in rails {
        if !is_next(&links, &rail) {
            bundled.extend(bundle_of(std::mem::take(&mut links), peers)?);
        }
        if rail.is_link() { links.push(rail) } else { bundled.push(rail) }
    }
    bundled.extend(bundle_of(links, peers)?);
    Ok(bundled)
}

/// These links as one rail, if there are several.
fn bundle_of(mut links: Vec<AnyRail>, peers: u32) -> Result<Option<AnyRail>, SetupError> {
    if links.len() < 2 {
        return Ok(links.pop());
    }
    let bundled =
        Bundled::new(links, peers).map_err(|why| SetupError::System("bundle the links of a transport", why))?;
    Ok(Some(AnyRail::Bundled(bundled)))
}
