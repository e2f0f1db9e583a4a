//! Calls of the C interface in any order, with handles that are valid, stale, of another kind, or invented, and with memory that is
//! always as long as it says.
//!
//! Contexts of one rank send to themselves, and access their own windows. Calls that wait are made only where something is there to
//! be waited for.

use std::ffi::{c_int, c_void};
use std::ptr;

use arbitrary::{Arbitrary, Unstructured};
use towline_c::atomic::{towline_window_accumulate, towline_window_compare_swap, towline_window_fetch_op};
use towline_c::communicator::{
    towline_comm_acknowledge_failures, towline_comm_dup, towline_comm_free, towline_comm_rank, towline_comm_size,
    towline_comm_split,
};
use towline_c::context::{
    towline_finish, towline_init, towline_leave, towline_progress, towline_report, towline_world,
};
use towline_c::counters::{towline_counter, towline_counter_at, towline_counter_count};
use towline_c::error::{Code, towline_error_text};
use towline_c::handles::{CommHandle, ContextHandle, LayoutHandle, MessageHandle, RequestHandle, WindowHandle};
use towline_c::layout::{
    towline_layout_free, towline_layout_functions, towline_layout_resized, towline_layout_size, towline_layout_struct,
    towline_layout_vector,
};
use towline_c::probe::{towline_improbe, towline_imrecv, towline_iprobe, towline_message_discard};
use towline_c::receive::towline_irecv;
use towline_c::request::{Status, towline_cancel, towline_test, towline_test_any};
use towline_c::send::towline_isend;
use towline_c::sleep::{towline_arm, towline_wait_fd};
use towline_c::window::{
    towline_window_allocate, towline_window_base, towline_window_create, towline_window_fence, towline_window_flush,
    towline_window_free, towline_window_get, towline_window_put, towline_window_size,
};

/// Bytes of the memory of each operation. A layout that reaches beyond it is not used for memory.
const BYTES: usize = 4096;
/// The memory begins here, so that displacements may be negative.
const ORIGIN: usize = 1024;

/// One call.
#[derive(Arbitrary, Debug)]
enum Call {
    Init(bool),
    Finish(Pick),
    Leave(Pick),
    Progress(Pick),
    Report(Pick, u8, u8),
    World(Pick),
    Dup(Pick),
    Split(Pick, u8),
    FreeComm(Pick),
    Look(Pick),
    Vector { count: u8, block: u8, stride: i16, item: Pick },
    Struct { blocks: [u8; 3], places: [i16; 3], item: Pick },
    Resized(Pick, i16),
    Functions { size: u8, packs: bool, unpacks: bool },
    FreeLayout(Pick),
    Send { comm: Pick, layout: Pick, count: u8, dest: u8, tag: u8, mode: u8 },
    Receive { comm: Pick, layout: Pick, count: u8, source: u8, tag: u8 },
    Test(Pick),
    TestAny,
    Cancel(Pick),
    Probe(Pick, u8),
    Take(Pick, u8),
    ReceiveTaken { message: Pick, layout: Pick, count: u8 },
    Discard(Pick),
    Arm(Pick),
    Counter(Pick, u8),
    Allocate { comm: Pick, bytes: u8, access: u8 },
    Create { comm: Pick, bytes: u8, shift: u8, access: u8 },
    LookAtWindow(Pick, u8),
    Put { window: Pick, bytes: u8, rank: u8, offset: Offset },
    Get { window: Pick, bytes: u8, rank: u8, offset: Offset },
    Accumulate { window: Pick, op: u8, word: u8, count: u8, rank: u8, offset: Offset },
    FetchOp { window: Pick, op: u8, word: u8, rank: u8, offset: Offset },
    CompareSwap { window: Pick, word: u8, rank: u8, offset: Offset },
    Flush(Pick, u8),
    Fence(Pick),
    FreeWindow(Pick),
}

/// A place in a window: mostly within it.
#[derive(Arbitrary, Debug)]
enum Offset {
    Near(u8),
    Far(u64),
}

impl Offset {
    fn get(&self) -> u64 {
        match self {
            Self::Near(offset) => (*offset).into(),
            Self::Far(offset) => *offset,
        }
    }
}

/// A handle: one that a call has returned, whether it is still valid or not, or any bits.
#[derive(Arbitrary, Debug)]
enum Pick {
    Returned(u8),
    Null,
    Bits(u64),
}

