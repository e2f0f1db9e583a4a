//! When it does not work.
