//! Floor 3: requests, matching, the order of messages and their schedule over the rails.

pub mod matching;
