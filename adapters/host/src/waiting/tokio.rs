//! A task of tokio as the runner of a reactor, in place of a thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::reactor::Reactor;
use super::wait_handle::Ready;

/// Has a task in the current runtime wake tasks from now on. A thread that did so ends.
pub(crate) fn attach(reactor: &Arc<Reactor>) -> std::io::Result<()> {
    let runtime = Handle::try_current().map_err(std::io::Error::other)?;
    // A copy, since a runtime watches each descriptor only once, and may be attached again.
    let handle = reactor.handle().as_fd().try_clone_to_owned()?;
    // SAFETY: the descriptor is open as long as its owner, which never changes it.
    let fd = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }?;
    let runner = Runner { reactor: Arc::clone(reactor), number: reactor.replace_runner(&runtime) };
    runtime.spawn(run(fd, runner));
    Ok(())
}

async fn run(fd: AsyncFd<OwnedFd>, runner: Runner) {
    while let Ok(mut guard) = fd.readable().await {
        let ready = runner.reactor.handle().wait(Some(Duration::ZERO));
        if ready == Ready::default() {
            guard.clear_ready();
        } else if !runner.reactor.turn(ready, runner.number) {
            return;
        }
    }
}

/// The task. It is dropped when its runtime ends; then a thread takes its place if tasks of other executors still wait.
struct Runner {
    reactor: Arc<Reactor>,
    number: u32,
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.reactor.runner_ended(self.number);
    }
}
