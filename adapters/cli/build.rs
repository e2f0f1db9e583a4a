//! Finds the commit that this build is made from, for `towline --version`: in a package from the file that cargo puts
//! there, in the repository from git's files. No program is run, so builds need no git. If there is neither, the commit is
//! unknown. Nothing else of the build depends on time or place.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=COMMIT_OF_TOWLINE={}", commit(&folder).as_deref().unwrap_or("unknown"));
}

/// The first digits of the commit from which this crate in `folder` is built.
pub fn commit(folder: &Path) -> Option<String> {
    let whole = of_package(folder).or_else(|| of_repository(folder))?;
    let is_commit = whole.len() >= 40 && whole.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| whole[..12].to_string())
}

/// The commit of a package: cargo writes `{"git": {"sha1": "..."}, ...}` into it.
fn of_package(folder: &Path) -> Option<String> {
    let text = read(&folder.join(".cargo_vcs_info.json"))?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(str::to_string)
}

/// The commit of the repository, if this folder is `adapters/cli` of it. A copy of the crate in another repository does
/// not have that repository's commit.
fn of_repository(folder: &Path) -> Option<String> {
    let root = folder.parent()?.parent()?;
    if !folder.ends_with("adapters/cli") || !root.join("core/WIRE.md").exists() {
        return None;
    }
    let git = root.join(".git");
    // In a further work tree, `.git` is a file that names the folder, and `commondir` in it names that of the repository.
    let git = match fs::read_to_string(&git) {
        Ok(text) => root.join(text.strip_prefix("gitdir:")?.trim()),
        Err(_) => git,
    };
    let common = read(&git.join("commondir")).map_or_else(|| git.clone(), |path| git.join(path.trim()));
    let head = read(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return Some(head.trim().to_string()) };
    if let Some(commit) = read(&common.join(name)) {
        return Some(commit.trim().to_string());
    }
    // A commit to the branch makes its file, and so changes this folder.
    let branches = common.join(name);
    branches.parent().filter(|path| path.exists()).into_iter().for_each(watch);
    let packed = read(&common.join("packed-refs"))?;
    let of_name = |line: &str| line.strip_suffix(name)?.strip_suffix(' ').map(str::to_string);
    packed.lines().find_map(of_name)
}

/// Reads a file, and builds again when it changes.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    watch(path);
    Some(text)
}

fn watch(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}