impl Pick {
    fn from<T: Copy>(&self, returned: &[T], make: impl Fn(u64) -> T) -> T {
        match self {
            Self::Returned(index) if !returned.is_empty() => returned[usize::from(*index) % returned.len()],
            Self::Bits(bits) => make(*bits),
            _ => make(0),
        }
    }
}

/// The memory of operations in progress. It lives as long as the contexts.
struct Memory(Vec<Box<[u8; BYTES]>>);

impl Memory {
    fn origin(&mut self) -> *mut u8 {
        self.0.push(Box::new([7; BYTES]));
        let last = self.0.last_mut().expect("just pushed");
        last.as_mut_ptr().wrapping_add(ORIGIN)
    }
}

unsafe extern "C" fn pack(
    _: *mut c_void,
    _: *const c_void,
    _: usize,
    offset: u64,
    to: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the library passes memory of this length.
    unsafe { to.cast::<u8>().write_bytes(offset as u8, bytes) };
    0
}

unsafe extern "C" fn unpack(
    _: *mut c_void,
    _: *mut c_void,
    _: usize,
    offset: u64,
    from: *const c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: as above.
    let data = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
    c_int::from(offset == 0 && data.first() == Some(&3))
}

/// A layout that a call has made, and the bytes of the memory that one item needs around its origin. `None`: functions.
#[derive(Clone, Copy)]
struct Made {
    handle: LayoutHandle,
    reach: Option<u64>,
}

/// The calls, and all that they have returned.
#[derive(Default)]
struct Player {
    contexts: Vec<ContextHandle>,
    comms: Vec<CommHandle>,
    layouts: Vec<Made>,
    requests: Vec<RequestHandle>,
    messages: Vec<MessageHandle>,
    windows: Vec<WindowHandle>,
}

impl Player {
    fn window(&self, pick: &Pick) -> WindowHandle {
        pick.from(&self.windows, |bits| WindowHandle { bits })
    }

    fn context(&self, pick: &Pick) -> ContextHandle {
        pick.from(&self.contexts, |bits| ContextHandle { bits })
    }

    fn comm(&self, pick: &Pick) -> CommHandle {
        pick.from(&self.comms, |bits| CommHandle { bits })
    }

    fn layout(&self, pick: &Pick) -> Made {
        // Invented bits may name a layout of an earlier input, whose reach is not known: it is not used with memory.
        pick.from(&self.layouts, |bits| Made { handle: LayoutHandle { bits }, reach: (bits == 0).then_some(1) })
    }

    fn request(&self, pick: &Pick) -> RequestHandle {
        pick.from(&self.requests, |bits| RequestHandle {
            bits,
            comm: CommHandle { bits: bits.rotate_left(32) },
            context: self.contexts.first().copied().unwrap_or(ContextHandle { bits }),
        })
    }

    fn message(&self, pick: &Pick) -> MessageHandle {
        pick.from(&self.messages, |bits| MessageHandle { bits })
    }

