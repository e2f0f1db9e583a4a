pub(crate) mod options;
pub(crate) mod socket;
