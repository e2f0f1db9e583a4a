//! What is said about messages: where from, which tag, how long.

/// The largest tag that programs may use. Those above belong to the library.
pub const TAG_MAX: u32 = 0x7fff_ffff;

/// Matches any source, or any tag.
///
/// ```
/// use towline::Any;
///
/// let world = towline::init()?;
/// world.scope(|s| {
///     s.isend(0, 3, b"to myself")?;
///     let envelope = world.probe(Any, Any)?;
///     assert_eq!((envelope.source, envelope.tag, envelope.bytes), (0, 3, 9));
///     world.recv(Any, 3, &mut [0u8; 9])?;
///     Ok::<(), towline::Error>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Any;

/// Whom a receive or probe takes from: a rank, or [`Any`].
///
/// ```
/// assert_eq!(towline::Source::from(3), towline::Source::Rank(3));
/// assert_eq!(towline::Source::from(towline::Any), towline::Source::Any);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A rank of the communicator.
    Rank(u32),
    /// Any.
    Any,
}

impl From<u32> for Source {
    #[inline]
    fn from(rank: u32) -> Self {
        Self::Rank(rank)
    }
}

impl From<Any> for Source {
    #[inline]
    fn from(_: Any) -> Self {
        Self::Any
    }
}

impl Source {
    #[inline]
    pub(crate) const fn core(self) -> towline_core::mtl::Source {
        match self {
            Self::Rank(rank) => towline_core::mtl::Source::Rank(rank),
            Self::Any => towline_core::mtl::Source::Any,
        }
    }

    pub(crate) const fn rank(self) -> Option<u32> {
        match self {
            Self::Rank(rank) => Some(rank),
            Self::Any => None,
        }
    }
}

/// Which tags a receive or probe takes: one, or [`Any`].
///
/// ```
/// assert_eq!(towline::Tag::from(3), towline::Tag::Is(3));
/// assert_eq!(towline::Tag::from(towline::Any), towline::Tag::Any);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tag {
    /// This one, at most [`TAG_MAX`].
    Is(u32),
    /// Any.
    Any,
}

impl From<u32> for Tag {
    #[inline]
    fn from(tag: u32) -> Self {
        Self::Is(tag)
    }
}

impl From<Any> for Tag {
    #[inline]
    fn from(_: Any) -> Self {
        Self::Any
    }
}

impl Tag {
    #[inline]
    pub(crate) const fn core(self) -> towline_core::mtl::Tag {
        match self {
            Self::Is(tag) => towline_core::mtl::Tag::Is(tag),
            Self::Any => towline_core::mtl::Tag::Any,
        }
    }

    /// The tag, if it is one that programs may not use.
    #[inline]
    pub(crate) const fn foreign(self) -> Option<u32> {
        match self {
            Self::Is(tag) if tag > TAG_MAX => Some(tag),
            _ => None,
        }
    }
}

/// A message that was received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Who sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Status {
    /// How many whole items of a type it holds.
    ///
    /// ```
    /// let world = towline::init()?;
    /// let mut into = [0f64; 8];
    /// let status = world.sendrecv(&[1.5f64, 2.5], 0, 0, &mut into, 0, 0)?;
    /// assert_eq!((status.count::<f64>(), &into[..2]), (2, &[1.5, 2.5][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn count<T>(&self) -> usize {
        match size_of::<T>() {
            0 => 0,
            size => self.bytes as usize / size,
        }
    }
}

/// A message that is there, and not received.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Envelope {
    /// Who sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: u64,
}
