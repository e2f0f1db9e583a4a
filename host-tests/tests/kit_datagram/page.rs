//! The code on the page `firmware/NEW-BOARD.md` is part of its example.

use std::fs;
use std::path::Path;

/// The blocks of Rust code of a page, without indentation.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while lines.any(|line| line == "```rust") {
        found.push(lines.by_ref().take_while(|line| *line != "```").map(str::trim).collect());
    }
    found
}

#[test]
fn the_code_of_the_page_about_a_new_board_is_that_of_the_example() {
    let firmware = Path::new(env!("CARGO_MANIFEST_DIR")).join("../firmware");
    let page = fs::read_to_string(firmware.join("NEW-BOARD.md")).unwrap();
    let example = firmware.join("example-nic");
    let mut sources = vec![fs::read_to_string(example.join("build.rs")).unwrap()];
    for folder in ["src", "src/bin"].map(|folder| example.join(folder)) {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        sources.extend(files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap()));
    }
    let sources: Vec<Vec<&str>> = sources.iter().map(|text| text.lines().map(str::trim).collect()).collect();
    let blocks = blocks(&page);
    assert!(blocks.len() > 8, "{} blocks", blocks.len());
    for block in blocks {
        let known = sources.iter().any(|source| source.windows(block.len()).any(|part| part == block));
        assert!(known, "this code of NEW-BOARD.md is not in firmware/example-nic:\n{}", block.join("\n"));
    }
}
