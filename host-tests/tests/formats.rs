//! Public types of the core and the window implement `defmt::Format` with the feature `defmt`, so that firmware logs them as they are.
//! The lints of the gate compile the core with that feature.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Types that own tables, or memory of others, and are no values to be logged. Their counters and attributes are.
const STATES: &[&str] = &[
    "arena: Arena",
    "btl/module/dump: Dump",
    "btl/module/state: Btl",
    "link/state: Link",
    "modex/set: SetWriter",
    "modex/store: Store",
    "mtl/transport: Mtl",
    "pml/engine: Pml",
    "pml/matching/matcher: Matcher",
    "pool: Pool",
    "pool: Slot",
    "ptl/cache: Cache",
    "rail/bundle/state: Bundle",
    "rail/grant: Grant",
    "rail/loopback: Hub",
    "rail/loopback: Rail",
    "rail/stack: Placed",
    "rail/stack: Traced",
    "rail/stack: Tuned",
    "window/device: Device",
    "window/host: Attaching",
    "window/host: Host",
    "window/host_log: HostLog",
    "window/memory: Memory",
    "window/placed_log: DeviceLog",
    "window/placed_log: Log",
    "window/placed_ring: Ring",
];

/// Source files of a crate, without those of tests.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = ["tests", "tests.rs", "testing"].iter().any(|name| path.ends_with(name));
        if path.is_dir() && !is_test {
            files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
            found.push(path);
        }
    }
}

/// The file with the module that contains the module of a file.
fn parent(file: &Path) -> Option<PathBuf> {
    let (folder, name) = (file.parent()?, file.file_stem()?);
    let above = if name == "mod" { folder.parent()? } else { folder };
    if name == "lib" {
        return None;
    }
    [above.join("mod.rs"), above.with_extension("rs"), above.join("lib.rs")].into_iter().find(|path| path.exists())
}

/// The name of the module of a file.
fn module(file: &Path) -> String {
    let stem = if file.ends_with("mod.rs") { file.parent().unwrap().file_stem() } else { file.file_stem() };
    stem.unwrap().to_str().unwrap().to_string()
}

/// Whether users of the crate can name a type of this file: its modules are public, or one above exports it.
fn is_public(file: &Path, name: &str) -> bool {
    let (mut below, mut is_open) = (file.to_path_buf(), true);
    while let Some(above) = parent(&below) {
        let text = fs::read_to_string(&above).unwrap();
        let module = module(&below);
        let statements = text.split(';').filter_map(|statement| statement.split_once("pub use ").map(|(_, what)| what));
        let mut exports = statements.filter(|what| what.trim_start_matches("self::").starts_with(&module));
        if exports.any(|what| what.split(|c: char| !c.is_alphanumeric()).any(|word| word == name)) {
            return is_public(&above, name);
        }
        is_open &= text.lines().any(|line| line.trim() == format!("pub mod {module};"));
        below = above;
    }
    is_open
}

/// The types that a file defines with `pub`, and whether each can be logged.
fn types(text: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let kinds = ["pub struct ", "pub enum ", "pub union "];
        let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
        let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
        if name.is_empty() {
            continue; // the name is an argument of a macro
        }
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with('#') || line.starts_with("//"));
        let is_derived = attributes.copied().any(|line| line.contains("derive(defmt::Format)"));
        let is_written = [
            format!("defmt::Format for {name} "),
            format!("format_by_debug!({name})"),
            format!("format_by_debug!({name}<"),
        ]
        .iter()
        .any(|implementation| text.contains(implementation));
        found.push((name, is_derived || is_written));
    }
    found
}

#[test]
fn public_types_of_the_core_and_the_window_can_be_logged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut seen, mut missing) = (0, BTreeSet::new());
    for (source, prefix) in [("core/src", ""), ("adapters/window/src", "window/")] {
        let source = root.join(source);
        let mut found = Vec::new();
        files(&source, &mut found);
        for file in found {
            let place = file.strip_prefix(&source).unwrap().with_extension("");
            for (name, can_be_logged) in types(&fs::read_to_string(&file).unwrap()) {
                if is_public(&file, &name) {
                    seen += 1;
                    if !can_be_logged {
                        missing.insert(format!("{prefix}{}: {name}", place.display()));
                    }
                }
            }
        }
    }
    let states: BTreeSet<String> = STATES.iter().map(|state| (*state).to_string()).collect();
    let new: Vec<_> = missing.difference(&states).collect();
    assert!(
        new.is_empty(),
        "add #[cfg_attr(feature = \"defmt\", derive(defmt::Format))], or the state to the list: {new:#?}"
    );
    let old: Vec<_> = states.difference(&missing).collect();
    assert!(old.is_empty(), "these states do not exist, or can be logged: {old:#?}");
    // The search finds them.
    assert!(seen > 200, "{seen}");
}
