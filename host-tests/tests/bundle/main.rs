//! Bundles of links on simulated rails: the rail kit, links that are cut and come back, and order over the BTL face.

mod cuts;
mod order;
mod setup;
mod suite;
