//! The identity of components. With it, a component finds the data of its counterparts in peers.

use core::fmt;

/// A version of a framework, a component type or a component.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Version {
    /// Changes if old and new versions cannot communicate.
    pub major: u16,
    /// Changes if functions are added.
    pub minor: u16,
    /// Changes for any other reason. It is ignored when components are compared.
    pub release: u16,
}

impl Version {
    /// The version `major.minor.release`.
    pub const fn new(major: u16, minor: u16, release: u16) -> Self {
        Self { major, minor, release }
    }

    /// Whether one version reads the data of the other: major and minor are equal.
    pub const fn corresponds(self, other: Self) -> bool {
        self.major == other.major && self.minor == other.minor
    }
}

/// The identity of a component. The component publishes data under it, and peers find the data under it.
///
/// It may be a constant. Both names must not be empty, and have at most [`Component::KIND_MAX`] and [`Component::NAME_MAX`]
/// bytes. Operations refuse a component that is not [valid](Component::is_valid).
///
/// ```
/// use towline_core::modex::{Component, Version};
///
/// const OLD: Component = Component {
///     mca: Version::new(2, 1, 0),
///     kind: "btl",
///     kind_version: Version::new(3, 3, 0),
///     name: "tcp",
///     version: Version::new(5, 0, 7),
/// };
/// const NEW: Component = Component { version: Version::new(5, 0, 8), ..OLD };
/// const NEXT: Component = Component { version: Version::new(5, 1, 0), ..OLD };
/// assert!(OLD.corresponds(&NEW)); // release numbers do not matter
/// assert!(!OLD.corresponds(&NEXT));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Component<'a> {
    /// The version of the component architecture.
    pub mca: Version,
    /// The name of the component's type, such as `btl`.
    pub kind: &'a str,
    /// The version of the type's interface.
    pub kind_version: Version,
    /// The name of the component, such as `tcp`.
    pub name: &'a str,
    /// The version of the component.
    pub version: Version,
}

impl Component<'_> {
    /// The most bytes of a type's name: the limit of Open MPI's component architecture.
    pub const KIND_MAX: usize = 31;
    /// The most bytes of a component's name: the limit of Open MPI's component architecture.
    pub const NAME_MAX: usize = 63;

    /// Whether one component reads the data of the other: both names, and the major and minor numbers of all three versions,
    /// are equal. Release numbers are ignored.
    pub fn corresponds(&self, other: &Component<'_>) -> bool {
        self.mca.corresponds(other.mca)
            && self.kind == other.kind
            && self.kind_version.corresponds(other.kind_version)
            && self.name == other.name
            && self.version.corresponds(other.version)
    }

    /// Whether the lengths of both names are within the limits.
    pub const fn is_valid(&self) -> bool {
        !self.kind.is_empty()
            && self.kind.len() <= Self::KIND_MAX
            && !self.name.is_empty()
            && self.name.len() <= Self::NAME_MAX
    }
}

impl fmt::Display for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}.{}", self.kind, self.name, self.version.major, self.version.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    const ME: Component = Component {
        mca: Version::new(2, 1, 0),
        kind: "btl",
        kind_version: Version::new(3, 1, 0),
        name: "tcp",
        version: Version::new(5, 0, 7),
    };

    #[test]
    fn x2_each_of_the_five_parts_is_compared_and_the_release_is_not() {
        let next = |v: Version| [Version { major: v.major + 1, ..v }, Version { minor: v.minor + 1, ..v }];
        for version in next(ME.mca) {
            assert!(!ME.corresponds(&Component { mca: version, ..ME }));
        }
        for version in next(ME.kind_version) {
            assert!(!ME.corresponds(&Component { kind_version: version, ..ME }));
        }
        for version in next(ME.version) {
            assert!(!ME.corresponds(&Component { version, ..ME }));
        }
        assert!(!ME.corresponds(&Component { kind: "mtl", ..ME }));
        assert!(!ME.corresponds(&Component { kind: "bt", ..ME }));
        assert!(!ME.corresponds(&Component { name: "tcp2", ..ME }));

        let released = |v: Version| Version { release: v.release + 9, ..v };
        let newer = Component {
            mca: released(ME.mca),
            kind_version: released(ME.kind_version),
            version: released(ME.version),
            ..ME
        };
        assert!(ME.corresponds(&newer) && newer.corresponds(&ME));
    }

    #[test]
    fn names_must_have_a_length_that_fits() {
        let long = String::from_utf8(std::vec![b'n'; 64]).unwrap();
        assert!(ME.is_valid());
        assert!(Component { kind: &long[..31], name: &long[..63], ..ME }.is_valid());
        for kind in ["", &long[..32]] {
            assert!(!Component { kind, ..ME }.is_valid());
        }
        for name in ["", &long] {
            assert!(!Component { name, ..ME }.is_valid());
        }
    }
}
