/* The port to VexRiscv. See npugen_vexriscv.h. */
#include "npugen_vexriscv.h"

#include "npugen_board.h"

/* Instructions of a turn of the loop that waits, at least. */
#define TURN 4u

static uint32_t csr_read(uint32_t address) { return *(volatile const uint32_t *)(uintptr_t)address; }
static void csr_write(uint32_t address, uint32_t value) { *(volatile uint32_t *)(uintptr_t)address = value; }

/* The cache writes through: what is in it is in memory. */
static void clean(void *context, const uint8_t *begin, size_t size) {
    (void)context;
    (void)begin;
    (void)size;
}

/* VexRiscv's own instruction drops all of the data cache. */
static void invalidate(void *context, const uint8_t *begin, size_t size) {
    (void)context;
    (void)begin;
    (void)size;
    __asm__ volatile(".word 0x500f" ::: "memory");
}

uint64_t npugen_vexriscv_cycles(void) {
    uint64_t high;
    csr_write(NPUGEN_SOC_UPTIME_LATCH, 1);
    high = csr_read(NPUGEN_SOC_UPTIME_CYCLES);
    return high << 32 | csr_read(NPUGEN_SOC_UPTIME_CYCLES + 4);
}

static uint64_t now(void *context) {
    (void)context;
    return npugen_vexriscv_cycles() * 1000u / (NPUGEN_SOC_HZ / 1000u);
}

/* The interrupt is looked for among those that wait (VexRiscv's CSR 0xfc0), and not taken: the loop is in the
 * instruction cache and reads no memory, so it takes nothing from the machine. */
static void sleep_until(void *context, uint32_t microseconds) {
    const uint32_t turns = (uint32_t)((uint64_t)microseconds * (NPUGEN_SOC_HZ / 1000u) / (1000u * TURN));
    (void)context;
    for (uint32_t turn = 0; turn < turns; ++turn) {
        uint32_t waiting;
        __asm__ volatile("csrr %0, 0xfc0" : "=r"(waiting)::"memory");
        if (waiting & 1u << NPUGEN_BOARD_INTERRUPT) return;
    }
}

npugen_status npugen_vexriscv_open(npugen_bare *bare, npugen_backend *backend, uint8_t *memory, size_t size) {
    npugen_port port = {0};
    port.registers = (volatile uint32_t *)(uintptr_t)NPUGEN_BOARD_REGISTERS;
    port.memory = memory;
    port.memory_address = (uintptr_t)memory; /* the machine sees memory where the processor does */
    port.memory_size = size;
    port.line = NPUGEN_SOC_LINE;
    port.clean = clean;
    port.invalidate = invalidate;
    port.now = now;
    port.sleep = sleep_until;
    csr_write(NPUGEN_SOC_EVENT_ENABLE, 1);
    /* CSR 0xbc0: which interrupts are shown as waiting; none is taken while mstatus.MIE is 0, as after a reset. */
    __asm__ volatile("csrw 0xbc0, %0" ::"r"(1u << NPUGEN_BOARD_INTERRUPT));
    return npugen_bare_open(bare, backend, &port);
}
