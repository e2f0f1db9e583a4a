//! The numbers that a host gets for what its device makes: the place in a table in the lower half, and how often the place was used in
//! the upper half. So the number of a thing that has ended is refused, until its place was used 65,536 times.

/// The number of the thing in a place that was used so many times.
pub const fn join(place: u32, uses: u16) -> u32 {
    (uses as u32) << 16 | place
}

/// The place of a number, and the uses of the place.
pub const fn split(number: u32) -> (usize, u16) {
    ((number & 0xffff) as usize, (number >> 16) as u16)
}
