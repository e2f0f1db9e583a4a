//! A setting that cannot be kept is an error, for every setting and every way in which it is set. A default adapts.

use towline::{Builder, Config, Encrypt, SetupError};

/// A text that no setting but a free text accepts.
const IMPOSSIBLE: &str = "x/y:z";

type Change = fn(&mut Config);

/// For each setting whose type allows impossible values, changes that set some.
const CHANGES: [(&str, &[Change]); 62] = [
    ("transports", &[|it| it.transports = "pigeon".into(), |it| it.transports = "sm,tpc".into()]),
    ("bootstrap", &[|it| it.bootstrap = "slurm".into(), |it| it.bootstrap = String::new()]),
    ("links", &[|it| it.links = 0, |it| it.links = 65]),
    ("requests", &[|it| it.requests = 0, |it| it.requests = (1 << 24) + 1]),
    ("unexpected", &[|it| it.unexpected = u32::MAX]),
    ("units", &[|it| it.units = u32::MAX]),
    ("unit_bytes", &[|it| it.unit_bytes = 63, |it| it.unit_bytes = (1 << 20) + 1]),
    ("communicators", &[|it| it.communicators = 0, |it| it.communicators = u32::MAX]),
    ("idle_sleep_ms", &[|it| it.idle_sleep_ms = 0]),
    ("progress_thread", &[|it| it.progress_thread = "sometimes".into(), |it| it.progress_thread = String::new()]),
    ("link_window", &[|it| it.link_window = 0, |it| it.link_window = 100, |it| it.link_window = 2048]),
    ("encrypt", &[|it| (it.encrypt, it.transports) = (Encrypt::Always, "verbs".into())]),
    ("peer_timeout_ms", &[|it| (it.peer_timeout_ms, it.transports) = (31_000, "verbs".into())]),
    ("sm.directory", &[|it| it.sm.directory = "shm".into(), |it| it.sm.directory = String::new()]),
    (
        "sm.eager_ring_bytes",
        &[
            |it| it.sm.eager_ring_bytes = 1000,
            |it| it.sm.eager_ring_bytes = 1024,
            |it| it.sm.eager_ring_bytes = 1 << 27,
            |it| it.sm.eager_ring_bytes = 16_384, // too short for the default of the limit
        ],
    ),
    ("sm.eager_limit_bytes", &[|it| it.sm.eager_limit_bytes = 7, |it| it.sm.eager_limit_bytes = 60_000]),
    ("sm.bulk_ring_bytes", &[|it| it.sm.bulk_ring_bytes = 3000, |it| it.sm.bulk_ring_bytes = 512]),
    ("sm.bulk_limit_bytes", &[|it| it.sm.bulk_limit_bytes = 7, |it| it.sm.bulk_limit_bytes = 1 << 20]),
    ("sm.single_copy_bytes", &[|it| it.sm.single_copy_bytes = (1 << 20) + 1]),
    ("sm.single_copy_limit_bytes", &[|it| it.sm.single_copy_limit_bytes = (1 << 30) + 1]),
    ("sm.liveness_ms", &[|it| it.sm.liveness_ms = 0]),
    ("tcp.include", &[|it| it.tcp.include = "10.0.0.0/33".into()]),
    ("tcp.exclude", &[|it| it.tcp.exclude = "lo,10.0.0/8".into()]),
    ("tcp.ports", &[|it| it.tcp.ports = "5100-5000".into(), |it| it.tcp.ports = "70000".into()]),
    (
        "tcp.advertise",
        &[
            |it| it.tcp.advertise = "localhost".into(),
            |it| {
                (it.tcp.advertise, it.links) = ("127.0.0.1:65535".into(), 2);
            },
        ],
    ),
    ("tcp.eager_limit_bytes", &[|it| it.tcp.eager_limit_bytes = 255, |it| it.tcp.eager_limit_bytes = 1 << 30]),
    ("tcp.rendezvous_bytes", &[|it| it.tcp.rendezvous_bytes = 65_601]),
    ("tcp.max_send_bytes", &[|it| it.tcp.max_send_bytes = 4096, |it| it.tcp.max_send_bytes = u32::MAX]),
    ("tcp.splice_bytes", &[|it| it.tcp.splice_bytes = 0]),
    ("tcp.pipe_bytes", &[|it| it.tcp.pipe_bytes = u32::MAX]),
    ("tcp.send_staging_bytes", &[|it| it.tcp.send_staging_bytes = 1, |it| it.tcp.send_staging_bytes = 131_455]),
    ("tcp.socket_bytes", &[|it| it.tcp.socket_bytes = 1, |it| it.tcp.socket_bytes = 1 << 30]),
    ("tcp.host_congestion", &[|it| it.tcp.host_congestion = "nonesuch".into()]),
    ("tcp.epoll_polls", &[|it| it.tcp.epoll_polls = 0]),
    ("tcp.bandwidth_mb_s", &[|it| it.tcp.bandwidth_mb_s = 0]),
    ("tcp.connect_timeout_ms", &[|it| it.tcp.connect_timeout_ms = 0]),
    ("udp.include", &[|it| it.udp.include = "eth0/8".into()]),
    ("udp.exclude", &[|it| it.udp.exclude = "fd00::/129".into()]),
    ("udp.ports", &[|it| it.udp.ports = "0-10".into()]),
    ("udp.advertise", &[|it| it.udp.advertise = "127.0.0.1:0".into()]),
    ("udp.datagram_bytes", &[|it| it.udp.datagram_bytes = 255, |it| it.udp.datagram_bytes = 65_508]),
    ("udp.sign", &[|it| it.udp.sign = "sometimes".into()]),
    ("udp.bandwidth_mb_s", &[|it| it.udp.bandwidth_mb_s = 0]),
    ("udp.send_buffer_bytes", &[|it| it.udp.send_buffer_bytes = 1, |it| it.udp.send_buffer_bytes = 1 << 30]),
    ("udp.receive_buffer_bytes", &[|it| it.udp.receive_buffer_bytes = 1, |it| it.udp.receive_buffer_bytes = 1 << 30]),
    ("udp.connect_timeout_ms", &[|it| it.udp.connect_timeout_ms = 0]),
    ("verbs.devices", &[|it| it.verbs.devices = "mlx5_0:0".into()]),
    ("verbs.gid_index", &[|it| it.verbs.gid_index = "256".into()]),
    ("verbs.path_mtu", &[|it| it.verbs.path_mtu = 1500]),
    ("verbs.direct_bytes", &[|it| it.verbs.direct_bytes = "64K".into()]),
    ("verbs.direct_after_bytes", &[|it| it.verbs.direct_after_bytes = 1]),
    ("verbs.direct_piece_bytes", &[|it| (it.verbs.direct_piece_bytes, it.verbs.direct_bytes) = (1, "1".into())]),
    ("verbs.direct_get", &[|it| it.verbs.direct_get = true]),
    (
        "verbs.eager_limit_bytes",
        &[
            |it| it.verbs.eager_limit_bytes = 1,
            |it| {
                (it.verbs.eager_limit_bytes, it.verbs.direct_bytes) = (20_001, "20000".into());
            },
        ],
    ),
    ("verbs.max_send_bytes", &[|it| it.verbs.max_send_bytes = 4096]),
    ("verbs.inline_bytes", &[|it| it.verbs.inline_bytes = u32::MAX]),
    ("verbs.signal_every", &[|it| it.verbs.signal_every = 0, |it| it.verbs.signal_every = 33]),
    ("verbs.receive_buffers", &[|it| it.verbs.receive_buffers = 1, |it| it.verbs.receive_buffers = u32::MAX]),
    ("verbs.bandwidth_mb_s", &[|it| it.verbs.bandwidth_mb_s = 0]),
    ("dpu.windows", &[|it| it.dpu.windows = "not/absolute".into(), |it| it.dpu.windows = "/a@b".into()]),
    ("dpu.open_timeout_ms", &[|it| it.dpu.open_timeout_ms = 0]),
    ("dpu.silence_ms", &[|it| it.dpu.silence_ms = 0]),
];

