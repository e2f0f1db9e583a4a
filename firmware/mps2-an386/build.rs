//! Tells the linker where its scripts are, and which ones the programs need.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-search={folder}");
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rerun-if-changed=device.x");
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    if std::env::var_os("CARGO_FEATURE_FULL").is_some() {
        println!("cargo:rustc-link-arg-bins=-Tdefmt.x");
    }
}
