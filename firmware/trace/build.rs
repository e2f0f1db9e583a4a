//! Adds this folder to the linker's search path, so that the linker finds its script.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-search={folder}");
    println!("cargo:rerun-if-changed=log-strings.x");
}
