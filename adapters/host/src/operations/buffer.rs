//! Buffers that operations may own.

use std::rc::Rc;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Memory that a send may own while it is in progress: see [`isend`](crate::Communicator::isend).
///
/// ```
/// struct Record {
///     header: u32,
///     text: Vec<u8>,
/// }
///
/// impl towline::Buffer for Record {
///     fn bytes(&self) -> &[u8] {
///         &self.text
///     }
/// }
///
/// let world = towline::init()?;
/// let sending = world.isend(0, 1, Record { header: 7, text: b"only this".to_vec() })?;
/// assert_eq!(world.recv_vec::<u8>(0, 1)?.0, b"only this");
/// assert_eq!(sending.wait()?.header, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Buffer: 'static {
    /// The bytes of the message. Called once for each send. The slice must stay valid while the buffer is not touched.
    fn bytes(&self) -> &[u8];
}

/// Memory that a receive may own while it is in progress: see [`irecv`](crate::Communicator::irecv).
///
/// ```
/// struct Page(Box<[u8]>);
///
/// impl towline::BufferMut for Page {
///     fn bytes_mut(&mut self) -> &mut [u8] {
///         &mut self.0
///     }
/// }
///
/// let world = towline::init()?;
/// let receiving = world.irecv(0, 1, Page(vec![0; 4096].into()))?;
/// world.send(0, 1, b"text")?;
/// assert_eq!(receiving.wait()?.0.0[..4], *b"text");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait BufferMut: 'static {
    /// The bytes to receive into. Called once for each receive.
    fn bytes_mut(&mut self) -> &mut [u8];
}

macro_rules! buffers {
    ($([$($generic:tt)*] $type:ty;)*) => {
        $(impl<T: IntoBytes + Immutable + 'static, $($generic)*> Buffer for $type {
            fn bytes(&self) -> &[u8] {
                self[..].as_bytes()
            }
        })*
    };
}

macro_rules! mutable_buffers {
    ($([$($generic:tt)*] $type:ty;)*) => {
        $(impl<T: FromBytes + IntoBytes + 'static, $($generic)*> BufferMut for $type {
            fn bytes_mut(&mut self) -> &mut [u8] {
                self[..].as_mut_bytes()
            }
        })*
    };
}

buffers! {
    [] Vec<T>;
    [] Box<[T]>;
    [const N: usize] [T; N];
    [] Rc<[T]>;
    [] Arc<[T]>;
    [] Arc<Vec<T>>;
    [] &'static [T];
}

mutable_buffers! {
    [] Vec<T>;
    [] Box<[T]>;
    [const N: usize] [T; N];
}

impl Buffer for String {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}
