/* The beginning of an image: what C wants, main, and the end; in between its mailbox. */
#include "firmware.h"
#include "npugen_soc.h"

    .section .start, "ax"
    .global _start
_start:
    j begin

    .text
begin:
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, npugen_stack
    la tp, npugen_threads
    la t0, trap
    csrw mtvec, t0
    la t0, npugen_zeros
    la t1, npugen_zeros_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
    /* The stores are in memory: the cache writes through. Back to where the system waits (gen/soc/processor). */
end:
    li t0, NPUGEN_SOC_SCRATCH
    li t1, NPUGEN_IDLE
    sw t1, 0(t0)
    jr zero

    .balign 4
trap:
    la t0, npugen_mail
    csrr t1, mcause
    sw t1, NPUGEN_MAILBOX_CAUSE(t0)
    csrr t1, mepc
    sw t1, NPUGEN_MAILBOX_CAUSE + 4(t0)
    csrr t1, 0x343 /* mtval */
    sw t1, NPUGEN_MAILBOX_CAUSE + 8(t0)
    li t1, NPUGEN_TRAPPED
    sw t1, NPUGEN_MAILBOX_STATE(t0)
    j end
