//! What a rank lacks for a communicator or a window.

use std::fmt;

/// What a rank lacked for its part in a communicator or a window: see [`Error::NoRoom`](crate::Error::NoRoom) and
/// [`Error::NoWindow`](crate::Error::NoWindow).
///
/// ```
/// use towline::{Builder, CommError, Error};
///
/// let world = Builder::new().configure(|config| config.communicators = 1).build()?;
/// let error = world.dup().unwrap_err(); // at other ranks, `Error::NoRoom` names this rank and `Shortage::Communicators`
/// assert_eq!(error, Error::Communicator(CommError::Full));
/// assert!(error.to_string().contains("TOWLINE_COMMUNICATORS"));
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Shortage {
    /// It has as many communicators as [`Config::communicators`](crate::Config::communicators) allows. Each window has one, too.
    Communicators,
    /// It has used up all numbers of communicators: about four thousand million.
    ContextIds,
    /// It has as many windows as possible.
    Windows,
    /// It could not allocate the memory.
    Memory,
    /// Something that this rank's version does not know.
    Unknown,
}

impl Shortage {
    /// The number on the wire. 0 stands for no shortage.
    pub(crate) fn code(shortage: Option<Self>) -> u32 {
        match shortage {
            None => 0,
            Some(Self::Communicators) => 1,
            Some(Self::ContextIds) => 2,
            Some(Self::Windows) => 3,
            Some(Self::Memory) => 4,
            Some(Self::Unknown) => u32::MAX,
        }
    }

    /// The shortage with this number on the wire.
    pub(crate) fn of_code(code: u32) -> Option<Self> {
        match code {
            0 => None,
            1 => Some(Self::Communicators),
            2 => Some(Self::ContextIds),
            3 => Some(Self::Windows),
            4 => Some(Self::Memory),
            _ => Some(Self::Unknown),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Communicators => {
                "all communicators are in use: drop some communicators or windows there, or raise TOWLINE_COMMUNICATORS"
            }
            Self::ContextIds => {
                "the numbers of communicators are used up: start the job anew, or make fewer communicators"
            }
            Self::Windows => {
                "there are as many windows as a rank can have: drop some there, or put several into one window"
            }
            Self::Memory => {
                "there is not enough memory for its part: make the part smaller, or drop other memory there"
            }
            Self::Unknown => "something is missing: see the output of that rank",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shortage_has_a_number_of_its_own() {
        let all =
            [Shortage::Communicators, Shortage::ContextIds, Shortage::Windows, Shortage::Memory, Shortage::Unknown];
        for shortage in all.map(Some).into_iter().chain([None]) {
            assert_eq!(Shortage::of_code(Shortage::code(shortage)), shortage);
        }
        assert_eq!(Shortage::of_code(77), Some(Shortage::Unknown));
    }
}
