//! What a hello means, by what is known of who says it. Pure.

use crate::wire::hello::{Hello, Stage};

/// What is known of a peer that says hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// The numbers of the connection: here, and at the other end, or zero where that is not known yet.
    pub line: Option<(u64, u64)>,
    /// Frames can travel.
    pub is_up: bool,
    /// The instance and the number of its connection that were heard of last.
    pub past: Option<(u64, u64)>,
}

/// What is to be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing: it is an old one.
    Old,
    /// The peer has closed in good order.
    Closed,
    /// The peer knows of no connection that was in use.
    Broken,
    /// The peer knows of no connection that was never used: another one is made.
    BeginAnew,
    /// The peer is told that there is no such connection.
    Unknown,
    /// A connection is made for it.
    Meet,
    /// The connection is connected to the peer's.
    Connect,
    /// It is the other end of the connection that speaks.
    Known,
    /// The peer has begun anew: so does this end.
    MeetAnew,
}

impl Verdict {
    pub fn on(hello: &Hello, standing: &Standing) -> Self {
        let Standing { line, is_up, past } = *standing;
        let old = past.is_some_and(|(instance, number)| instance == hello.from_instance && hello.number < number);
        match (hello.stage, line) {
            (stage @ (Stage::Bye | Stage::Unknown), line) => match line {
                Some((number, theirs)) if hello.echo == number || hello.number == theirs => match stage {
                    Stage::Bye => Self::Closed,
                    _ if is_up => Self::Broken,
                    _ => Self::BeginAnew,
                },
                _ => Self::Old,
            },
            _ if old => Self::Old,
            (_, None) if hello.echo != 0 || past == Some((hello.from_instance, hello.number)) => Self::Unknown,
            (_, None) => Self::Meet,
            // Of a connection that is no more: the speaker waits in vain.
            (_, Some((number, _))) if hello.echo != 0 && hello.echo != number => Self::Unknown,
            (_, Some((_, 0))) => Self::Connect,
            (_, Some((_, theirs))) if theirs == hello.number => Self::Known,
            (_, Some(_)) if is_up => Self::Broken,
            (_, Some(_)) => Self::MeetAnew,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTANCE: u64 = 4;

    /// On a hello of connection `number` that knows of connection `echo`.
    fn on(stage: Stage, number: u64, echo: u64, line: Option<(u64, u64)>, is_up: bool, past: u64) -> Verdict {
        let hello = Hello {
            stage,
            job: 1,
            from: 2,
            to: 3,
            from_instance: INSTANCE,
            to_instance: 5,
            number,
            echo,
            queue_pair: 8,
            first_packet: 9,
        };
        Verdict::on(&hello, &Standing { line, is_up, past: Some((INSTANCE, past)) })
    }

    #[test]
    fn strangers_are_met_once() {
        let stranger = |number, echo, past| on(Stage::Asks, number, echo, None, false, past);
        assert_eq!(stranger(7, 0, 6), Verdict::Meet);
        assert_eq!(stranger(7, 0, 7), Verdict::Unknown, "a connection that has ended here");
        assert_eq!(stranger(7, 20, 6), Verdict::Unknown, "it speaks of a connection that has ended here");
        assert_eq!(stranger(6, 0, 7), Verdict::Old);
        let hello = on(Stage::Tells, 6, 0, None, false, 7);
        assert_eq!(hello, Verdict::Old);
    }

    #[test]
    fn the_first_hello_connects_and_later_ones_of_it_are_known() {
        let met = |number, echo, theirs, past| on(Stage::Asks, number, echo, Some((20, theirs)), false, past);
        assert_eq!((met(7, 0, 0, 6), met(7, 20, 0, 6)), (Verdict::Connect, Verdict::Connect));
        assert_eq!((met(7, 0, 7, 7), met(7, 20, 7, 7)), (Verdict::Known, Verdict::Known));
        assert_eq!(met(7, 19, 7, 7), Verdict::Unknown, "of an earlier connection of ours");
        assert_eq!(met(6, 0, 0, 7), Verdict::Old);
    }

    #[test]
    fn who_begins_anew_breaks_what_was_in_use_and_is_met_otherwise() {
        let anew = |is_up| on(Stage::Asks, 8, 0, Some((20, 7)), is_up, 7);
        assert_eq!((anew(true), anew(false)), (Verdict::Broken, Verdict::MeetAnew));
        let unknown = |is_up| on(Stage::Unknown, 8, 20, Some((20, 7)), is_up, 7);
        assert_eq!((unknown(true), unknown(false)), (Verdict::Broken, Verdict::BeginAnew));
    }

    #[test]
    fn a_good_bye_ends_the_connection_that_it_names_by_either_number() {
        let bye = |number, echo| on(Stage::Bye, number, echo, Some((20, 7)), true, 7);
        assert_eq!((bye(7, 0), bye(9, 20)), (Verdict::Closed, Verdict::Closed));
        assert_eq!(bye(6, 19), Verdict::Old);
        assert_eq!(on(Stage::Bye, 7, 20, None, false, 7), Verdict::Old);
        assert_eq!(on(Stage::Unknown, 6, 19, Some((20, 7)), true, 7), Verdict::Old);
    }
}
