//! Public errors print the same text by `Debug` as by `Display`: a `main` that returns an error prints it by `Debug`.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The types in a source file that implement `Error`.
fn errors(text: &str) -> Vec<String> {
    let implementation = |line: &str| {
        let (before, after) = line.split_once("Error for ")?;
        let is_trait = before.is_empty() || before.ends_with(' ') || before.ends_with("::");
        let name: String = after.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        (line.starts_with("impl") && is_trait).then_some(name)
    };
    text.lines().filter_map(implementation).collect()
}

fn prints_its_text(text: &str, error: &str) -> bool {
    text.contains(&format!("debug_as_display!({error});"))
        || text.lines().any(|line| {
            line.starts_with("impl")
                && line.contains(&format!("Debug for {error}"))
                && !text.contains("debug_struct(\"Error")
        })
}

#[test]
fn debug_of_each_public_error_is_its_text() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(&root.join("core/src"), &mut files);
    for adapter in fs::read_dir(root.join("adapters")).unwrap() {
        let folder = adapter.unwrap().path().join("src");
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for error in errors(&text) {
            if !prints_its_text(&text, &error) {
                wrong.push(format!("{}: {error}", file.strip_prefix(root).unwrap().display()));
            }
            seen.push(error);
        }
    }
    assert!(
        wrong.is_empty(),
        "add `towline_core::debug_as_display!(NAME);` after the implementation of `Error`: {wrong:#?}"
    );
    // The search finds them: errors of each crate are among them.
    for name in [
        "SetupError",
        "Error",
        "Failed",
        "RejoinError",
        "OpenError",
        "LaunchError",
        "InvalidSetting",
        "LayoutError",
        "NoGid",
    ] {
        assert!(seen.iter().any(|error| error == name), "{name} was not found");
    }
    assert!(seen.len() > 40, "{}", seen.len());
}
