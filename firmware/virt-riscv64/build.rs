//! Tells the linker where its scripts are, and which ones the programs need.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-search={folder}");
    println!("cargo:rerun-if-changed=virt-riscv64.ld");
    println!("cargo:rustc-link-arg-bins=-Tvirt-riscv64.ld");
}
