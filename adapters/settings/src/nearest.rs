//! The name that a user has probably meant.

/// How similar two names must be, from 0 to 1, so that one is suggested for the other.
const SIMILAR: f64 = 0.8;
/// The similarity of two names that differ by one letter, or by the order of two. Other measures count such a mistake as large in
/// a short name.
const ONE_MISTAKE: f64 = 0.9;

/// The known name that is most similar to `name`, if one is similar at all. Upper and lower case count as equal, and so do `-`
/// and `_`.
///
/// ```
/// use towline_settings::nearest;
///
/// assert_eq!(nearest("spinn_us", ["yield_us", "spin_us"]), Some("spin_us"));
/// assert_eq!(nearest("tpc", ["sm", "tcp", "udp"]), Some("tcp"));
/// assert_eq!(nearest("colour", ["yield_us", "spin_us"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let name = plain(name);
    let similarity = |known: &'a str| {
        let plain = plain(known);
        let one_mistake = name.len() > 2 && plain.len() > 2 && strsim::osa_distance(&name, &plain) == 1;
        let least = if one_mistake { ONE_MISTAKE } else { 0.0 };
        (strsim::jaro_winkler(&name, &plain).max(least), known)
    };
    let similar = known.into_iter().map(similarity).filter(|(similarity, _)| *similarity >= SIMILAR);
    similar.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known)
}
