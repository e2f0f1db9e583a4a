//! Start-up code, which runs from reset to the program's entry point.

use core::arch::global_asm;

use bare::{semihosting, stack};

// This code runs before the MMU is on, when all memory is Device memory, so it makes only aligned accesses. The processor
// starts at EL1. Compiled code uses floating-point registers, so access to them is enabled first.
global_asm!(
    r#"
    .section .text.start, "ax"
    .global _start
_start:
    mrs  x0, mpidr_el1
    and  x0, x0, #0xff
    cbnz x0, 9f
    mov  x0, #(3 << 20)
    msr  cpacr_el1, x0
    adrp x0, vectors
    add  x0, x0, :lo12:vectors
    msr  vbar_el1, x0
    isb

    adrp x0, __bss_start
    add  x0, x0, :lo12:__bss_start
    adrp x1, __bss_end
    add  x1, x1, :lo12:__bss_end
1:  cmp  x0, x1
    b.hs 2f
    stp  xzr, xzr, [x0], #16
    b    1b

2:  adrp x0, __stack_bottom
    adrp x1, __stack_top
    ldr  x2, ={unused}
3:  stp  x2, x2, [x0], #16
    cmp  x0, x1
    b.lo 3b
    mov  sp, x1

    bl   {map}
    bl   {run}
9:  wfe
    b    9b

    .balign 2048
vectors:
    .rept 16
    .balign 128
    b    4f
    .endr
4:  mrs  x0, esr_el1
    mrs  x1, elr_el1
    mrs  x2, far_el1
    // The stack may have caused the fault, so it starts again at its top.
    adrp x3, __stack_top
    mov  sp, x3
    bl   {fault}
    b    9b
    "#,
    unused = const stack::UNUSED,
    map = sym crate::mmu::switch_on,
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
