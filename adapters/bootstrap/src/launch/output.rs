//! Prints the output of ranks: whole lines, each with its label, and every byte of it.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::lines::{Label, Lines, Source};

/// Receives the output of ranks. May block, and then the ranks wait, too.
pub(super) trait Sink: Send + Sync {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]);
    /// The rank has closed this stream.
    fn end(&self, rank: u32, source: Source);
}

/// A stream of the launcher. Texts from several threads do not mix.
#[derive(Clone)]
pub(super) struct Stream(Arc<Mutex<dyn Write + Send>>);

impl Stream {
    pub(super) fn new(to: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(to)))
    }

    /// Writes a text as a whole.
    pub(super) fn print(&self, text: &[u8]) -> io::Result<()> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(text)?;
        to.flush()
    }
}

/// Prints the output of ranks on the launcher's own standard output and error.
pub(super) struct Printer {
    lines: Mutex<Lines>,
    out: Stream,
    err: Stream,
    broken: Box<dyn Fn() + Send + Sync>,
}

impl Printer {
    /// Makes a printer that calls `broken` whenever the reader of its output has closed it.
    pub(super) fn new(label: Label, out: Stream, err: Stream, broken: impl Fn() + Send + Sync + 'static) -> Self {
        Self { lines: Mutex::new(Lines::new(label)), out, err, broken: Box::new(broken) }
    }

    fn print(&self, source: Source, text: &[u8]) {
        let stream = match source {
            Source::Stdout => &self.out,
            Source::Stderr => &self.err,
        };
        if stream.print(text).is_err() {
            (self.broken)();
        }
    }
}

impl Sink for Printer {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]) {
        // The lock is held while printing, so that the output of one rank stays in order.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.take(rank, source, bytes, |on, text| self.print(on, text));
    }

    fn end(&self, rank: u32, source: Source) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.end(rank, source, |on, text| self.print(on, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;

    #[test]
    fn a_closed_output_is_reported() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        struct Kept(mpsc::Sender<Vec<u8>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.send(bytes.to_vec()).unwrap();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (tell, told) = mpsc::channel();
        let (keep, kept) = mpsc::channel();
        let (out, err) = (Stream::new(Broken), Stream::new(Kept(keep)));
        let printer = Printer::new(Label::Rank, out, err, move || tell.send(()).unwrap());
        printer.output(0, Source::Stderr, b"fine\n");
        assert!(told.try_recv().is_err());
        printer.output(0, Source::Stdout, b"lost\n");
        assert!(told.try_recv().is_ok());
        assert_eq!(kept.try_recv().unwrap(), b"[0] fine\n");
    }
}