/// Settings all of whose values are possible, as far as their types allow them.
fn is_unlimited(setting: &towline::Setting) -> bool {
    matches!(setting.possible.as_str(), "true or false" | "0 to 255" | "any text")
        || setting.possible.strip_suffix(setting.unit).is_some_and(|text| text.trim_end() == "0 to 4294967295")
}

/// Whether an error names the variable, the value, the reason, and what is possible.
fn says_all(why: &SetupError, variable: &str, value: &str) {
    let SetupError::Setting(setting) = why else { panic!("{variable}: {why}") };
    let text = why.to_string();
    assert_eq!(setting.variable, variable, "{text}");
    assert_eq!(setting.value, value, "{text}");
    assert!(setting.why.len() > 5 && setting.possible.len() > 1, "{text}");
    for part in [variable, &format!("`{value}`"), &setting.why, "; possible: ", &setting.possible] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(format!("{why:?}"), text);
}

#[test]
fn an_impossible_text_of_any_variable_is_an_error_that_says_what_is_possible() {
    let settings = Config::default().settings_from(|_| None).unwrap();
    for setting in &settings {
        let environment = |name: &str| (name == setting.variable).then(|| IMPOSSIBLE.to_string());
        match Config::default().settings_from(environment) {
            Err(why) => says_all(&why, setting.variable, IMPOSSIBLE),
            // Only the kernel knows the names, and only the loader the library, which is loaded where it is needed.
            Ok(_) => assert!(["tcp.host_congestion", "pmix_library"].contains(&setting.name), "{}", setting.name),
        }
    }
}

