//! Starting ranks and exchanging their business cards.
