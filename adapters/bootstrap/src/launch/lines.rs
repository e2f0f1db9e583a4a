//! Assembles the lines of each rank from pieces of its output.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// Longest line that is printed in one piece. The rest of a longer line is printed as further lines with a mark.
pub const LINE_MAX: usize = 64 << 20;
/// Bytes that unfinished lines of all ranks may take together. Beyond that, the longest one is printed as if it were
/// longer than [`LINE_MAX`].
pub const UNFINISHED_MAX: usize = 256 << 20;

/// The stream on which a rank printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

/// What stands before each line that a rank prints. If a line had to be split, its later pieces have a `+` behind the
/// rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// Nothing, and no byte is added or removed.
    None,
    /// The rank, as in `[3] text`.
    Rank,
    /// The rank and the stream, in the form of Open MPI's `--tag-output`, as in `[1,3]<stdout>:text`. The first number
    /// is always 1.
    Tag,
}

impl Label {
    fn text(self, rank: u32, source: Source, continued: bool) -> String {
        let mark = if continued { "+" } else { "" };
        match (self, source) {
            (Self::None, _) => String::new(),
            (Self::Rank, _) => format!("[{rank}{mark}] "),
            (Self::Tag, Source::Stdout) => format!("[1,{rank}{mark}]<stdout>:"),
            (Self::Tag, Source::Stderr) => format!("[1,{rank}{mark}]<stderr>:"),
        }
    }
}

/// The unfinished lines of all ranks.
pub(super) struct Lines {
    label: Label,
    line_max: usize,
    unfinished_max: usize,
    unfinished: HashMap<(u32, Source), Line>,
    /// Bytes of all unfinished lines.
    held: usize,
}

/// A line without its end.
struct Line {
    /// The label, and the bytes that have come.
    text: Vec<u8>,
    label: usize,
}

impl Line {
    fn new(label: String) -> Self {
        Self { label: label.len(), text: label.into_bytes() }
    }

    fn len(&self) -> usize {
        self.text.len() - self.label
    }
}

impl Lines {
    pub(super) fn new(label: Label) -> Self {
        Self::with_limits(label, LINE_MAX, UNFINISHED_MAX)
    }

    fn with_limits(label: Label, line_max: usize, unfinished_max: usize) -> Self {
        Self { label, line_max, unfinished_max, unfinished: HashMap::new(), held: 0 }
    }

    /// Adds a piece of output. Passes the lines that are complete now to `print`, with their labels.
    pub(super) fn take(&mut self, rank: u32, source: Source, bytes: &[u8], mut print: impl FnMut(Source, &[u8])) {
        let key = (rank, source);
        let mut line = self.unfinished.remove(&key);
        self.held -= line.as_ref().map_or(0, Line::len);
        let mut complete = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            // Only new bytes are searched.
            let end = rest.iter().position(|byte| *byte == b'\n');
            let current = line.get_or_insert_with(|| Line::new(self.label.text(rank, source, false)));
            let taken = end.unwrap_or(rest.len()).min(self.line_max - current.len());
            current.text.extend_from_slice(&rest[..taken]);
            rest = &rest[taken..];
            if end == Some(taken) {
                current.text.push(b'\n');
                rest = &rest[1..];
                append(&mut complete, line.take());
            } else if !rest.is_empty() {
                self.end_piece(current);
                let next = Line::new(self.label.text(rank, source, true));
                append(&mut complete, line.replace(next));
            }
        }
        if !complete.is_empty() {
            print(source, &complete);
        }
        if let Some(line) = line {
            self.held += line.len();
            self.unfinished.insert(key, line);
        }
        while self.held > self.unfinished_max {
            self.print_longest(&mut print);
        }
    }

    /// Passes the rest of a stream that has ended to `print`.
    pub(super) fn end(&mut self, rank: u32, source: Source, print: impl FnOnce(Source, &[u8])) {
        if let Some(mut line) = self.unfinished.remove(&(rank, source)) {
            self.held -= line.len();
            if line.len() != 0 {
                self.end_piece(&mut line);
                print(source, &line.text);
            }
        }
    }

    /// Splits the longest unfinished line at its present end.
    fn print_longest(&mut self, print: &mut impl FnMut(Source, &[u8])) {
        let Some((&(rank, source), line)) = self.unfinished.iter_mut().max_by_key(|(_, line)| line.len()) else {
            return self.held = 0;
        };
        let next = Line::new(self.label.text(rank, source, true));
        let mut piece = std::mem::replace(line, next);
        self.held -= piece.len();
        self.end_piece(&mut piece);
        print(source, &piece.text);
    }

    /// Ends a piece of a line, as far as bytes may be added.
    fn end_piece(&self, line: &mut Line) {
        if self.label != Label::None {
            line.text.push(b'\n');
        }
    }
}

