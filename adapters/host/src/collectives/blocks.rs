//! Blocks: the parts of a buffer that belong to single ranks.

use crate::errors::error::Error;

/// Divides items into one block for each rank, with these lengths, one after the other: the counts of `MPI_Gatherv` and others.
///
/// # Errors
/// [`Error::WrongCounts`] if the counts do not add up to the number of items.
///
/// ```
/// let items = [1, 2, 3, 4];
/// assert_eq!(towline::blocks(&items, &[1, 3])?, [&[1][..], &[2, 3, 4]]);
/// assert!(towline::blocks(&items, &[1, 2]).is_err());
/// # Ok::<(), towline::Error>(())
/// ```
pub fn blocks<'a, T>(items: &'a [T], counts: &[usize]) -> Result<Vec<&'a [T]>, Error> {
    check_total(items.len(), counts)?;
    let mut rest = items;
    Ok(counts.iter().filter_map(|count| rest.split_off(..*count)).collect())
}

/// As [`blocks`], for blocks that are received into.
///
/// # Errors
/// As [`blocks`].
///
/// ```
/// let mut items = [1, 2, 3, 4];
/// let mut blocks = towline::blocks_mut(&mut items, &[1, 0, 3])?;
/// blocks[2][0] = 7;
/// assert_eq!(items, [1, 7, 3, 4]);
/// # Ok::<(), towline::Error>(())
/// ```
pub fn blocks_mut<'a, T>(items: &'a mut [T], counts: &[usize]) -> Result<Vec<&'a mut [T]>, Error> {
    check_total(items.len(), counts)?;
    let mut rest = items;
    Ok(counts.iter().filter_map(|count| rest.split_off_mut(..*count)).collect())
}

fn check_total(items: usize, counts: &[usize]) -> Result<(), Error> {
    let sum = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
    if sum == items { Ok(()) } else { Err(Error::WrongCounts { sum, items }) }
}

/// Checks that a slice has as many items as a collective operation needs.
pub(crate) fn check_length(expected: usize, given: usize) -> Result<(), Error> {
    if expected == given { Ok(()) } else { Err(Error::WrongLength { expected, given }) }
}

/// Two different blocks, the second one to be changed.
pub(crate) fn pair<'b>(blocks: &'b mut [&mut [u8]], one: usize, other: usize) -> (&'b [u8], &'b mut [u8]) {
    match blocks.get_disjoint_mut([one, other]) {
        Ok([one, other]) => (&**one, &mut **other),
        Err(_) => (&[], &mut []), // the callers name two different blocks
    }
}
