//! The server that rank 0 runs itself if there is no launcher.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Environment;
use crate::server::{Config, Event, Server};

/// A server, and the ranks that still use it.
pub(crate) struct OwnServer {
    present: Arc<PresentRanks>,
    _server: Server,
}

#[derive(Default)]
struct PresentRanks {
    /// Ranks that have joined and have not disconnected since.
    ranks: Mutex<HashSet<u32>>,
    changed: Condvar,
}

impl OwnServer {
    pub(crate) fn start(environment: &Environment, listen: SocketAddr) -> io::Result<Self> {
        let config = Config {
            size: environment.size,
            job: environment.job,
            key: environment.key.clone(),
            name: None,
            listen: Some(listen),
            disconnect_ends_rank: true,
        };
        let present = Arc::new(PresentRanks::default());
        let watched = Arc::clone(&present);
        let server = Server::start(config, move |event| {
            let mut ranks = watched.ranks.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Joined { rank } => drop(ranks.insert(rank)),
                Event::Disconnected { rank, .. } => drop(ranks.remove(&rank)),
                Event::Warned { text, .. } => eprintln!("towline: warning: {text}"),
                _ => {}
            }
            watched.changed.notify_all();
        })?;
        Ok(Self { present, _server: server })
    }

    /// Waits until all ranks that have joined have disconnected. The wait ends at the latest when their processes end,
    /// since the system then closes their connections.
    pub(crate) fn wait_until_unused(self) {
        let ranks = self.present.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.present.changed.wait_while(ranks, |ranks| !ranks.is_empty()));
    }
}
