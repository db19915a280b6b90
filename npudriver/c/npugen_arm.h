/* Ports of npugen_bare.h to the Arm processors beside the fabric: bare metal, without a vendor's library.
 *
 *     npugen_arm_open(&arm, &port, &NPUGEN_BOARD_SYSTEM, NPUGEN_BOARD_REGISTERS, NPUGEN_BOARD_INTERRUPT, memory, size);
 *     npugen_bare_open(&bare, &backend, &port);
 *
 * NPUGEN_BOARD_... are npugen_board.h's, which `deploy` makes of the board's description; a design of your own says
 * where it has the machine. Addresses are physical ones, as the memory's mapping of a bare-metal program is flat. The
 * machine's registers must be Device memory. No exception is taken: the interrupt is seen at the interrupt
 * controller, as pending, and stays disabled there; code that is not secure sees it if it is of group 1, and else
 * waits as long as it is told. Not tried on hardware.
 */
#ifndef NPUGEN_ARM_H
#define NPUGEN_ARM_H

#include "npugen_bare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A register that is written: `value` in the bits of `mask`, the others as they are; all bits: it is not read. */
typedef struct npugen_arm_write {
    uint32_t address, mask, value;
} npugen_arm_write;

typedef struct npugen_arm_system {
    uint32_t distributor; /* of the interrupt controller, GICv1 or GICv2 */
    uint32_t line;        /* bytes of a cache line */
    uint32_t outer;       /* the second-level cache controller PL310; 0: the processor's own operations reach memory */
    uint32_t timer;       /* the global timer of a Cortex-A9; 0: the generic timer */
    uint32_t timer_hz;    /* counts a second; 0: as the generic timer says, which the boot loader must have set */
    /* What lets processor and fabric reach each other, once the fabric is configured; and what resets the machine. */
    npugen_arm_write open[4], reset[4];
    unsigned open_count, reset_count;
} npugen_arm_system;

/* As after the usual boot loader; copy and change what a board does otherwise, such as timer_hz. */
extern const npugen_arm_system npugen_zynq_7000, npugen_cyclone_v;
#if !defined(__arm__) /* in 32-bit code its timer cannot be read */
extern const npugen_arm_system npugen_zynq_ultrascale;
#endif

typedef struct npugen_arm {
    const npugen_arm_system *system;
    uint32_t interrupt; /* its number at the interrupt controller; 0: polled */
} npugen_arm;

void npugen_arm_open(npugen_arm *arm, npugen_port *port, const npugen_arm_system *system, uintptr_t registers,
                     uint32_t interrupt, uint8_t *memory, size_t size);

#ifdef __cplusplus
}
#endif

#endif
