pub(crate) mod segmentation;
pub(crate) mod socket;
