//! Readers and writers of little-endian numbers and byte strings, in order and without a panic.

/// Reads items from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, back) = self.bytes.split_at_checked(count)?;
        self.bytes = back;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, back) = self.bytes.split_first_chunk()?;
        self.bytes = back;
        Some(*front)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) const fn rest(self) -> &'a [u8] {
        self.bytes
    }
}

/// Writes items to a buffer. A method returns `None` if its item does not fit, and has then written nothing.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    free: &'a mut [u8],
    written: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(into: &'a mut [u8]) -> Self {
        Self { free: into, written: 0 }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let (front, _) = self.free.split_at_mut_checked(bytes.len())?;
        copy(front, bytes);
        let (_, back) = core::mem::take(&mut self.free).split_at_mut_checked(bytes.len())?;
        self.free = back;
        self.written = self.written.saturating_add(bytes.len());
        Some(())
    }

    pub(super) fn u8(&mut self, value: u8) -> Option<()> {
        self.put(&[value])
    }

    pub(super) fn u16(&mut self, value: u16) -> Option<()> {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> Option<()> {
        self.put(&value.to_le_bytes())
    }

    pub(super) const fn left(&self) -> usize {
        self.free.len()
    }

    pub(super) const fn written(&self) -> usize {
        self.written
    }
}

/// Copies as many bytes as both slices have.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}
