//! The program `dpu` on Linux: dpu WINDOW ADDRESS[,ADDRESS] [BYTES [ADVERTISED[,ADVERTISED]]]
//!
//! WINDOW is the file of the window, which the host has made. Each ADDRESS is an address and port at which other devices reach this
//! one by UDP: two of them are two links. BYTES is the length of the longest datagram. ADVERTISED are the addresses and ports that
//! other devices are told in place of those, those of a relay.

fn main() {
    if let Err(why) = linux::card::configure(std::env::args_os().skip(1).map(text)) {
        eprintln!("dpu: {why}");
        std::process::exit(100);
    }
    std::process::exit(i32::try_from(dpu::run::<linux::Machine>()).unwrap_or(1));
}

/// An argument. A path that is no text is used as far as it is text, and is not found.
fn text(argument: std::ffi::OsString) -> String {
    argument.to_string_lossy().into_owned()
}
