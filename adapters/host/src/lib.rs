//! Messages between processes: the safe Rust face of Towline.
