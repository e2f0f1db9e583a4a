//! A word that stands for a jumper on the board, which tells equal boards apart. The emulator sets it by its option `-device
//! loader,addr=0x203ffff8,data=1,data-len=4` before the program starts.

/// The last words of RAM, which memory.x leaves free. The start-up code does not write to it.
const ADDRESS: usize = 0x203f_fff8;

/// The lowest byte of the word: 0 without the option.
pub fn read() -> u8 {
    // SAFETY: the address is a word of RAM, which no other code uses.
    unsafe { (ADDRESS as *const u32).read_volatile() as u8 }
}
