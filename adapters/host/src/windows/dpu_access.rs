//! Puts and gets on parts of windows that DPUs serve. They are done in pieces, since the memory of a DPU has little room for their bytes.

use towline_core::convertor::Span;
use towline_core::rma::Transfer;

use crate::engine::Engine;
use crate::engine::rma_ops::{OpFailure, OpId};
use crate::errors::error::Error;
use crate::threads::levels::Threads;
use crate::waiting::no_unwind::no_unwind;
use crate::windows::window::Window;

impl<L: Threads> Window<L> {
    /// Whether the DPUs serve a rank's part: then operations on it are done although the rank makes no call. That is so if the window was
    /// made by [`window`](crate::Communicator::window) or [`window_with`](crate::Communicator::window_with), if the part fits into the
    /// memory of its rank's DPU, and if the DPUs of all ranks can be used.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    ///
    /// ```
    /// let world = towline::init()?;
    /// let window = world.window(64)?;
    /// if !window.is_on_dpu(0)? {
    ///     println!("rank 0 has to make progress, unless sm connects it");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_on_dpu(&self, rank: u32) -> Result<bool, Error> {
        self.part(rank)?;
        Ok(self.dpu_parts.has(rank))
    }

    /// Checks that the own part can be accessed: its memory may be another's after a failure of its DPU.
    pub(super) fn check_own(&self, engine: &mut Engine) -> Result<(), Error> {
        if !self.is_in_dpu() {
            return Ok(());
        }
        let dpu = engine.mtl.pml().rails_mut().dpu_mut();
        if dpu.is_some_and(|dpu| dpu.transport().lost().is_none()) { Ok(()) } else { Err(Error::DeviceFailed) }
    }

    /// Checks that bytes are in a rank's part.
    fn check_bounds(&self, rank: u32, offset: u64, bytes: usize) -> Result<(), Error> {
        let (_, remote) = self.part(rank)?;
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= remote.len() => Ok(()),
            _ => Err(self.out_of_window(rank, offset, bytes as u64)),
        }
    }

    /// Puts bytes in pieces. They are in the memory of the DPU when this returns.
    pub(super) fn put_by_dpu(&self, rank: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check_bounds(rank, offset, data.len())?;
        let mut done = 0;
        loop {
            let piece = &data[done..data.len().min(done + self.dpu_parts.piece)];
            self.wait_until(|engine| {
                let what = Transfer::Put(Span::of(piece));
                // SAFETY: the bytes are copied during the call.
                let begun = unsafe { self.begin(engine, rank, what, offset + done as u64) }?;
                Some(begun.map(|operation| engine.rma_ops.add_detached(operation, self.id(), rank, Box::default())))
            })?;
            done += piece.len();
            if done == data.len() {
                return Ok(());
            }
        }
    }

    /// Gets bytes in pieces, several at a time.
    ///
    /// # Safety
    /// The memory of each piece that `get` names is writable, and nothing else accesses it, until this returns.
    pub(super) unsafe fn get_by_dpu(
        &self,
        rank: u32,
        offset: u64,
        len: usize,
        get: impl Fn(std::ops::Range<usize>) -> Transfer,
    ) -> Result<(), Error> {
        self.check_bounds(rank, offset, len)?;
        let (mut done, mut is_begun, mut failed) = (0, false, None);
        let mut in_progress: Vec<OpId> = Vec::new();
        // Nothing may unwind while operations use the memory.
        let failure: Option<Result<Error, OpFailure>> = no_unwind(|| {
            self.wait_until(|engine| {
                in_progress.retain(|operation| match engine.rma_ops.take(*operation) {
                    Some(outcome) => {
                        if let Err(why) = outcome {
                            failed.get_or_insert(Err(why));
                        }
                        false
                    }
                    None => true,
                });
                while !is_begun && failed.is_none() {
                    let end = len.min(done + self.dpu_parts.piece);
                    // SAFETY: the caller's promise; this does not return before all operations are complete.
                    match unsafe { self.begin(engine, rank, get(done..end), offset + done as u64) } {
                        Some(Ok(operation)) => {
                            engine.rma_ops.add_awaited(operation);
                            in_progress.push(operation);
                            (done, is_begun) = (end, end == len);
                        }
                        Some(Err(error)) => failed = Some(Ok(error)),
                        None => break, // there is no room now
                    }
                }
                let is_over = in_progress.is_empty() && (is_begun || failed.is_some());
                is_over.then(|| failed.take())
            })
        });
        match failure {
            None => Ok(()),
            Some(Ok(error)) => Err(error),
            Some(Err(why)) => Err(self.failure(rank, why)),
        }
    }
}
