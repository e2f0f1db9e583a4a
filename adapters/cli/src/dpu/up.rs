//! `towline dpu up`: starts DPUs, the relay between them, and the job.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use towline_bootstrap::launch::Log;
use towline_net::counted;

use super::arguments::Up;
use super::boards::{assign, programs};
use super::devices::{Device, Devices};
use super::relay::{Network, Relay};
use super::signals;
use super::watch::Watch;
use crate::run;
use crate::transports::OF_DPUS;

/// Runs the job. Returns its exit status.
///
/// # Errors
/// A text that says why it was not started.
pub fn run(arguments: Up) -> Result<ExitCode, String> {
    let boards = assign(&arguments.board, arguments.ranks, arguments.protocol)?;
    if !arguments.transport.iter().any(|name| OF_DPUS.contains(&name.as_str())) {
        return Err(format!("--transport names no transport that uses DPUs: add {}", OF_DPUS.join(" or ")));
    }
    if arguments.cut.is_some_and(|cut| cut.link >= arguments.links as usize) {
        return Err("--cut names a link that --links does not make".into());
    }
    let programs = programs(&boards, arguments.firmware.as_deref())?;
    signals::hold();
    let log = Log::to_standard_error().map_err(|why| format!("cannot start a thread: {why}"))?;
    let log = Arc::new(log);
    let folder = tempfile::Builder::new().prefix("towline-dpu-").tempdir();
    let folder = folder.map_err(|why| format!("cannot make a folder for the windows: {why}"))?;
    let path = usable(folder.path())?;
    let are_machines: Vec<_> = boards.iter().map(|board| board.is_emulated()).collect();
    let network = Network::new(path, &are_machines, arguments.links as usize, arguments.protocol);
    let mut network =
        network.map_err(|why| format!("cannot make the sockets of the relay: {why}{}", towline_net::advice(&why)))?;
    let boards: Vec<_> = boards.into_iter().zip(programs).collect();
    let (devices, said) = Devices::start(&boards, path, &network, &log)?;
    network.set_processes(&devices.addresses());
    devices.describe(&network).iter().for_each(|line| log.print(line));
    let places = devices.0.iter().map(|device| (device.file.clone(), device.board.window().offset)).collect::<Vec<_>>();
    let relay = Relay::start(network, arguments.rates(), arguments.seed, arguments.cut);
    let relay = relay.map_err(|why| format!("cannot start the relay: {why}"))?;
    let watch = Watch::start(&places, said, Arc::clone(&log));
    let watch = watch.map_err(|why| format!("cannot watch the windows: {why}{}", towline_net::advice(&why)))?;
    let links = arguments.links as usize;
    let windows: Vec<_> = devices.0.iter().map(Device::place).collect();
    let status = run::run(run::Arguments::of(arguments.job(&windows.join(",")))?);
    watch.stop();
    drop((devices, watch));
    let counts = relay.end();
    log.print(format!(
        "relay: {}, {} lost, {} doubled, {} held back",
        counted(counts.frames, "frame"),
        counts.lost,
        counts.doubled,
        counts.held
    ));
    for (link, frames) in counts.by_link.iter().enumerate().take(links).filter(|_| links > 1) {
        log.print(format!("link {link}: {}", counted(*frames, "frame")));
    }
    Ok(status)
}

/// The path of a folder, if it can be a part of a list of windows and of the options of QEMU.
fn usable(folder: &Path) -> Result<&Path, String> {
    let is_usable = folder.to_str().is_some_and(|path| !path.contains(','));
    let why =
        || format!("the folder {} has a comma in its name, or no text: set TMPDIR to another one", folder.display());
    is_usable.then_some(folder).ok_or_else(why)
}
