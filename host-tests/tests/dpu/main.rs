//! DPUs as processes of their own, in an emulator for boards without an operating system, and their hosts in this process.
//! `scripts/firmware` builds the program, and sets `TOWLINE_FIRMWARE_BOARD` to the board and `TOWLINE_FIRMWARE_DPU` to the program's
//! path.

#[path = "../asleep/mod.rs"]
mod asleep;
mod commands;
#[path = "../../../adapters/cli/src/dpu/console.rs"]
mod console;
mod kit;
mod log;
mod one_sided;
mod pieces;
#[path = "../post/mod.rs"]
mod post;
mod processes;
mod sleep;
mod starts;
