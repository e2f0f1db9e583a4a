//! Has the C compiler link libtowline.so by [linker/ld.bfd](linker/ld.bfd), which gives its functions a version.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=linker/ld.bfd");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo::rustc-cdylib-link-arg=-B{}/linker/", env!("CARGO_MANIFEST_DIR"));
        // The last choice counts: rustc's own is lld.
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=bfd");
    }
}
