//! What ranks print: whole lines, each with its rank before it, and no byte lost.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A longer piece without a line's end is passed on as if it ended there, so that memory stays bounded.
const LINE_MAX: usize = 1 << 20;

/// Where a rank printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

/// Takes what ranks print. May block: the ranks then wait, too.
pub(super) trait Sink: Send + Sync {
    fn output(&self, rank: u32, source: Source, bytes: &[u8]);
    /// The rank will print nothing more there.
    fn end(&self, rank: u32, source: Source);
}

/// Prints what ranks print, on the launcher's own standard output and error.
pub(super) struct Printer<O, E> {
    lines: Mutex<Lines>,
    out: Mutex<O>,
    err: Mutex<E>,
    broken: Box<dyn Fn() + Send + Sync>,
}

impl<O: Write + Send, E: Write + Send> Printer<O, E> {
    /// Calls `broken` whenever nobody reads the output any more.
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
        // Held while printing, so that the pieces of one rank stay in order.
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

/// Gathers lines from pieces.
struct Lines {
    prefix: bool,
    partial: HashMap<(u32, Source), Vec<u8>>,
}

impl Lines {
    /// The lines that are whole now, as they are to be printed.
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
        self.dress(rank, whole)
    }

    fn end(&mut self, rank: u32, source: Source) -> Vec<u8> {
        let rest = self.partial.remove(&(rank, source)).unwrap_or_default();
        self.dress(rank, rest)
    }

    fn dress(&self, rank: u32, text: Vec<u8>) -> Vec<u8> {
        if !self.prefix {
            return text;
        }
        let mut dressed = Vec::with_capacity(text.len() + 64);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            dressed.extend_from_slice(format!("[{rank}] ").as_bytes());
            dressed.extend_from_slice(line);
        }
        if dressed.last().is_some_and(|last| *last != b'\n') {
            dressed.push(b'\n');
        }
        dressed
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
    fn each_line_has_its_rank_and_partial_ones_wait_for_their_end() {
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
    fn without_prefix_not_a_byte_is_added() {
        let mut lines = lines(false);
        assert_eq!(lines.take(0, Source::Stdout, b"a\r\nb"), b"a\r\n");
        assert_eq!(lines.end(0, Source::Stdout), b"b");
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_pieces() {
        let mut lines = lines(true);
        let half = vec![b'x'; LINE_MAX / 2];
        assert_eq!(lines.take(0, Source::Stdout, &half), b"");
        assert_eq!(lines.take(0, Source::Stdout, &half).len(), LINE_MAX + 5);
        assert_eq!(lines.end(0, Source::Stdout), b"");
    }

    #[test]
    fn a_reader_that_went_away_is_reported() {
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
