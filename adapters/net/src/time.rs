//! Conversion of the standard library's durations to those of the core.

use towline_core::time::Duration;

/// The core's duration for one of the standard library. The longest one is 2^64 - 1 nanoseconds, about 584 years.
///
/// ```
/// use towline_core::time::Duration;
///
/// assert_eq!(towline_net::time::core_duration(std::time::Duration::from_millis(5)), Duration::from_millis(5));
/// ```
pub fn core_duration(duration: std::time::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
