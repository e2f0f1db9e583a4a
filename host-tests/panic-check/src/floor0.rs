//! The arena, pools and time.

use core::ptr::NonNull;

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::pool::{Handle, Pool};
use towline_core::time::{Duration, Instant};

use crate::{any, bytes, keep};

/// Reaches all functions of the arena, of pools and of time.
pub fn reach() {
    let mut memory = [0; 4096];
    arena(&mut memory);
    let _ = pool::<u64>(&mut Arena::new(&mut memory));
    let _ = pool::<[u8; 3]>(&mut Arena::new(&mut memory));
    time();
}

fn arena(memory: &mut [u8; 4096]) {
    let mut arena = Arena::new(bytes(memory));
    keep(arena.table::<u8>(any(0)).is_ok());
    keep(arena.table::<u64>(any(0)).is_ok());
    keep(arena.filled::<u32>(any(0), any(7)).is_ok());
    keep(arena.each(any(0), |arena, index| arena.table::<u16>(index)).is_ok());
    keep((arena.left(), Arena::cost::<u64>(any(0))));
    // SAFETY: never run; for the linker only.
    keep(unsafe { Arena::from_zeroed(any(NonNull::dangling()), any(0)) }.table::<u32>(any(0)).is_ok());
}

fn pool<'m, T: zerocopy::FromZeros + Copy + 'm>(arena: &mut Arena<'m>) -> Result<(), OutOfMemory> {
    let mut pool: Pool<'m, T> = Pool::new(arena, any(0))?;
    let handle = Handle::from_bits(any(0));
    keep((handle.to_bits(), handle.slot(), Pool::<T>::cost(any(0))));
    loop {
        match any(0) {
            0 => keep(pool.take(any(T::new_zeroed()))),
            1 => keep(pool.free(any(handle))),
            2 => keep(pool.get(any(handle))),
            3 => keep(pool.get_mut(any(handle)).is_some()),
            4 => keep(pool.handle(any(0))),
            5 => keep(pool.at(any(0))),
            6 => keep(pool.at_mut(any(0)).is_some()),
            7 => keep((pool.capacity(), pool.used(), pool.most_used(), pool.touched())),
            8 => keep(pool.take_uncleared().is_some()),
            _ => return Ok(()),
        }
    }
}

fn time() {
    let (a, b) = (Instant::from_nanos(any(0)), Instant::from_nanos(any(0)));
    keep((a - b, a.since(b), a + Duration::from_millis(any(0)), b + Duration::from_secs(any(0)), a.as_nanos()));
}
