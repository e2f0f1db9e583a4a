//! Opens the modules of a process.

use towline_bootstrap::Job;

use crate::btl::directory::Directory;
use crate::btl::module::Module;
use crate::errors::setup::SetupError;
use crate::job::{cards, warnings};
use crate::setup::builder::{Alone, Builder};
use crate::setup::place::Place;
use crate::threads::levels::Threads;

impl<L: Threads> Builder<L> {
    /// Opens the transports for a runtime that does its own matching: one [module](crate::btl::Module) for each rail, with the
    /// directory of its peers, in the order sm, tcp, udp, verbs. Several [links](crate::Config::links) of a transport are several
    /// rails. A job of several processes is assumed; no launcher and no other process is needed, and nothing waits.
    ///
    /// There is no progress thread, whatever the setting says: the runtime makes progress.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    ///
    /// For an example see [`btl`](crate::btl).
    pub fn open_btl(self, place: Place) -> Result<Vec<(Module, Directory)>, SetupError> {
        let Alone { mut job, opened, warnings, .. } = self.open_rails(&place, |_| Ok(false))?;
        warnings::publish(&mut job, &warnings)?;
        warnings::print(&job);
        let names = cards::names(&opened.rails);
        let open = |(rail, name)| {
            let directory = Directory::new(Job::carried(place.environment()), &rail, name)?;
            Ok((Module::new(rail, place.peers)?, directory))
        };
        opened.rails.into_iter().zip(names).map(open).collect()
    }
}
