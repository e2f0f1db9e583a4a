//! `include/towline.h` is what the crate declares. With TOWLINE_WRITE_HEADER=1 this test writes it.

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_root_or_default(root);
    let bindings = cbindgen::Builder::new().with_crate(root).with_config(config).generate().expect("a header");
    let mut header = Vec::new();
    bindings.write(&mut header);
    // What Rust calls the safety of a function is a precondition.
    let header = String::from_utf8(header).unwrap().replace(" * # Safety\n * ", " * @pre ");
    let path = root.join("include/towline.h");
    if std::env::var_os("TOWLINE_WRITE_HEADER").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &header).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == header,
        "run `TOWLINE_WRITE_HEADER=1 cargo test -p towline-c --test header`, and look at the difference"
    );
}
