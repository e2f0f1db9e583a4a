//! The memory of this process as a region of its device: the device reads and writes long messages where they lie.
//!
//! There is one region for all memory, so nothing is registered again when the program allocates or frees memory. Then the device can
//! access all memory of the process at any time, as a device on the bus without an IOMMU can. Its firmware is trusted with that.
//! The setting `TOWLINE_DPU_HOST_MEMORY` takes that back.

use towline_window::command::{Command, HostRange, KeyPlace};

use crate::errors::Refusal;
use crate::transport::Transport;

/// The first minor version of the window with host regions.
const SINCE: u32 = 3;
/// The addresses of a process. They are below the middle of 64 bits on all processors.
const ALL: HostRange = HostRange { address: 0, bytes: i64::MAX as u64 };

/// What a device on Linux needs: `PID` and a zero, the process id, the address of a word, and its value.
fn description(word: &u64) -> [u8; 24] {
    let mut description = [0; 24];
    let address = std::ptr::from_ref(word).expose_provenance() as u64;
    let id = std::process::id();
    let parts: [&[u8]; 4] = [b"PID\0", &id.to_le_bytes(), &address.to_le_bytes(), &word.to_ne_bytes()];
    for (to, byte) in description.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *byte;
    }
    description
}

impl Transport {
    /// Lets the device read and write long messages where they lie in this process. Returns whether it can: some devices do not reach
    /// the memory of their host, and older ones do not know the command. Then messages are copied, as before.
    ///
    /// # Errors
    /// [`Refusal::Lost`]: the device has failed.
    pub fn reach_memory(&mut self) -> Result<bool, Refusal> {
        let version = self.card_of_window().map_or(0, |card| card.version);
        if self.reaches_memory() || version & 0xffff < SINCE {
            return Ok(self.reaches_memory());
        }
        // The device reads this word to find out whether it reaches the memory.
        let word = Box::new(getrandom::u64().unwrap_or(1));
        let place = self.staged(&description(&word))?;
        let command = Command::RegisterHost {
            memory: ALL,
            description: KeyPlace { region: place.region, at: place.at },
            bytes: place.bytes as u32,
        };
        let registered = self.call(&command);
        drop(word);
        match registered {
            Ok(done) => self.use_region(done.value),
            Err(why @ Refusal::Lost(_)) => return Err(why),
            Err(_) => {}
        }
        Ok(self.reaches_memory())
    }
}
