//! The pools of an engine: the holders of their elements, how long an element is held, and how many elements are enough.
//!
//! Two rules keep an engine free of deadlock, whatever the sizes:
//!
//! - No holder is refused its share: the sum of the shares of all holders of a pool is at most the pool's size.
//! - Nothing waits in a circle: while a holder has an element of a [`Pool`], it waits only for pools that come before this pool.
//!   The first pools are the room of the rails, which the other side frees by polling alone.
//!
//! In particular no request waits for an envelope or a payload unit. A message without credit is sent as an answer when a receive
//! asks for it, which takes a control frame and room for a first fragment (see the folder `flow`). So envelopes and units make
//! messages faster, but progress does not depend on them. [`Config::shares`] lists the holders; the compiler checks that the list
//! keeps both rules.

use crate::pml::limits::config::Config;
use crate::pml::limits::errors::TooFew;

/// The pools, in their order: a holder of an element waits only for earlier pools.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Pool {
    /// Space for control frames on a rail. No other frame may use it. The other side frees it by polling.
    ControlRoom,
    /// Space for first and later fragments on a rail. The other side frees it by polling, and does not wait for a match first: it
    /// delivers, keeps or drops each frame at once.
    FrameRoom,
    /// [`Config::requests`].
    Requests,
    /// [`Config::units`].
    Units,
    /// [`Config::unexpected`].
    Envelopes,
    /// [`Config::probes`]: envelopes beyond all credit.
    Spares,
}

impl Pool {
    /// The number of elements with which every operation still comes to an end, however slowly.
    pub const fn least(self) -> u32 {
        match self {
            Self::ControlRoom | Self::FrameRoom | Self::Requests | Self::Spares => 1,
            Self::Units | Self::Envelopes => 0,
        }
    }

    /// The name of the limit in the configuration.
    const fn name(self) -> &'static str {
        match self {
            Self::ControlRoom => "room for control frames",
            Self::FrameRoom => "room for frames",
            Self::Requests => "requests",
            Self::Units => "units",
            Self::Envelopes => "unexpected",
            Self::Spares => "probes",
        }
    }
}

/// A holder's share of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Share {
    /// The pool.
    pub pool: Pool,
    /// Most elements that the holder has at once.
    pub most: u64,
    /// The holder, in words.
    pub holder: &'static str,
    /// The event that frees an element, in words.
    pub until: &'static str,
    /// The pools from which the holder may need an element before that.
    pub waits_for: &'static [Pool],
}

impl Config {
    /// All holders of elements of the pools that this configuration sizes.
    pub const fn shares(&self) -> [Share; 4] {
        [
            Share {
                pool: Pool::Requests,
                most: self.most(Pool::Requests),
                holder: "the caller: sends, receives and held-back messages that matched probes took",
                until: "the caller takes the outcome; one more is refused as busy",
                waits_for: &[Pool::ControlRoom, Pool::FrameRoom],
            },
            Share {
                pool: Pool::Units,
                most: self.most(Pool::Units),
                holder: "each peer, within its credit: payload that came before its receive",
                until: "its envelope goes",
                waits_for: &[Pool::ControlRoom, Pool::FrameRoom, Pool::Requests],
            },
            Share {
                pool: Pool::Envelopes,
                most: self.most(Pool::Envelopes),
                holder: "each peer, within its credit: messages before their turn or their receive",
                until: "a receive takes the message, or its sender was told that it is refused",
                waits_for: &[Pool::ControlRoom, Pool::FrameRoom, Pool::Requests],
            },
            Share {
                pool: Pool::Spares,
                most: self.most(Pool::Spares),
                holder: "answers that probes asked for; one more goes back to its sender",
                until: "a receive or a matched probe takes it, or its sender was told that it goes back",
                waits_for: &[Pool::ControlRoom, Pool::Requests],
            },
        ]
    }

    /// Most elements that the holders of a pool's elements have at once.
    const fn most(&self, pool: Pool) -> u64 {
        let (envelopes, units) = self.quota();
        match pool {
            Pool::Requests => self.requests as u64,
            Pool::Units => self.peers as u64 * units as u64,
            Pool::Envelopes => self.peers as u64 * envelopes as u64,
            Pool::Spares => self.probes as u64,
            Pool::ControlRoom | Pool::FrameRoom => 0,
        }
    }

    /// The size of a pool, if this configuration sets it.
    const fn size(&self, pool: Pool) -> u32 {
        match pool {
            Pool::Requests => self.requests,
            Pool::Units => self.units,
            Pool::Envelopes => self.unexpected,
            Pool::Spares => self.probes,
            Pool::ControlRoom | Pool::FrameRoom => u32::MAX, // each rail promises this room in its attributes
        }
    }

    /// Checks that an engine with these limits can complete every operation that it begins.
    ///
    /// # Errors
    /// [`TooFew`], with the first pool that is too small.
    pub const fn check(&self) -> Result<(), TooFew> {
        if self.peers == 0 {
            return Err(TooFew { what: "peers", has: 0, least: 1 });
        }
        let mut left: &[Pool] = &[Pool::Requests, Pool::Units, Pool::Envelopes, Pool::Spares];
        while let [pool, rest @ ..] = left {
            let (pool, has) = (*pool, self.size(*pool));
            // Each pool has one kind of holder, so its one share is the sum of all.
            let least = if self.most(pool) > has as u64 { u32::MAX } else { pool.least() };
            if has < least {
                return Err(TooFew { what: pool.name(), has, least });
            }
            left = rest;
        }
        Ok(())
    }
}

/// No holder waits in a circle, and the smallest configuration is accepted.
const _: () = {
    let shares = Config::SMALLEST.shares();
    let mut left = shares.as_slice();
    while let [share, others @ ..] = left {
        let mut waits_for = share.waits_for;
        while let [first, rest @ ..] = waits_for {
            assert!((*first as u8) < share.pool as u8, "a holder waits for its own pool, or for one behind it");
            waits_for = rest;
        }
        if let [next, ..] = others {
            assert!((share.pool as u8) < next.pool as u8, "a pool has two kinds of holders: sum them up");
        }
        left = others;
    }
    assert!(Config::SMALLEST.check().is_ok());
};
