//! Floor 1: what a path to peers is, and what stands directly on it.

pub mod attributes;
pub mod loopback;
pub mod rail;
pub mod selection;
pub mod tags;

pub use attributes::{Attributes, Capabilities};
pub use rail::{
    Cookie, Delivery, Endpoint, Event, Frame, FrameId, Grant, HEAD, Lane, Lost, Peer, Rail, SendError, Sent, Shape,
    Ticket, Unreachable,
};
