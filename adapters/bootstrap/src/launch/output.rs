//! Prints the output of ranks: whole lines, each with its rank as a prefix, and every byte of it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A longer line is printed as if it ended here, so that memory stays bounded.
const LINE_MAX: usize = 1 << 20;

/// The stream on which a rank printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

/// Receives the output of ranks. May block, and then the ranks wait, too.
pub(super) trait Sink: Send + Sync {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]);
    /// The rank has closed this stream.
    fn end(&self, rank: u32, source: Source);
}

/// Prints the output of ranks on the launcher's own standard output and error.
pub(super) struct Printer<O, E> {
    lines: Mutex<Lines>,
    out: Mutex<O>,
    err: Mutex<E>,
    broken: Box<dyn Fn() + Send + Sync>,
}

impl<O: Write + Send, E: Write + Send> Printer<O, E> {
    /// Makes a printer that calls `broken` whenever the reader of its output has closed it.
    pub(super) fn new(prefix: bool, out: O, err: E, broken: impl Fn() + Send + Sync + 'static) -> Self {
        let lines = Mutex::new(Lines { prefix, partial: HashMap::new() });
        Self { lines, out: Mutex::new(out), err: Mutex::new(err), broken: Box::new(broken) }
    }

    fn print(&self, source: Source, text: &[u8]) {
        let written = match source {
            Source::Stdout => write(&self.out, text),
            Source::Stderr => write(&self.err, text),
        };
        if written.is_err() {
            (self.broken)();
        }
    }
}

fn write(to: &Mutex<impl Write>, text: &[u8]) -> io::Result<()> {
    let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
    to.write_all(text)?;
    to.flush()
}

impl<O: Write + Send, E: Write + Send> Sink for Printer<O, E> {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]) {
        // The lock is held while printing, so that the output of one rank stays in order.
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = lines.take(rank, source, bytes);
        if !text.is_empty() {
            self.print(source, &text);
        }
    }

    fn end(&self, rank: u32, source: Source) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let text = lines.end(rank, source);
        if !text.is_empty() {
            self.print(source, &text);
        }
    }
}

/// Assembles lines from pieces.
struct Lines {
    prefix: bool,
    partial: HashMap<(u32, Source), Vec<u8>>,
}

impl Lines {
    /// Adds a piece. Returns the lines that are now complete, as they are to be printed.
    fn take(&mut self, rank: u32, source: Source, bytes: &[u8]) -> Vec<u8> {
        let partial = self.partial.entry((rank, source)).or_default();
        partial.extend_from_slice(bytes);
        let whole = match partial.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if partial.len() >= LINE_MAX => partial.len(),
            None => return Vec::new(),
        };
        let rest = partial.split_off(whole);
        let whole = std::mem::replace(partial, rest);
        self.add_prefix(rank, whole)
    }

    fn end(&mut self, rank: u32, source: Source) -> Vec<u8> {
        let rest = self.partial.remove(&(rank, source)).unwrap_or_default();
        self.add_prefix(rank, rest)
    }

    fn add_prefix(&self, rank: u32, text: Vec<u8>) -> Vec<u8> {
        if !self.prefix {
            return text;
        }
        let mut prefixed = Vec::with_capacity(text.len() + 64);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            prefixed.extend_from_slice(format!("[{rank}] ").as_bytes());
            prefixed.extend_from_slice(line);
        }
        if prefixed.last().is_some_and(|last| *last != b'\n') {
            prefixed.push(b'\n');
        }
        prefixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::mpsc;

    fn lines(prefix: bool) -> Lines {
        Lines { prefix, partial: HashMap::new() }
    }

    #[test]
    fn each_line_has_its_rank_and_partial_lines_wait_for_their_end() {
        let mut lines = lines(true);
        assert_eq!(lines.take(3, Source::Stdout, b"one\ntw"), b"[3] one\n");
        assert_eq!(lines.take(4, Source::Stdout, b"other\n"), b"[4] other\n");
        assert_eq!(lines.take(3, Source::Stderr, b"err"), b"");
        assert_eq!(lines.take(3, Source::Stdout, b"o\n\n\xff\xfe\n"), b"[3] two\n[3] \n[3] \xff\xfe\n");
        assert_eq!(lines.end(3, Source::Stderr), b"[3] err\n");
        assert_eq!(lines.end(3, Source::Stdout), b"");
        assert_eq!(lines.end(9, Source::Stdout), b"");
    }

    #[test]
    fn without_prefix_no_byte_is_added() {
        let mut lines = lines(false);
        assert_eq!(lines.take(0, Source::Stdout, b"a\r\nb"), b"a\r\n");
        assert_eq!(lines.end(0, Source::Stdout), b"b");
    }

    #[test]
    fn a_very_long_line_is_printed_in_pieces() {
        let mut lines = lines(true);
        let half = vec![b'x'; LINE_MAX / 2];
        assert_eq!(lines.take(0, Source::Stdout, &half), b"");
        assert_eq!(lines.take(0, Source::Stdout, &half).len(), LINE_MAX + 5);
        assert_eq!(lines.end(0, Source::Stdout), b"");
    }

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
        let (tell, told) = mpsc::channel();
        let printer = Printer::new(true, Broken, Vec::new(), move || tell.send(()).unwrap());
        printer.output(0, Source::Stderr, b"fine\n");
        assert!(told.try_recv().is_err());
        printer.output(0, Source::Stdout, b"lost\n");
        assert!(told.try_recv().is_ok());
        assert_eq!(*printer.err.lock().unwrap(), b"[0] fine\n");
    }
}
