//! A rank that runs its job's server itself, because there is no launcher.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Environment;
use crate::server::{Config, Event, Server};

/// A server, and who still needs it.
pub(crate) struct Host {
    present: Arc<Present>,
    _server: Server,
}

#[derive(Default)]
struct Present {
    /// Ranks that have joined, and not left since.
    ranks: Mutex<HashSet<u32>>,
    changed: Condvar,
}

impl Host {
    pub(crate) fn start(environment: &Environment, listen: SocketAddr) -> io::Result<Self> {
        let config = Config {
            size: environment.size,
            job: environment.job,
            key: environment.key.clone(),
            name: None,
            listen: Some(listen),
            left_is_gone: true,
        };
        let present = Arc::new(Present::default());
        let told = Arc::clone(&present);
        let server = Server::start(config, move |event| {
            let mut ranks = told.ranks.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Joined { rank } => drop(ranks.insert(rank)),
                Event::Left { rank, .. } => drop(ranks.remove(&rank)),
                _ => {}
            }
            told.changed.notify_all();
        })?;
        Ok(Self { present, _server: server })
    }

    /// Waits until all ranks that have joined are gone again. No longer than they live: when a process ends, so does
    /// its connection.
    pub(crate) fn see_off(self) {
        let ranks = self.present.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.present.changed.wait_while(ranks, |ranks| !ranks.is_empty()));
    }
}
