//! Windows over memory of the program: borrowed for the run of a closure, or owned by the window.
//!
//! No value that the program can leak stands for the borrow. A closure gets the window by reference, and the call that runs the
//! closure ends the registration itself. An owned buffer is on the heap until its registration has ended; where its window is
//! leaked, it is leaked, too.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

use towline_core::rma::{Access, Registration};
use towline_core::time::Instant;
use zerocopy::{FromBytes, IntoBytes};

use crate::context::state::ContextState;
use crate::errors::error::{Error, Failed};
use crate::operations::buffer::BufferMut;
use crate::operations::communicator::Communicator;
use crate::operations::requests::BoxedBuffer;
use crate::threads::levels::{MayOwn, Single, Threads};
use crate::threads::lock::{Awaited, EngineGuard, EngineLock};
use crate::transports::memory::{CallerMemory, WindowMemory};
use crate::values::shortage::Shortage;
use crate::waiting::idle::Idle;
use crate::waiting::no_unwind::no_unwind;
use crate::windows::window::{Part, Window};

impl<L: Threads> Communicator<L> {
    /// Runs `f` with a window over `memory` of this rank: `MPI_Win_create` and `MPI_Win_free`. The window ends before this
    /// returns, after all operations of all ranks are complete. All ranks call this; the length of the memory may differ, and may
    /// be 0. `access` determines the operations of other ranks on this rank's part.
    ///
    /// `f` accesses the memory by [`Window::read`] and [`Window::write`]. Operations of other ranks on it are done by this rank
    /// when it makes progress, also if both are on one host: their processes cannot map it. Atomic operations need memory that is
    /// aligned for their words.
    ///
    /// If `f` returns an error, the call still waits for the other ranks. If `f` panics, the memory is withdrawn without waiting
    /// for them. If something is arriving in it then, and does not end within
    /// [`Config::unwind_timeout_ms`](crate::Config::unwind_timeout_ms), the process is aborted, since the memory cannot be given
    /// back.
    ///
    /// # Errors
    /// The error of `f`. Before that, errors as of [`window`](Self::window); after that, those of [`Window::close`].
    ///
    /// ```
    /// use towline::Access;
    ///
    /// let world = towline::init()?;
    /// let mut mine = [0u32; 4];
    /// world.window_scope(&mut mine, Access::ANY, |window| {
    ///     let next = (world.rank() + 1) % world.size();
    ///     window.put(next, 8, &[7u32])?;
    ///     Ok::<(), towline::Error>(())
    /// })?;
    /// assert_eq!(mine, [0, 0, 7, 0]); // all ranks have put
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The program cannot use the memory meanwhile, and the window cannot leave the closure:
    ///
    /// ```compile_fail
    /// let world = towline::init().unwrap();
    /// let mut mine = [0u32; 4];
    /// world.window_scope(&mut mine, towline::Access::ANY, |_| {
    ///     println!("{mine:?}");
    ///     Ok::<(), towline::Error>(())
    /// });
    /// ```
    ///
    /// ```compile_fail
    /// let world = towline::init().unwrap();
    /// let (mut mine, mut escaped) = ([0u32; 4], None);
    /// world.window_scope(&mut mine, towline::Access::ANY, |window| {
    ///     escaped = Some(window);
    ///     Ok::<(), towline::Error>(())
    /// });
    /// ```
    pub fn window_scope<T, R, E, F>(&self, memory: &mut T, access: Access, f: F) -> Result<R, E>
    where
        T: FromBytes + IntoBytes + ?Sized,
        F: FnOnce(&Window<L>) -> Result<R, E>,
        E: From<Error>,
    {
        let memory = memory.as_mut_bytes();
        // SAFETY: the memory is borrowed until this returns, and no code but that of windows accesses it until then. The
        // registration ends before: by `Scoped` where there is a window, else below.
        let window =
            unsafe { self.window_at(memory.as_mut_ptr(), memory.len(), access) }.map_err(|(error, part)| {
                if let Some((registration, _)) = part {
                    withdraw(&self.handle.context, registration, None);
                }
                error
            })?;
        let scoped = Scoped(window);
        let result = f(&scoped.0);
        let complete = scoped.0.complete_all();
        drop(scoped);
        let value = result?;
        complete?;
        Ok(value)
    }

    /// Makes a window over a buffer, which it owns: `MPI_Win_create`. [`OwnedWindow::close`] gives the buffer back. All ranks call
    /// this; the length of the buffer may differ. Otherwise as [`window_scope`](Self::window_scope).
    ///
    /// # Errors
    /// As [`window`](Self::window). The error has the buffer.
    ///
    /// ```
    /// use towline::{Access, AtomicOp};
    ///
    /// let world = towline::init()?;
    /// let window = world.window_over(vec![10u64, 20], Access::ANY)?;
    /// window.accumulate(0, 8, AtomicOp::Add, &[1u64])?; // every rank adds to the part of rank 0
    /// let numbers = window.close()?;
    /// assert!(world.rank() != 0 || numbers == [10, 20 + u64::from(world.size())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn window_over<B: BufferMut>(&self, buffer: B, access: Access) -> Result<OwnedWindow<B, L>, Failed<B>>
    where
        L: MayOwn<B>,
    {
        let mut buffer = BoxedBuffer::new(buffer);
        // SAFETY: no operation is in progress.
        let bytes = unsafe { buffer.get_mut() }.bytes_mut();
        // SAFETY: the buffer keeps its address, and no code but that of windows accesses it until the registration has ended: here
        // after an error, in `OwnedWindow::close`, or in `OwnedWindow::drop`, which leaves the buffer to the engine.
        match unsafe { self.window_at(bytes.as_mut_ptr(), bytes.len(), access) } {
            Ok(window) => Ok(OwnedWindow { buffer: Some(buffer), window }),
            Err((error, part)) => {
                if let Some((registration, _)) = part {
                    withdraw(&self.handle.context, registration, None);
                }
                Err(Failed { error, buffer: buffer.into_inner() })
            }
        }
    }

