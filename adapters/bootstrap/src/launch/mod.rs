//! Starting ranks.
