//! Numbers of things in texts.

/// A number of things, as text.
///
/// ```
/// assert_eq!([0, 1, 2].map(|count| towline_net::counted(count, "rank")), ["0 ranks", "1 rank", "2 ranks"]);
/// ```
pub fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
