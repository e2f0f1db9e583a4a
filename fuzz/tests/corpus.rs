//! The checked-in corpora, and inputs around them, on a stable toolchain.

use std::path::Path;

#[test]
fn every_input_of_every_corpus_passes() {
    for (name, run) in towline_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let inputs: Vec<_> = folder.read_dir().expect("each target has a corpus").map(|entry| entry.unwrap()).collect();
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for input in inputs {
            let data = std::fs::read(input.path()).unwrap();
            println!("{name}: {}", input.path().display());
            run(&data);
            run(&data[..data.len() / 2]);
        }
    }
}
