//! Start-up code, which runs from reset to the program's entry point.

use core::arch::global_asm;

use bare::{semihosting, stack};

// The processor starts in machine mode. Compiled code uses floating-point registers, so access to them is enabled first.
global_asm!(
    r#"
    .section .text.start, "ax"
    .global _start
_start:
    csrr t0, mhartid
    bnez t0, 9f
    li   t0, 0x2000
    csrs mstatus, t0
    la   t0, exception_entry
    csrw mtvec, t0
    .option push
    .option norelax
    la   gp, __global_pointer$
    .option pop

    la   t0, __bss_start
    la   t1, __bss_end
1:  bgeu t0, t1, 2f
    sd   zero, 0(t0)
    addi t0, t0, 8
    j    1b

2:  la   t0, __stack_bottom
    la   t1, __stack_top
    li   t2, {unused}
3:  sd   t2, 0(t0)
    addi t0, t0, 8
    bltu t0, t1, 3b
    mv   sp, t1

    call {protect}
    call {run}
9:  wfi
    j    9b

    .balign 4
exception_entry:
    csrr a0, mcause
    csrr a1, mepc
    csrr a2, mtval
    // The stack may have caused the fault, so it starts again at its top.
    la   sp, __stack_top
    call {fault}
    j    9b
    "#,
    unused = const stack::UNUSED as i64,
    protect = sym crate::protection::switch_on,
    run = sym run,
    fault = sym crate::fault::exception,
);

unsafe extern "Rust" {
    /// The program's entry point. It returns the exit status.
    safe fn program() -> u32;
}

extern "C" fn run() -> ! {
    semihosting::exit(program())
}