    /// How many items of a layout fit into the memory, up to `count`.
    fn fitting(made: Made, count: u8) -> usize {
        let most = match made.reach {
            Some(0) | None => u64::from(count),
            Some(reach) => (ORIGIN as u64 / reach).min(count.into()),
        };
        most as usize
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let (mut player, mut memory) = (Player::default(), Memory(Vec::new()));
    init(&mut player, false);
    for _ in 0..200 {
        let Ok(call) = Call::arbitrary(&mut input) else { break };
        let code = play(&mut player, &mut memory, &call);
        assert_ne!(code, Code::TOWLINE_ERR_INTERNAL as c_int, "{call:?}: {}", text());
        assert!((Code::TOWLINE_ERR_DENIED as c_int..=0).contains(&code), "{call:?}: {code}");
    }
    for context in std::mem::take(&mut player.contexts) {
        towline_leave(context);
    }
    for layout in std::mem::take(&mut player.layouts) {
        towline_layout_free(layout.handle);
    }
    drop(memory); // no operation is in progress any more
}

fn text() -> String {
    let mut buffer = [0u8; 500];
    // SAFETY: the buffer is as long as it says.
    let len = unsafe { towline_error_text(buffer.as_mut_ptr().cast(), buffer.len()) };
    String::from_utf8_lossy(&buffer[..len.min(buffer.len() - 1)]).into_owned()
}

fn init(player: &mut Player, multiple: bool) -> c_int {
    let settings = [c"transports=loopback".as_ptr(), c"requests=20".as_ptr(), c"communicators=5".as_ptr(), ptr::null()];
    let mut context = ContextHandle { bits: 0 };
    // SAFETY: the array ends with null.
    let code = unsafe { towline_init(if multiple { 3 } else { 0 }, settings.as_ptr(), &raw mut context) };
    if code == 0 {
        player.contexts.push(context);
    }
    code
}

#[allow(clippy::too_many_lines)] // one arm for each function
fn play(player: &mut Player, memory: &mut Memory, call: &Call) -> c_int {
    let mut status = Status::default();
    // SAFETY, for all: results go to variables of this function, and memory of operations lives longer than the contexts.
    match call {
        Call::Init(multiple) if player.contexts.len() < 3 => init(player, *multiple),
        Call::Init(_) => 0,
        Call::Finish(pick) => towline_finish(player.context(pick)),
        Call::Leave(pick) => towline_leave(player.context(pick)),
        // SAFETY: see above.
        Call::Progress(pick) => unsafe { towline_progress(player.context(pick), ptr::null_mut()) },
        Call::Report(pick, form, size) => {
            let (mut buffer, mut len) = ([0u8; 256], 0usize);
            let (buffer, size) = (buffer.as_mut_ptr().cast(), usize::from(*size));
            // SAFETY: see above.
            unsafe { towline_report(player.context(pick), (*form).into(), buffer, size, &raw mut len) }
        }
        Call::World(pick) => made(&mut player.comms, player.contexts.as_slice(), |contexts, comm| {
            let context = pick.from(contexts, |bits| ContextHandle { bits });
            // SAFETY: see above.
            unsafe { towline_world(context, comm) }
        }),
        Call::Dup(pick) => {
            let from = player.comm(pick);
            // SAFETY: see above.
            made(&mut player.comms, (), |(), comm| unsafe { towline_comm_dup(from, comm) })
        }
        Call::Split(pick, color) => {
            let from = player.comm(pick);
            let color = if *color == 0 { u32::MAX } else { u32::from(*color) };
            // SAFETY: see above.
            made(&mut player.comms, (), |(), comm| unsafe { towline_comm_split(from, color, 0, comm) })
        }
        Call::FreeComm(pick) => towline_comm_free(player.comm(pick)),
        Call::Look(pick) => {
            let (comm, mut number) = (player.comm(pick), 0);
            towline_comm_acknowledge_failures(comm);
            // SAFETY: see above.
            unsafe {
                towline_comm_size(comm, &raw mut number);
                towline_comm_rank(comm, &raw mut number)
            }
        }
        Call::Vector { count, block, stride, item } => {
            let (item, count, block) = (player.layout(item), u64::from(*count), u64::from(*block));
            let reach = item.reach.map(|reach| {
                count.saturating_mul(u64::from(stride.unsigned_abs())).saturating_add(block.saturating_mul(reach))
            });
            layout(player, item.handle.bits == 0 || item.reach.is_some(), reach, |made| {
                // SAFETY: see above.
                unsafe { towline_layout_vector(count, block, (*stride).into(), item.handle, made) }
            })
        }
        Call::Struct { blocks, places, item } => {
            let item = player.layout(item);
            let (blocks, places) = (blocks.map(u64::from), places.map(i64::from));
            let farthest = places.map(i64::unsigned_abs).into_iter().max().unwrap_or(0);
            let longest = blocks.into_iter().max().unwrap_or(0);
            let reach = item.reach.map(|reach| farthest.saturating_add(longest.saturating_mul(reach)));
            let items = [item.handle; 3];
            layout(player, true, reach, |made| {
                // SAFETY: see above; the lists have three entries.
                unsafe { towline_layout_struct(3, blocks.as_ptr(), places.as_ptr(), items.as_ptr(), made) }
            })
        }
        Call::Resized(item, extent) => {
            let item = player.layout(item);
            let reach = item.reach.map(|reach| reach.saturating_add(extent.unsigned_abs().into()));
            // SAFETY: see above.
            layout(player, true, reach, |made| unsafe { towline_layout_resized(item.handle, (*extent).into(), made) })
        }
        Call::Functions { size, packs, unpacks } => {
            let (pack, unpack) = (packs.then_some(pack as _), unpacks.then_some(unpack as _));
            // SAFETY: the functions do what they must.
            layout(player, true, None, |made| unsafe {
                towline_layout_functions((*size).into(), pack, unpack, ptr::null_mut(), made)
            })
        }
        Call::FreeLayout(pick) => {
            let handle = player.layout(pick).handle;
            // SAFETY: see above.
            unsafe { towline_layout_size(handle, ptr::null_mut(), ptr::null_mut()) };
            towline_layout_free(handle)
        }
        Call::Send { comm, layout, count, dest, tag, mode } => {
            let (comm, layout) = (player.comm(comm), player.layout(layout));
            let (count, buffer) = (Player::fitting(layout, *count), memory.origin());
            let (dest, tag, mode) = (u32::from(*dest), tag_of(*tag), c_int::from(*mode));
            request(player, |request| {
                // SAFETY: see above; `count` items fit into the memory.
                unsafe { towline_isend(comm, buffer.cast(), count, layout.handle, dest, tag, mode, request) }
            })
        }
        Call::Receive { comm, layout, count, source, tag } => {
            let (comm, layout) = (player.comm(comm), player.layout(layout));
            let (count, buffer) = (Player::fitting(layout, *count), memory.origin());
            let source = if *source == 255 { u32::MAX } else { (*source).into() };
            request(player, |request| {
                // SAFETY: see above; `count` items fit into the memory.
                unsafe { towline_irecv(comm, buffer.cast(), count, layout.handle, source, tag_of(*tag), request) }
            })
        }
        Call::Test(pick) => {
            let (mut request, mut done) = (player.request(pick), false);
            // SAFETY: see above.
            unsafe { towline_test(&raw mut request, &raw mut done, &raw mut status) }
        }
        Call::TestAny => {
            let (mut requests, mut index) = (player.requests.clone(), 0);
            // SAFETY: see above.
            unsafe { towline_test_any(requests.len(), requests.as_mut_ptr(), &raw mut index, &raw mut status) }
        }
        // SAFETY: see above.
        Call::Cancel(pick) => unsafe { towline_cancel(player.request(pick), ptr::null_mut()) },
        Call::Probe(pick, tag) => {
            let mut found = false;
            // SAFETY: see above.
            unsafe { towline_iprobe(player.comm(pick), u32::MAX, tag_of(*tag), &raw mut found, &raw mut status) }
        }
        Call::Take(pick, tag) => {
            let (mut found, mut message, comm) = (false, MessageHandle { bits: 0 }, player.comm(pick));
            // SAFETY: see above.
            let code = unsafe {
                let tag = tag_of(*tag);
                towline_improbe(comm, u32::MAX, tag, &raw mut found, &raw mut message, &raw mut status)
            };
            player.messages.extend((code == 0 && found).then_some(message));
            code
        }
        Call::ReceiveTaken { message, layout, count } => {
            let (mut message, layout) = (player.message(message), player.layout(layout));
            let (count, buffer) = (Player::fitting(layout, *count), memory.origin());
            request(player, |request| {
                // SAFETY: see above; `count` items fit into the memory.
                unsafe { towline_imrecv(&raw mut message, buffer.cast(), count, layout.handle, request) }
            })
        }
        Call::Discard(pick) => {
            let mut message = player.message(pick);
            // SAFETY: see above.
            unsafe { towline_message_discard(&raw mut message) }
        }
        Call::Arm(pick) => {
            let (context, mut fd, mut may_sleep) = (player.context(pick), 0, false);
            // SAFETY: see above.
            unsafe {
                towline_wait_fd(context, &raw mut fd);
                towline_arm(context, &raw mut may_sleep)
            }
        }
        Call::Counter(pick, index) => {
            let (context, mut count, mut name, mut value) = (player.context(pick), 0, ptr::null(), 0);
            // SAFETY: see above; the name is a text of the library, or not used.
            unsafe {
                towline_counter_count(context, &raw mut count);
                let index = usize::from(*index);
                match towline_counter_at(context, index, &raw mut name, ptr::null_mut(), ptr::null_mut()) {
                    0 => towline_counter(context, name, &raw mut value),
                    code => code,
                }
            }
        }
        _ => play_one_sided(player, memory, call),
    }
}

/// The calls of windows.
fn play_one_sided(player: &mut Player, memory: &mut Memory, call: &Call) -> c_int {
    // SAFETY, for all: as for `play`. Windows over memory of this program have ended before the memory does.
    match call {
        Call::Allocate { comm, bytes, access } => {
            let comm = player.comm(comm);
            window(player, |window| {
                // SAFETY: see above.
                unsafe { towline_window_allocate(comm, (*bytes).into(), (*access).into(), window) }
            })
        }
        Call::Create { comm, bytes, shift, access } => {
            let (comm, base) = (player.comm(comm), memory.origin().wrapping_add((*shift).into()));
            window(player, |window| {
                // SAFETY: see above; the memory is longer than 255 bytes from there on.
                unsafe { towline_window_create(comm, base.cast(), (*bytes).into(), (*access).into(), window) }
            })
        }
        Call::LookAtWindow(pick, rank) => {
            let (window, mut base, mut bytes) = (player.window(pick), ptr::null_mut(), 0);
            // SAFETY: see above.
            unsafe {
                towline_window_size(window, (*rank).into(), &raw mut bytes);
                towline_window_base(window, &raw mut base, &raw mut bytes)
            }
        }
        Call::Put { window, bytes, rank, offset } => {
            let (window, from) = (player.window(window), [3u8; 255]);
            // SAFETY: see above; the data is as long as any of these lengths.
            unsafe { towline_window_put(window, from.as_ptr().cast(), (*bytes).into(), (*rank).into(), offset.get()) }
        }
        Call::Get { window, bytes, rank, offset } => {
            let (window, mut into) = (player.window(window), [3u8; 255]);
            // SAFETY: see above; the memory is as long as any of these lengths.
            unsafe {
                towline_window_get(window, into.as_mut_ptr().cast(), (*bytes).into(), (*rank).into(), offset.get())
            }
        }
        Call::Accumulate { window, op, word, count, rank, offset } => {
            let (window, operands) = (player.window(window), [5u64; 255]);
            let (operands, count) = (operands.as_ptr().cast(), (*count).into());
            let (op, word, rank, offset) = ((*op).into(), (*word).into(), (*rank).into(), offset.get());
            // SAFETY: see above; there are as many operands as any of these counts.
            unsafe { towline_window_accumulate(window, op, word, operands, count, rank, offset) }
        }
        Call::FetchOp { window, op, word, rank, offset } => {
            let (window, mut operand) = (player.window(window), 9u64);
            let (op, word, rank, offset) = ((*op).into(), (*word).into(), (*rank).into(), offset.get());
            let operand: *mut c_void = (&raw mut operand).cast();
            // SAFETY: see above; the memory is that of the longest word.
            unsafe { towline_window_fetch_op(window, op, word, operand, operand, rank, offset) }
        }
        Call::CompareSwap { window, word, rank, offset } => {
            let (window, expected, desired, mut old) = (player.window(window), 0u64, 7u64, 0u64);
            let (word, rank, offset) = ((*word).into(), (*rank).into(), offset.get());
            let (expected, desired, old) =
                ((&raw const expected).cast(), (&raw const desired).cast(), (&raw mut old).cast());
            // SAFETY: see above; the memory is that of the longest words.
            unsafe { towline_window_compare_swap(window, word, expected, desired, old, rank, offset) }
        }
        Call::Flush(pick, rank) => towline_window_flush(player.window(pick), (*rank).into()),
        Call::Fence(pick) => towline_window_fence(player.window(pick)),
        Call::FreeWindow(pick) => towline_window_free(player.window(pick)),
        _ => 0, // `play` makes all others
    }
}

/// Few tags, so that messages meet their receives, and one that is reserved.
const fn tag_of(tag: u8) -> u32 {
    match tag {
        255 => u32::MAX,
        254 => 0x8000_0000,
        tag => (tag % 3) as u32,
    }
}

/// Keeps the communicator that a call makes.
fn made<T>(comms: &mut Vec<CommHandle>, with: T, call: impl FnOnce(T, *mut CommHandle) -> c_int) -> c_int {
    let mut comm = CommHandle { bits: 0 };
    let code = call(with, &raw mut comm);
    comms.extend((code == 0).then_some(comm));
    code
}

/// Keeps the layout that a call makes, if its reach is known.
fn layout(
    player: &mut Player,
    is_known: bool,
    reach: Option<u64>,
    call: impl FnOnce(*mut LayoutHandle) -> c_int,
) -> c_int {
    let mut handle = LayoutHandle { bits: 0 };
    let code = call(&raw mut handle);
    if code == 0 && is_known {
        player.layouts.push(Made { handle, reach });
    } else if code == 0 {
        towline_layout_free(handle);
    }
    code
}

/// Keeps the request that a call begins.
fn request(player: &mut Player, call: impl FnOnce(*mut RequestHandle) -> c_int) -> c_int {
    let mut request = RequestHandle { bits: 0, comm: CommHandle { bits: 0 }, context: ContextHandle { bits: 0 } };
    let code = call(&raw mut request);
    player.requests.extend((code == 0).then_some(request));
    code
}

/// Keeps the window that a call makes.
fn window(player: &mut Player, call: impl FnOnce(*mut WindowHandle) -> c_int) -> c_int {
    let mut window = WindowHandle { bits: 0 };
    let code = call(&raw mut window);
    player.windows.extend((code == 0).then_some(window));
    code
}
