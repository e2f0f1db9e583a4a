//! The platform-level interrupt controller. Interrupts stay masked in the processor, so one that arrives only ends a wait.

/// The priorities of the interrupts, a word each.
const PRIORITIES: usize = 0x0c00_0000;
/// For machine mode of the first core: the words with the bits that enable interrupts, the least priority that counts, and the interrupt
/// that was requested.
const ENABLE: usize = PRIORITIES + 0x2000;
const THRESHOLD: usize = PRIORITIES + 0x20_0000;
const CLAIM: usize = THRESHOLD + 4;
/// Interrupts that the machine has.
const MOST: u32 = 96;

/// Lets an interrupt end waits.
pub fn enable(interrupt: u32) {
    if interrupt == 0 || interrupt >= MOST {
        return;
    }
    let place = (interrupt / 32 * 4) as usize;
    // SAFETY: the addresses are registers of the interrupt controller.
    unsafe {
        ((PRIORITIES + interrupt as usize * 4) as *mut u32).write_volatile(1);
        (THRESHOLD as *mut u32).write_volatile(0);
        let word = (ENABLE + place) as *mut u32;
        word.write_volatile(word.read_volatile() | 1 << (interrupt % 32));
    }
}

/// Takes the requests back whose sources have taken back theirs. Otherwise they would end the next wait at once.
pub fn take_back() {
    for _ in 0..MOST {
        // SAFETY: the address is a register of the interrupt controller. Reading it claims an interrupt, and writing it says that the
        // interrupt is handled.
        unsafe {
            let claimed = (CLAIM as *const u32).read_volatile();
            if claimed == 0 {
                return;
            }
            (CLAIM as *mut u32).write_volatile(claimed);
        }
    }
}
