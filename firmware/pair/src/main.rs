//! Two contexts of the core in one bare-metal program, over the loopback rail.
#![no_std]
#![no_main]

use board::{Block, print, semihosting, stack};
use towline_core::arena::Arena;
use towline_core::btl::loopback::Hub;
use towline_core::btl::{Event, Lane, Peer, Rail, Shape};
use towline_core::time::Instant;

static MEMORY: Block<{ 64 * 1024 / 8 }> = Block::new();

defmt::timestamp!("{=u64}", board::ticks());

#[unsafe(no_mangle)]
fn program() -> u32 {
    let status = exchange().is_none();
    let Some(mut channel) = semihosting::Channel::create(c"pair.defmt") else { return 3 };
    let Ok(counts) = trace::drain(&mut channel) else { return 4 };
    print!("log: {} frames, {} lost\n", counts.frames, counts.lost);
    print!("stack: {} of {} bytes\n", stack::deepest(), stack::size());
    u32::from(status)
}

fn exchange() -> Option<()> {
    let mut arena = Arena::new(MEMORY.take()?);
    let hub = Hub::new(&mut arena, 2, 8, 1024).ok()?;
    let (mut left, mut right) = (hub.rail(0)?, hub.rail(1)?);
    let to_right = left.add_peer(Peer(1), right.card()).ok()?;
    right.add_peer(Peer(0), left.card()).ok()?;
    defmt::info!("rails: {}", left.attributes());
    let mut grant = left.reserve(to_right, Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 }).ok()?;
    grant.write(0, b"hello");
    let ticket = grant.finish();
    left.commit(ticket);
    let Some(Event::Frame(frame)) = right.poll(Instant::ZERO) else { return None };
    print!("{} bytes from peer {}\n", frame.len, frame.from.0);
    (frame.head() == b"hello").then_some(())
}
