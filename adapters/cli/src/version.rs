//! The version of this build: number, commit, features and wire version.

use std::sync::LazyLock;

use towline_core::wire;

/// The version's number.
pub const NUMBER: &str = env!("CARGO_PKG_VERSION");
/// The first digits of the commit, or `unknown`. The build script finds it.
pub const COMMIT: &str = env!("COMMIT_OF_TOWLINE");

/// The features with which this program was built.
pub fn features() -> Vec<&'static str> {
    let all = [("sim", cfg!(feature = "sim")), ("verbs", cfg!(feature = "verbs"))];
    all.into_iter().filter(|(_, built)| *built).map(|(name, _)| name).collect()
}

/// The text of `towline --version`, without the program's name.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let features = features();
        let features = if features.is_empty() { "none".into() } else { features.join(", ") };
        format!("{NUMBER}\ncommit {COMMIT}\nfeatures {features}\nwire version {}", wire::VERSION)
    });
    &TEXT
}
