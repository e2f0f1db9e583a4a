//! What of the rail kit a rail can bear that loses frames, over UDP rails of one process: on a loopback with room in the
//! sockets, a few frames at a time get through.

use std::os::fd::AsFd;

use towline_host_tests::kit::bench::Setup;
use towline_host_tests::kit::sockets::Sockets;
use towline_tcp::JobKey;
use towline_udp::{Config, Rail};

fn udp(change: fn(&mut Config)) -> impl Setup<Rail = Rail> {
    let make = move |rank, link| {
        let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
        config.link = link;
        config.within_host = true;
        config.idle_interval_polls = 1;
        change(&mut config);
        Rail::new(config).expect("this host has a loopback")
    };
    Sockets::new(make, Rail::as_fd)
}

/// The checks that do not send more than a socket takes.
macro_rules! raw_suite {
    ($setup:expr) => {
        towline_host_tests::rail_suite! { @each $setup;
            b32_p34_attributes_keep_their_own_rules
            p6_b1_endpoints_lead_to_the_peer_they_were_given_for
            p6_b4_a_card_that_is_none_is_refused
            p34_b50_frames_of_boundary_sizes_arrive_whole
            p34_b50_one_byte_too_long_is_refused
            p26_headers_of_every_length_come_with_the_event
            b12_an_abandoned_grant_sends_nothing
            b9_kept_frames_stay_and_go_in_any_order
            p28_p29_short_sinks_are_not_overrun
            p28_bodies_land_in_the_sink_alone
            p28_what_is_lent_is_fetched_until_the_peer_is_forgotten
            p26_reads_see_what_is_in_and_no_more
            b17_what_was_copied_may_be_scribbled_on
            b17_all_drains
            p30_frames_are_sent_while_one_is_held
            p7_b5_a_peer_goes_and_comes_again
            p6_b14_unknown_endpoints_are_unreachable
            p7_b14_an_end_that_leaves_is_unreachable_and_is_reported_lost_once
            b2_p10_an_idle_rail_reports_nothing
            an_armed_rail_loses_no_frame
        }
    };
}

mod defaults {
    use super::*;
    raw_suite!(udp(|_| {}));
}

/// A datagram a call, each of them signed, little room, and looks at the socket now and then.
mod plain {
    use super::*;
    raw_suite!(udp(|config| {
        config.segmentation = false;
        config.sign = Some(true);
        config.datagram_bytes = 1400;
        config.send_staging_bytes = 1;
        config.send_queue_frames = 4;
        config.frames_at_once = 0;
        config.frames_kept = 1;
        config.idle_interval_polls = 7;
    }));
}

/// IPv6, and no faster than so many megabytes per second.
mod ipv6_paced {
    use super::*;
    raw_suite!(udp(|config| {
        config.filter.include = vec!["::1".into()];
        config.pacing_megabytes_per_second = 100;
    }));
}
