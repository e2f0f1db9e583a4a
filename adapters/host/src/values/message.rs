//! The envelope of messages: source, tag and length.

/// The largest tag that programs may use. Larger ones belong to the library.
pub const TAG_MAX: u32 = 0x7fff_ffff;

/// The largest tag of a communicator of a [`Worker`](crate::Worker), for the runtime's own protocols.
pub(crate) const RUNTIME_TAG_MAX: u32 = u32::MAX - 1;

/// Matches any source or any tag: `MPI_ANY_SOURCE`, `MPI_ANY_TAG`.
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

/// The source that a receive or probe matches: a rank, or [`Any`].
///
/// ```
/// assert_eq!(towline::Source::from(3), towline::Source::Rank(3));
/// assert_eq!(towline::Source::from(towline::Any), towline::Source::Any);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A rank of the communicator.
    Rank(u32),
    /// Any rank.
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

/// The tag that a receive or probe matches: one tag, or [`Any`].
///
/// ```
/// assert_eq!(towline::Tag::from(3), towline::Tag::Is(3));
/// assert_eq!(towline::Tag::from(towline::Any), towline::Tag::Any);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tag {
    /// This tag, at most [`TAG_MAX`].
    Is(u32),
    /// Any tag.
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

    /// The tag, if it is reserved for the library.
    #[inline]
    pub(crate) const fn reserved(self) -> Option<u32> {
        match self {
            Self::Is(tag) if tag > TAG_MAX => Some(tag),
            _ => None,
        }
    }
}

/// The status of a message that was received: `MPI_Status`.
///
/// ```
/// use towline::Any;
///
/// let world = towline::init()?;
/// world.send(0, 7, &[1u16, 2])?;
/// let status = world.recv(Any, Any, &mut [0u16; 8])?;
/// assert_eq!((status.source, status.tag, status.bytes, status.count::<u16>()), (0, 7, 4, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The rank that sent the message.
    pub source: u32,
    /// The message's tag.
    pub tag: u32,
    /// The message's length in bytes.
    pub bytes: u64,
}

impl Status {
    /// The status of a completed send, which has no information.
    pub(crate) const EMPTY: Self = Self { source: 0, tag: 0, bytes: 0 };

    /// How many whole items of type `T` the message has: `MPI_Get_count`.
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

/// The envelope of a message that a probe has found.
///
/// ```
/// let world = towline::init()?;
/// world.send(0, 4, b"length?")?;
/// let envelope = world.probe(0, 4)?;
/// assert_eq!((envelope.source, envelope.tag, envelope.bytes), (0, 4, 7));
/// # world.recv(0, 4, &mut [0u8; 7])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Envelope {
    /// The rank that sent the message.
    pub source: u32,
    /// The message's tag.
    pub tag: u32,
    /// The message's length in bytes.
    pub bytes: u64,
}