    /// Makes a window over memory of the program. After an error, the registration of the part that is given back must be ended.
    ///
    /// # Safety
    /// Until the registration has ended, the memory is readable and writable, and only windows access it. The registration has
    /// ended before the window is dropped.
    pub(super) unsafe fn window_at(
        &self,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<Window<L>, (Error, Option<Part>)> {
        self.handle.context.check_process().map_err(|forked| (forked, None))?;
        let comm = self.dup();
        let mut engine = self.handle.context.engine.lock();
        let id = engine.rma_ops.next_window();
        let base = NonNull::new(base).unwrap_or(NonNull::dangling());
        // SAFETY: the caller's promise; windows access it under the engine's lock, by copies and atomics only.
        let registration = unsafe { engine.mtl.pml().register(base.as_ptr(), len, access, None) };
        drop(engine);
        let made = registration.map(|registration| (registration, WindowMemory::Caller(CallerMemory(base))));
        Window::agree(self, comm, id, made.ok_or(Shortage::Windows), len, None)
    }
}

/// A window over a buffer that it owns: made by [`Communicator::window_over`]. It is used as a [`Window`].
///
/// A window that is only dropped refuses operations that other ranks still begin. Its buffer is freed when nothing is arriving in
/// it any more.
///
/// ```
/// let world = towline::init()?;
/// let window = world.window_over(vec![1u8, 2, 3], towline::Access::ANY)?;
/// let mut got = [0u8; 3];
/// window.get(world.rank(), 0, &mut got)?;
/// assert_eq!(got, [1, 2, 3]);
/// assert_eq!(window.close()?, [1, 2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedWindow<B: 'static, L: Threads = Single> {
    window: Window<L>,
    /// `None` once it was given back.
    buffer: Option<BoxedBuffer<B>>,
}

impl<B, L: Threads> Deref for OwnedWindow<B, L> {
    type Target = Window<L>;

    fn deref(&self) -> &Window<L> {
        &self.window
    }
}

impl<B, L: Threads> OwnedWindow<B, L> {
    /// Ends the window, after all operations of all ranks are complete, and gives the buffer back: `MPI_Win_free`. All ranks call
    /// it.
    ///
    /// # Errors
    /// As [`Window::close`]. The error has the buffer.
    pub fn close(mut self) -> Result<B, Failed<B>> {
        let complete = self.window.complete_all();
        if let Some((registration, _)) = self.window.take_part() {
            withdraw(self.window.context(), registration, None);
        }
        let buffer = self.buffer.take().expect("it is there until the window is closed").into_inner();
        match complete {
            Ok(()) => Ok(buffer),
            Err(error) => Err(Failed { error, buffer }),
        }
    }
}

impl<B, L: Threads> Drop for OwnedWindow<B, L> {
    fn drop(&mut self) {
        if let Some((registration, memory)) = self.window.take_part()
            && let Some(buffer) = self.buffer.take()
        {
            let context = self.window.context();
            context.engine.lock().retire_window(registration, memory, Some(buffer.detach(false)));
            context.run_callbacks();
        }
    }
}

impl<B, L: Threads> fmt::Debug for OwnedWindow<B, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedWindow").field("window", &self.window).finish_non_exhaustive()
    }
}

/// A window over borrowed memory. When it is dropped, the memory is not in use any more.
struct Scoped<L: Threads>(Window<L>);

impl<L: Threads> Drop for Scoped<L> {
    fn drop(&mut self) {
        let Some((registration, _)) = self.0.take_part() else { return };
        let context = self.0.context();
        let deadline =
            std::thread::panicking().then(|| context.engine.lock().deadline(context.config.unwind_timeout_ms));
        withdraw(context, registration, deadline);
    }
}

/// Ends the registration of memory, and waits until nothing is arriving in it any more. Aborts the process at `deadline`.
pub(super) fn withdraw<L: Threads>(context: &ContextState<L>, registration: Registration, deadline: Option<Instant>) {
    // The memory must not be given back before the end, so nothing unwinds.
    no_unwind(|| {
        let (mut engine, mut idle) = (context.engine.lock(), Idle::default());
        while !engine.end_registration(registration) {
            if deadline.is_some_and(|deadline| engine.clock.renew() >= deadline) {
                eprintln!(
                    "towline: the program panicked while another rank was writing to its window, and the rank did not end that \
                     within {} ms (TOWLINE_UNWIND_TIMEOUT_MS): the process is aborted",
                    context.config.unwind_timeout_ms
                );
                std::process::abort();
            }
            engine.progress_or_wait(&mut idle, &Awaited::Anything, deadline);
        }
    });
}
