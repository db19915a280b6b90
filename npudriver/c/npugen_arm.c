/* Caches, time and interrupt of the Arm processors beside the fabric. See npugen_arm.h. */
#include "npugen_arm.h"

#include "npugen_cpu.h"

/* GIC: a bit for each interrupt that is pending, enabled or not. */
#define GICD_ISPENDR 0x200u
/* PL310. */
#define CACHE_SYNC 0x730u
#define INVALIDATE_LINE 0x770u
#define CLEAN_LINE 0x7B0u
/* Global timer of the Cortex-A9. */
#define TIMER_LOW 0x0u
#define TIMER_HIGH 0x4u
#define TIMER_CONTROL 0x8u

#define ALL UINT32_MAX
#define RESET_MICROSECONDS 10u

/* UG585; Linux has the same: zynq-7000.dtsi, drivers/fpga/zynq-fpga.c. The timer has half of a processor's 667 MHz.
 * Unlocked, level shifters on, fabric out of reset, locked; the reset is FCLK_RESET0_N. */
const npugen_arm_system npugen_zynq_7000 = {
    0xF8F01000u, 32, 0xF8F02000u, 0xF8F00200u, 333333333u,
    {{0xF8000008u, ALL, 0xDF0Du}, {0xF8000900u, ALL, 0xFu}, {0xF8000240u, ALL, 0}, {0xF8000004u, ALL, 0x767Bu}},
    {{0xF8000008u, ALL, 0xDF0Du}, {0xF8000240u, ALL, 1}, {0xF8000240u, ALL, 0}, {0xF8000004u, ALL, 0x767Bu}},
    4, 4};
#if !defined(__arm__)
/* UG1085; Linux: zynqmp.dtsi. The boot loader has opened the way; the machine is not reset from here. */
const npugen_arm_system npugen_zynq_ultrascale = {
    0xF9010000u, 64, 0, 0, 0, {{0, 0, 0}}, {{0, 0, 0}}, 0, 0};
#endif
/* Cyclone V Hard Processor System Technical Reference Manual; Linux: socfpga.dtsi. A quarter of 800 MHz. The
 * lightweight bridge leaves its reset, and the processors see it. REMAP gets what drivers/fpga/altera-hps2fpga.c of
 * Linux and reset_manager_gen5.c of U-Boot write for that bridge alone: lwhps2fpga (bit 4), and mpuzero (bit 0), by
 * which the interconnect has the on-chip RAM at 0, not the boot ROM; SDRAM there is the outer cache's matter, and
 * stays. REMAP is write-only, so that the heavy bridge, if the boot loader had opened that, is closed to the
 * processors: with it in use, write 0x19. The port to the SDRAM is the boot loader's.
 */
const npugen_arm_system npugen_cyclone_v = {
    0xFFFED000u, 32, 0xFFFEF000u, 0xFFFEC200u, 200000000u,
    {{0xFFD0501Cu, 2, 0}, {0xFF800000u, ALL, 0x11u}}, {{0, 0, 0}}, 2, 0};

static void apply(const npugen_arm_write *writes, unsigned count) {
    for (unsigned number = 0; number < count; ++number) {
        const npugen_arm_write *one = &writes[number];
        const uint32_t others = one->mask == ALL ? 0 : npugen_cpu_read(one->address) & ~one->mask;
        npugen_cpu_write(one->address, others | one->value);
    }
    npugen_cpu_barrier();
}

static void outer(const npugen_arm_system *system, const uint8_t *begin, size_t size, uint32_t operation) {
    if (!system->outer) return;
    for (size_t at = 0; at < size; at += system->line)
        npugen_cpu_write(system->outer + operation, (uint32_t)((uintptr_t)begin + at));
    npugen_cpu_write(system->outer + CACHE_SYNC, 0);
    while (npugen_cpu_read(system->outer + CACHE_SYNC) & 1u) {}
}

/* From the processor outwards. */
static void clean(void *context, const uint8_t *begin, size_t size) {
    const npugen_arm_system *system = ((npugen_arm *)context)->system;
    for (size_t at = 0; at < size; at += system->line) npugen_cpu_clean((uintptr_t)begin + at);
    npugen_cpu_barrier();
    outer(system, begin, size, CLEAN_LINE);
    npugen_cpu_barrier();
}

/* From memory inwards: the inner cache would be filled again from a stale outer one. */
static void invalidate(void *context, const uint8_t *begin, size_t size) {
    const npugen_arm_system *system = ((npugen_arm *)context)->system;
    outer(system, begin, size, INVALIDATE_LINE);
    npugen_cpu_barrier();
    for (size_t at = 0; at < size; at += system->line) npugen_cpu_invalidate((uintptr_t)begin + at);
    npugen_cpu_barrier();
}

/* Microseconds of a count, without a product that does not fit. */
static uint64_t micros(uint64_t count, uint64_t rate) {
    return count / rate * 1000000u + count % rate * 1000000u / rate;
}

static uint64_t now(void *context) {
    const npugen_arm_system *system = ((npugen_arm *)context)->system;
    uint32_t high, low;
    if (!system->timer) return micros(npugen_cpu_count(), system->timer_hz ? system->timer_hz : npugen_cpu_rate());
    do {
        high = npugen_cpu_read(system->timer + TIMER_HIGH);
        low = npugen_cpu_read(system->timer + TIMER_LOW);
    } while (npugen_cpu_read(system->timer + TIMER_HIGH) != high);
    return micros((uint64_t)high << 32 | low, system->timer_hz);
}

static void pause(void *context, uint32_t microseconds) {
    const npugen_arm *arm = context;
    const uintptr_t pending = arm->system->distributor + GICD_ISPENDR + arm->interrupt / 32u * 4u;
    const uint64_t begin = now(context);
    if (!arm->interrupt) return;
    while (!(npugen_cpu_read(pending) >> arm->interrupt % 32u & 1u))
        if (now(context) - begin >= microseconds) return;
}

static npugen_status reset(void *context) {
    const npugen_arm_system *system = ((npugen_arm *)context)->system;
    /* A reset block of the fabric filters short pulses, and takes a while to let go. */
    for (unsigned number = 0; number < system->reset_count; ++number) {
        const uint64_t begin = (apply(&system->reset[number], 1), now(context));
        while (now(context) - begin < RESET_MICROSECONDS) {}
    }
    return NPUGEN_OK;
}

void npugen_arm_open(npugen_arm *arm, npugen_port *port, const npugen_arm_system *system, uintptr_t registers,
                     uint32_t interrupt, uint8_t *memory, size_t size) {
    arm->system = system;
    arm->interrupt = interrupt;
    apply(system->open, system->open_count);
    if (system->timer)
        /* On, and without the prescaler that a boot loader may have left. */
        npugen_cpu_write(system->timer + TIMER_CONTROL,
                         (npugen_cpu_read(system->timer + TIMER_CONTROL) & ~0xFF00u) | 1u);
    *port = (npugen_port){arm,           (volatile uint32_t *)registers,
                          memory,        (uintptr_t)memory,
                          size,          system->line,
                          clean,         invalidate,
                          now,           pause,
                          system->reset_count ? reset : NULL};
}
