//! Windows over memory that the caller keeps valid, for foreign code.

use std::fmt;
use std::ops::Deref;

use towline_core::rma::Access;

use crate::errors::error::Error;
use crate::operations::communicator::Communicator;
use crate::threads::levels::{Single, Threads};
use crate::threads::lock::EngineLock;
use crate::values::shortage::Shortage;
use crate::windows::caller_memory::withdraw;
use crate::windows::window::Window;

/// A window over memory of the caller: [`Communicator::window_raw`] makes it. It is used as a [`Window`].
pub struct RawWindow<L: Threads = Single>(Window<L>);

impl<L: Threads> Communicator<L> {
    /// Makes a window over memory of the caller: `MPI_Win_create`. All ranks call this, or [`window_with`](Self::window_with); the
    /// lengths may differ. Otherwise as [`window_over`](Self::window_over).
    ///
    /// # Errors
    /// As [`window`](Self::window). The memory is not in use then.
    ///
    /// # Safety
    /// Until [`RawWindow::close`] has returned, or until the context has ended, the memory is readable and writable. The program
    /// accesses it only while no operation of any rank does.
    ///
    /// ```
    /// use towline::Access;
    ///
    /// let world = towline::init()?;
    /// let mut mine = [0u8; 16];
    /// // SAFETY: the memory stays until the window is closed, and is not accessed meanwhile.
    /// let window = unsafe { world.window_raw(mine.as_mut_ptr(), mine.len(), Access::ANY) }?;
    /// assert_eq!(window.base_raw(), mine.as_mut_ptr());
    /// window.put(0, 3, b"there")?;
    /// window.close()?;
    /// assert_eq!(&mine[..8], b"\0\0\0there");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn window_raw(&self, base: *mut u8, len: usize, access: Access) -> Result<RawWindow<L>, Error> {
        // SAFETY: the caller's promise. After an error the registration ends here.
        unsafe { self.window_at(base, len, access) }.map(RawWindow).map_err(|(error, part)| {
            if let Some((registration, _)) = part {
                withdraw(&self.handle.context, registration, None);
            }
            error
        })
    }

    /// Takes part in making a window, for a caller that has no room for one of its own, such as a binding without a free handle:
    /// no rank makes the window. Returns the error of this rank.
    ///
    /// ```
    /// use towline::{Error, Shortage};
    ///
    /// let world = towline::init()?;
    /// assert_eq!(world.refuse_window_raw(), Error::NoWindow { rank: 0, why: Shortage::Windows });
    /// # Ok::<(), towline::SetupError>(())
    /// ```
    pub fn refuse_window_raw(&self) -> Error {
        if let Err(forked) = self.handle.context.check_process() {
            return forked;
        }
        let comm = self.dup();
        let id = self.handle.context.engine.lock().rma_ops.next_window();
        match Window::agree(self, comm, id, Err(Shortage::Windows), 0, None) {
            Err((error, _)) => error,
            Ok(_) => Error::NoWindow { rank: self.rank(), why: Shortage::Windows },
        }
    }
}

impl<L: Threads> Window<L> {
    /// The address of this rank's own part, for foreign code. It stays the same until the window has ended. The program accesses
    /// the memory only while no operation of any rank does: between a flush of the other ranks with a barrier, and the next one. But it
    /// may write a whole aligned word while other ranks only get it.
    /// [`read`](Self::read) and [`write`](Self::write) need no address.
    pub fn base_raw(&self) -> *mut u8 {
        self.own(0, 0).unwrap_or(std::ptr::null_mut())
    }
}

impl<L: Threads> Deref for RawWindow<L> {
    type Target = Window<L>;

    fn deref(&self) -> &Window<L> {
        &self.0
    }
}

impl<L: Threads> RawWindow<L> {
    /// Ends the window, after all operations of all ranks are complete: `MPI_Win_free`. All ranks call it. The memory is the
    /// caller's again, also after an error. That of a window that is only dropped is in use until its context has ended.
    ///
    /// # Errors
    /// As [`Window::close`].
    pub fn close(mut self) -> Result<(), Error> {
        let complete = self.0.complete_all();
        if let Some((registration, _)) = self.0.take_part() {
            withdraw(self.0.context(), registration, None);
        }
        complete
    }
}

impl<L: Threads> fmt::Debug for RawWindow<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawWindow").field(&self.0).finish()
    }
}
