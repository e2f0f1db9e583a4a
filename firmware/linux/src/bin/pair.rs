//! The program `pair` on Linux.

fn main() {
    std::process::exit(i32::try_from(pair::run::<linux::Machine>()).unwrap_or(1));
}