#[test]
fn an_impossible_value_of_the_program_is_an_error_that_says_so() {
    for (name, changes) in CHANGES {
        for change in changes {
            let mut config = Config::default();
            change(&mut config);
            // The value as it is listed, if nothing is checked.
            let field = format!("{config:?}").to_lowercase();
            let transport = name.split_once('.').map_or("loopback", |(transport, _)| transport);
            let builder =
                if config.transports.is_empty() { Builder::new().transports(transport) } else { Builder::new() };
            let why = builder.configure(*change).build().map(drop).unwrap_err();
            let SetupError::Setting(setting) = &why else { panic!("{name}: {why}") };
            assert_eq!(setting.variable, format!("TOWLINE_{}", name.to_uppercase().replace('.', "_")), "{why}");
            says_all(&why, setting.variable, &setting.value.clone());
            assert!(why.to_string().contains(", which the program has set,"), "{why}");
            assert!(field.contains(&setting.value.to_lowercase()), "{why}: {field}");
        }
    }
}

/// A new setting needs possible values, or a reason to have none.
#[test]
fn each_setting_has_an_impossible_value_in_the_table_or_allows_all() {
    for setting in Config::default().settings_from(|_| None).unwrap() {
        let listed = CHANGES.iter().any(|(name, _)| *name == setting.name);
        // As that of tcp and udp, and a type without impossible values.
        let extra = ["verbs.connect_timeout_ms", "unmatched"];
        assert!(
            listed || is_unlimited(&setting) || extra.contains(&setting.name),
            "{}: {}",
            setting.name,
            setting.possible
        );
    }
}

#[test]
fn the_limits_of_a_range_are_possible() {
    for setting in Config::default().settings_from(|_| None).unwrap() {
        let numbers: Vec<u32> = setting
            .possible
            .split(|letter: char| !letter.is_ascii_digit())
            .filter_map(|text| text.parse().ok())
            .collect();
        if setting.default.parse::<u32>().is_err() || setting.possible.contains("such as") {
            continue;
        }
        let [.., least, most] = numbers[..] else { panic!("{}: {}", setting.name, setting.possible) };
        for value in [least, most] {
            let environment = |name: &str| (name == setting.variable).then(|| value.to_string());
            // Other settings may restrict it further; the error then names them.
            if let Err(why) = Config::default().settings_from(environment) {
                assert!(why.to_string().matches("TOWLINE_").count() > 1, "{why}");
            }
        }
        for value in [u64::from(least).wrapping_sub(1), u64::from(most) + 1] {
            if value == 0 && setting.possible.starts_with("0,") || value > u64::from(u32::MAX) + 1 {
                continue;
            }
            let environment = |name: &str| (name == setting.variable).then(|| value.to_string());
            let why = Config::default().settings_from(environment).unwrap_err();
            says_all(&why, setting.variable, &value.to_string());
        }
    }
}

#[test]
fn a_variable_that_is_not_text_is_an_error() {
    let environment = |name: &str| (name == "TOWLINE_LINKS").then(|| "\u{fffd}".to_string());
    let why = Config::default().settings_from(environment).unwrap_err();
    says_all(&why, "TOWLINE_LINKS", "\u{fffd}");
}
