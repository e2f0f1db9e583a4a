//! Waiting for one or several of many operations.

use towline_core::mtl::Request;

use crate::context::handle::CommHandle;
use crate::operations::communicator::Communicator;
use crate::threads::levels::Threads;
use crate::threads::lock::{EngineGuard, EngineLock};

/// An operation in progress that [`wait_any`](Communicator::wait_any) and similar methods can wait for:
/// [`SendRequest`](crate::SendRequest), [`RecvRequest`](crate::RecvRequest), [`ScopedSend`](crate::ScopedSend),
/// [`ScopedRecv`](crate::ScopedRecv), [`PersistentSend`](crate::PersistentSend) and [`PersistentRecv`](crate::PersistentRecv). The
/// trait is sealed.
#[allow(private_bounds)]
pub trait Completion<L: Threads>: Pending<L> {}

/// The functions of an operation that the waiting methods need.
pub(crate) trait Pending<L: Threads> {
    /// The operation's context.
    fn handle(&self) -> &CommHandle<L>;
    /// Its request, if its outcome was not taken from the engine yet.
    fn request(&self) -> Option<Request>;
    /// Whether its outcome is still to be taken by its `wait`. A persistent operation that was not started has none.
    fn is_active(&self) -> bool;
    /// Takes the outcome from the engine, if the operation is complete. Returns whether it is.
    fn test(&mut self) -> bool;
}

/// Whether an operation is complete, and its outcome is still to be taken.
fn is_ready<L: Threads>(operation: &mut impl Pending<L>) -> bool {
    operation.is_active() && operation.test()
}

impl<L: Threads, C: Completion<L> + ?Sized> Completion<L> for &mut C {}

impl<L: Threads, C: Pending<L> + ?Sized> Pending<L> for &mut C {
    fn handle(&self) -> &CommHandle<L> {
        (**self).handle()
    }

    fn request(&self) -> Option<Request> {
        (**self).request()
    }

    fn is_active(&self) -> bool {
        (**self).is_active()
    }

    fn test(&mut self) -> bool {
        (**self).test()
    }
}

impl<L: Threads> Communicator<L> {
    /// Waits until one of these operations is complete, and returns its index: `MPI_Waitany`. `None` if there is no operation,
    /// or none is active: a persistent operation is active from its start until its `wait` has returned.
    ///
    /// The operation stays in the slice. Take it out, and call its `wait`, which returns the outcome without waiting; otherwise the
    /// next call returns the same index. A persistent operation may stay, and only its `wait` is called. Operations of different types are passed as `&mut dyn Completion`. All of them belong to
    /// the context of this communicator. (Those of another context are completed, too, but this call polls then and does not
    /// sleep.)
    ///
    /// ```
    /// use towline::{Completion, Single};
    ///
    /// let world = towline::init()?;
    /// let mut receives: Vec<_> = (0..3).map(|tag| world.irecv(0, tag, vec![0u8; 4])).collect::<Result<_, _>>()?;
    /// world.send(0, 2, b"two")?;
    /// assert_eq!(world.wait_any(&mut receives), Some(2));
    /// let (buffer, status) = receives.swap_remove(2).wait()?; // does not wait
    /// assert_eq!((&buffer[..3], status.tag), (&b"two"[..], 2));
    ///
    /// let mut send = world.isend(0, 0, vec![1u8; 9])?;
    /// let mut mixed: [&mut dyn Completion<Single>; 2] = [&mut receives[1], &mut send];
    /// assert!(world.wait_any(&mut mixed).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_any<C: Completion<L>>(&self, operations: &mut [C]) -> Option<usize> {
        loop {
            if let Some(found) = operations.iter_mut().position(is_ready) {
                return Some(found);
            }
            if !operations.iter().any(Pending::is_active) {
                return None;
            }
            self.wait_for_some(operations);
        }
    }

    /// Waits until at least one of these operations is complete, and returns the indices of all that are: `MPI_Waitsome`. Otherwise
    /// as [`wait_any`](Self::wait_any).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut receives: Vec<_> = (0..3).map(|tag| world.irecv(0, tag, [0u8; 1])).collect::<Result<_, _>>()?;
    /// world.send(0, 0, b"a")?;
    /// world.send(0, 2, b"c")?;
    /// while world.wait_some(&mut receives) != [0, 2] {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_some<C: Completion<L>>(&self, operations: &mut [C]) -> Vec<usize> {
        self.handle.context.progress(); // also where the caller has left complete operations in the slice
        self.wait_any(operations);
        let complete = operations.iter_mut().enumerate().filter_map(|(index, it)| is_ready(it).then_some(index));
        complete.collect()
    }

    /// Waits until all of these operations are complete: `MPI_Waitall`. The `wait` of each then returns its outcome without
    /// waiting. Otherwise as [`wait_any`](Self::wait_any).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut receives: Vec<_> = (0..3).map(|tag| world.irecv(0, tag, [0u32])).collect::<Result<_, _>>()?;
    /// (0..3u32).try_for_each(|tag| world.send(0, tag, &tag))?;
    /// world.wait_all(&mut receives);
    /// for (tag, receive) in (0..).zip(receives) {
    ///     assert_eq!(receive.wait()?.0, [tag]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_all<C: Completion<L>>(&self, operations: &mut [C]) {
        for operation in operations {
            self.wait_any(std::slice::from_mut(operation));
        }
    }

    /// Makes progress once. Returns the index of an operation that is complete, if there is one: `MPI_Testany`. Otherwise as
    /// [`wait_any`](Self::wait_any).
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut receives = [world.irecv(0, 1, [0u8])?];
    /// assert_eq!(world.test_any(&mut receives), None);
    /// world.send(0, 1, b"x")?;
    /// while world.test_any(&mut receives).is_none() {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn test_any<C: Completion<L>>(&self, operations: &mut [C]) -> Option<usize> {
        let found = operations.iter_mut().position(is_ready);
        found.or_else(|| {
            self.handle.context.progress();
            operations.iter_mut().position(is_ready)
        })
    }

    /// Waits until one of these operations may be complete.
    fn wait_for_some<C: Completion<L>>(&self, operations: &mut [C]) {
        let own = |operation: &C| std::ptr::eq(&raw const *operation.handle().context, &raw const *self.handle.context);
        if operations.iter().all(own) {
            let requests: Vec<Request> = operations.iter().filter_map(Pending::request).collect();
            self.handle.context.engine.lock().wait_for_any(&requests);
            self.handle.context.run_callbacks();
        } else {
            for operation in operations.iter() {
                operation.handle().context.progress();
            }
            rustix::thread::sched_yield();
        }
    }
}
