//! The action for a received hello, depending on the state of the connection to its sender.

use crate::wire::hello::{Hello, HelloKind};

/// The known state of the connection to the peer that sent a hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownConnection {
    /// The numbers of the connection: our own, and the peer's, which is zero while it is not known.
    pub numbers: Option<(u64, u64)>,
    /// Whether frames can travel.
    pub is_established: bool,
    /// The instance in the last hello that counted, and the number of its sender's connection.
    pub last_heard: Option<(u64, u64)>,
}

/// The action that a hello calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HelloAction {
    /// None: the hello is an old one.
    Ignore,
    /// The peer has closed normally.
    Closed,
    /// The peer does not know a connection that was in use: the peer is lost.
    Broken,
    /// The peer does not know a connection that was never used: another one is made.
    Reconnect,
    /// The peer is notified that there is no such connection.
    RejectUnknown,
    /// A connection is made for the peer.
    Accept,
    /// Our queue pair is connected to the peer's.
    Connect,
    /// The hello belongs to the connection that is known.
    Confirm,
    /// The peer has started a new connection, which replaces ours.
    Replace,
}

impl HelloAction {
    /// The action for a hello; `known` is what is known of the connection to its sender.
    pub fn on(hello: &Hello, known: &KnownConnection) -> Self {
        let KnownConnection { numbers, is_established, last_heard } = *known;
        let sender = hello.identity.from_instance;
        let old = last_heard.is_some_and(|(instance, number)| instance == sender && hello.number < number);
        match (hello.kind, numbers) {
            (kind @ (HelloKind::Goodbye | HelloKind::Unknown), numbers) => match numbers {
                Some((number, theirs)) if hello.echo == number || hello.number == theirs => match kind {
                    HelloKind::Goodbye => Self::Closed,
                    _ if is_established => Self::Broken,
                    _ => Self::Reconnect,
                },
                _ => Self::Ignore,
            },
            _ if old => Self::Ignore,
            (_, None) if hello.echo != 0 || last_heard == Some((sender, hello.number)) => Self::RejectUnknown,
            (_, None) => Self::Accept,
            // The hello names a connection of ours that has ended. Without an answer its sender would wait forever.
            (_, Some((number, _))) if hello.echo != 0 && hello.echo != number => Self::RejectUnknown,
            (_, Some((_, 0))) => Self::Connect,
            (_, Some((_, theirs))) if theirs == hello.number => Self::Confirm,
            (_, Some(_)) if is_established => Self::Broken,
            (_, Some(_)) => Self::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_net::Identity;

    use super::*;

    const INSTANCE: u64 = 4;

    /// The action on a hello of connection `number` that knows of our connection `echo`.
    fn on(
        kind: HelloKind,
        number: u64,
        echo: u64,
        numbers: Option<(u64, u64)>,
        is_established: bool,
        last_heard: u64,
    ) -> HelloAction {
        let hello = Hello {
            kind,
            identity: Identity { job: 1, from: 2, to: 3, from_instance: INSTANCE, to_instance: 5 },
            number,
            echo,
            queue_pair: 8,
            first_packet: 9,
        };
        let last_heard = Some((INSTANCE, last_heard));
        HelloAction::on(&hello, &KnownConnection { numbers, is_established, last_heard })
    }

    #[test]
    fn a_connection_of_an_unknown_number_is_accepted_once() {
        let unknown = |number, echo, last_heard| on(HelloKind::Request, number, echo, None, false, last_heard);
        assert_eq!(unknown(7, 0, 6), HelloAction::Accept);
        assert_eq!(unknown(7, 0, 7), HelloAction::RejectUnknown, "a connection that has ended here");
        assert_eq!(unknown(7, 20, 6), HelloAction::RejectUnknown, "it names a connection that has ended here");
        assert_eq!(unknown(6, 0, 7), HelloAction::Ignore);
        let hello = on(HelloKind::Reply, 6, 0, None, false, 7);
        assert_eq!(hello, HelloAction::Ignore);
    }

    #[test]
    fn the_first_hello_connects_and_later_ones_confirm() {
        let connecting =
            |number, echo, theirs, last| on(HelloKind::Request, number, echo, Some((20, theirs)), false, last);
        assert_eq!((connecting(7, 0, 0, 6), connecting(7, 20, 0, 6)), (HelloAction::Connect, HelloAction::Connect));
        assert_eq!((connecting(7, 0, 7, 7), connecting(7, 20, 7, 7)), (HelloAction::Confirm, HelloAction::Confirm));
        assert_eq!(connecting(7, 19, 7, 7), HelloAction::RejectUnknown, "of an earlier connection of ours");
        assert_eq!(connecting(6, 0, 0, 7), HelloAction::Ignore);
    }

    #[test]
    fn a_new_connection_breaks_one_in_use_and_replaces_one_that_is_not() {
        let anew = |is_established| on(HelloKind::Request, 8, 0, Some((20, 7)), is_established, 7);
        assert_eq!((anew(true), anew(false)), (HelloAction::Broken, HelloAction::Replace));
        let unknown = |is_established| on(HelloKind::Unknown, 8, 20, Some((20, 7)), is_established, 7);
        assert_eq!((unknown(true), unknown(false)), (HelloAction::Broken, HelloAction::Reconnect));
    }

    #[test]
    fn a_goodbye_ends_the_connection_that_it_names_by_either_number() {
        let goodbye = |number, echo| on(HelloKind::Goodbye, number, echo, Some((20, 7)), true, 7);
        assert_eq!((goodbye(7, 0), goodbye(9, 20)), (HelloAction::Closed, HelloAction::Closed));
        assert_eq!(goodbye(6, 19), HelloAction::Ignore);
        assert_eq!(on(HelloKind::Goodbye, 7, 20, None, false, 7), HelloAction::Ignore);
        assert_eq!(on(HelloKind::Unknown, 6, 19, Some((20, 7)), true, 7), HelloAction::Ignore);
    }
}
