//! Ranks as threads of one process, each with a world of its own, over real rails.

use std::time::{Duration, Instant};

use towline::bootstrap::server::{Config, Server};
use towline::bootstrap::{Environment, Job};
use towline::{Builder, World};

/// Runs `body` on `size` ranks. Returns the results by rank.
#[allow(dead_code)]
pub fn ranks<T: Send>(size: u32, transports: &str, body: impl Fn(World) -> T + Sync) -> Vec<T> {
    ranks_with(size, |builder| builder.transports(transports), body)
}

/// As [`ranks`], with other settings.
#[allow(dead_code)]
pub fn ranks_with<T: Send>(
    size: u32,
    set: impl Fn(Builder) -> Builder + Sync,
    body: impl Fn(World) -> T + Sync,
) -> Vec<T> {
    jobs(size, |_, job| body(set(Builder::new().job(job)).build().unwrap()))
}

/// Runs `body` as each of `size` ranks, which have joined a job. Returns the results by rank.
pub fn jobs<T: Send>(size: u32, body: impl Fn(u32, Job) -> T + Sync) -> Vec<T> {
    let base = Environment::singleton();
    let config = Config {
        size,
        job: base.job,
        key: base.key.clone(),
        name: None,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        disconnect_ends_rank: true,
    };
    let server = Server::start(config, |_| {}).unwrap();
    let join = |rank| {
        let mut environment = base.clone();
        (environment.rank, environment.size) = (rank, size);
        environment.root = server.addresses().to_vec();
        environment.local = Some((0..size).collect());
        Job::join(environment, Instant::now() + Duration::from_secs(300)).unwrap()
    };
    std::thread::scope(|scope| {
        let (join, body) = (&join, &body);
        let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || body(rank, join(rank)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    })
}
