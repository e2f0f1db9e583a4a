//! The kernel's buffers of sockets: which lengths this host allows.

use std::io;

use socket2::{Domain, Socket, Type};
use towline_settings::{InvalidSetting, Values};

/// Possible lengths of a buffer. The kernel makes each buffer at least as long as this range begins.
pub const BUFFER: Values = Values::range(MIN_BUFFER, 1 << 30);
/// Bytes of the shortest buffer. The kernel makes a send buffer no shorter.
const MIN_BUFFER: u32 = 2304;
/// The kernel reserves as much again for its own structures, and tells the sum.
const DOUBLED: usize = 2;

/// Checks that the kernel gives a socket of this process a send buffer and a receive buffer of these lengths in bytes. `variables`
/// are the settings of the two lengths.
///
/// # Errors
/// A length above the limit of the system. If no socket can be made, nothing is known, and nothing is refused.
pub fn check_buffers(variables: [&'static str; 2], lengths: [Option<u32>; 2]) -> Result<(), InvalidSetting> {
    let [sends, receives] = lengths.map(|length| length.map(|length| length as usize));
    let granted = [
        (sends, "net.core.wmem_max", sends.and_then(|length| granted_for_sends(length).ok())),
        (receives, "net.core.rmem_max", receives.and_then(|length| granted_for_receives(length).ok())),
    ];
    for (variable, (length, limit, granted)) in variables.into_iter().zip(granted) {
        if let (Some(length), Some(granted)) = (length, granted)
            && granted < length
        {
            let why = format!("is above the limit of this host, {limit}, which is {granted}");
            let possible = format!("{MIN_BUFFER} to {granted} B, or more with a higher {limit}");
            return Err(InvalidSetting::new(variable, length, why, possible));
        }
    }
    Ok(())
}

fn granted_for_sends(length: usize) -> io::Result<usize> {
    let socket = socket()?;
    socket.set_send_buffer_size(length)?;
    Ok(socket.send_buffer_size()? / DOUBLED)
}

fn granted_for_receives(length: usize) -> io::Result<usize> {
    let socket = socket()?;
    socket.set_recv_buffer_size(length)?;
    Ok(socket.recv_buffer_size()? / DOUBLED)
}

/// A socket that is not used: the limits hold for all families.
fn socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::DGRAM, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_above_the_limit_of_the_system_is_refused_with_the_limit() {
        assert_eq!(check_buffers(["S", "R"], [None, None]), Ok(()));
        assert_eq!(check_buffers(["S", "R"], [Some(MIN_BUFFER), Some(MIN_BUFFER)]), Ok(()));
        for (lengths, variable, limit) in
            [([Some(1 << 30), None], "S", "wmem_max"), ([Some(4096), Some(1 << 30)], "R", "rmem_max")]
        {
            let why = check_buffers(["S", "R"], lengths).unwrap_err();
            assert!(why.variable == variable && why.to_string().contains(limit), "{why}");
        }
    }
}
