//! The transports under test: a test's standard ones, or others where the machine has more.

/// These transports, each with a number of links; or those of the variable `TOWLINE_TEST_WAYS`, such as `verbs:1 verbs:2`.
#[allow(dead_code)]
pub fn with_links(standard: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    match std::env::var("TOWLINE_TEST_WAYS") {
        Ok(asked) => {
            let each = asked.leak().split_whitespace();
            each.map(|entry| entry.split_once(':').expect("transport:links")).collect()
        }
        Err(_) => standard.to_vec(),
    }
}

/// As [`with_links`], for tests in which the number of links does not matter.
#[allow(dead_code)]
pub fn transports(standard: &[&'static str]) -> Vec<&'static str> {
    let standard: Vec<_> = standard.iter().map(|name| (*name, "1")).collect();
    let mut names: Vec<_> = with_links(&standard).into_iter().map(|(name, _)| name).collect();
    names.dedup();
    names
}
