//! Publications of a rank.

use towline_core::modex::{Component, Version};

/// The identity of a component, with owned names.
#[derive(Clone)]
pub(super) struct Name {
    pub(super) versions: [Version; 3],
    pub(super) kind: String,
    pub(super) name: String,
}

impl Name {
    pub(super) fn new(of: &Component<'_>) -> Self {
        Self { versions: [of.mca, of.kind_version, of.version], kind: of.kind.into(), name: of.name.into() }
    }

    pub(super) fn component(&self) -> Component<'_> {
        let [mca, kind_version, version] = self.versions;
        Component { mca, kind: &self.kind, kind_version, name: &self.name, version }
    }
}

pub(super) struct Published {
    pub(super) name: Name,
    pub(super) revision: u32,
    pub(super) data: Vec<u8>,
}