/// Appends a line, without a copy if there is nothing before it.
fn append(to: &mut Vec<u8>, line: Option<Line>) {
    let text = line.map_or_else(Vec::new, |line| line.text);
    if to.is_empty() {
        *to = text;
    } else {
        to.extend_from_slice(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &mut Lines, rank: u32, source: Source, bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        lines.take(rank, source, bytes, |on, text| {
            assert_eq!(on, source);
            all.extend_from_slice(text);
        });
        all
    }

    fn ended(lines: &mut Lines, rank: u32, source: Source) -> Vec<u8> {
        let mut all = Vec::new();
        lines.end(rank, source, |_, text| all.extend_from_slice(text));
        all
    }

    #[test]
    fn each_line_has_its_rank_and_partial_lines_wait_for_their_end() {
        let mut lines = Lines::new(Label::Rank);
        assert_eq!(taken(&mut lines, 3, Source::Stdout, b"one\ntw"), b"[3] one\n");
        assert_eq!(taken(&mut lines, 4, Source::Stdout, b"other\n"), b"[4] other\n");
        assert_eq!(taken(&mut lines, 3, Source::Stderr, b"err"), b"");
        assert_eq!(taken(&mut lines, 3, Source::Stdout, b"o\n\n\xff\xfe\n"), b"[3] two\n[3] \n[3] \xff\xfe\n");
        assert_eq!(ended(&mut lines, 3, Source::Stderr), b"[3] err\n");
        assert_eq!(ended(&mut lines, 3, Source::Stdout), b"");
        assert_eq!(ended(&mut lines, 9, Source::Stdout), b"");
        assert_eq!(lines.held, 0);
    }

    #[test]
    fn without_a_label_no_byte_is_added() {
        let mut lines = Lines::with_limits(Label::None, 4, 100);
        assert_eq!(taken(&mut lines, 0, Source::Stdout, b"a\r\nb"), b"a\r\n");
        assert_eq!(taken(&mut lines, 0, Source::Stdout, b"cdefghijk"), b"bcdefghi");
        assert_eq!(ended(&mut lines, 0, Source::Stdout), b"jk");
    }

    #[test]
    fn a_tag_names_rank_and_stream() {
        let mut lines = Lines::with_limits(Label::Tag, 3, 100);
        assert_eq!(taken(&mut lines, 7, Source::Stdout, b"a\n"), b"[1,7]<stdout>:a\n");
        assert_eq!(taken(&mut lines, 7, Source::Stderr, b"abcd\n"), b"[1,7]<stderr>:abc\n[1,7+]<stderr>:d\n");
    }

    #[test]
    fn a_line_is_split_only_beyond_the_limit_and_its_later_pieces_have_a_mark() {
        // The pieces in which the bytes come do not matter.
        let text = b"12345678\n123456789\n\n12345678123456781234\n12345678";
        for piece in 1..text.len() {
            let mut lines = Lines::with_limits(Label::Rank, 8, 100);
            let mut all = Vec::new();
            text.chunks(piece).for_each(|piece| all.extend(taken(&mut lines, 0, Source::Stdout, piece)));
            all.extend(ended(&mut lines, 0, Source::Stdout));
            let wanted =
                "[0] 12345678\n[0] 12345678\n[0+] 9\n[0] \n[0] 12345678\n[0+] 12345678\n[0+] 1234\n[0] 12345678\n";
            assert_eq!(String::from_utf8_lossy(&all), wanted, "{piece}");
            assert_eq!((lines.held, lines.unfinished.len()), (0, 0));
        }
    }

    #[test]
    fn unfinished_lines_of_all_ranks_are_bounded_together() {
        let mut lines = Lines::with_limits(Label::Rank, 100, 10);
        assert_eq!(taken(&mut lines, 0, Source::Stdout, b"123456"), b"");
        let mut all = Vec::new();
        lines.take(1, Source::Stderr, b"abcde", |on, text| all.push((on, text.to_vec())));
        assert_eq!(all, [(Source::Stdout, b"[0] 123456\n".to_vec())], "the longest is printed");
        assert_eq!(lines.held, 5);
        assert_eq!(taken(&mut lines, 0, Source::Stdout, b"789\nx"), b"[0+] 789\n");
        assert_eq!(ended(&mut lines, 0, Source::Stdout), b"[0] x\n");
        assert_eq!(ended(&mut lines, 1, Source::Stderr), b"[1] abcde\n");
        assert_eq!(lines.held, 0);
    }
}
