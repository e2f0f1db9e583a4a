//! Lines of text without the formatting of the standard library, which takes more code than a small program has.

use embedded_io::Write;

/// The stream took no more bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unwritten;

/// Writes lines of text and numbers to a stream.
#[derive(Debug)]
pub struct Report<W>(W);

impl<W: Write> Report<W> {
    /// A report to a stream.
    pub const fn new(stream: W) -> Self {
        Self(stream)
    }

    /// A line `NAME: FIRST WORDS SECOND`.
    ///
    /// # Errors
    /// [`Unwritten`].
    pub fn line(&mut self, name: &str, first: usize, words: &str, second: usize) -> Result<(), Unwritten> {
        self.text(name)?;
        self.text(": ")?;
        self.number(first)?;
        self.text(words)?;
        self.text(" ")?;
        self.number(second)?;
        self.text("\n")
    }

    /// A number.
    ///
    /// # Errors
    /// [`Unwritten`].
    pub fn number(&mut self, number: usize) -> Result<(), Unwritten> {
        let mut digits = [0; 20];
        let (mut rest, mut count) = (number, 0);
        for to in digits.iter_mut().rev() {
            *to = b'0' + (rest % 10) as u8;
            (rest, count) = (rest / 10, count + 1);
            if rest == 0 {
                break;
            }
        }
        let digits = digits.last_chunk::<20>().and_then(|all| all.get(20_usize.saturating_sub(count)..));
        self.bytes(digits.unwrap_or_default())
    }

    /// Some text.
    ///
    /// # Errors
    /// [`Unwritten`].
    pub fn text(&mut self, text: &str) -> Result<(), Unwritten> {
        self.bytes(text.as_bytes())
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Unwritten> {
        while !bytes.is_empty() {
            let written = self.0.write(bytes).map_err(|_| Unwritten)?;
            bytes = bytes.get(written..).filter(|_| written != 0).ok_or(Unwritten)?;
        }
        Ok(())
    }
}
