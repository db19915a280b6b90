/* In place of npugen_cpu.h: prints what is asked of the processor. Time goes on by 0x100 counts with each reading; an
 * interrupt is pending from the fifth reading of any other register on. */
#include <stdint.h>
#include <stdio.h>

static uint32_t count, others;

static inline uint32_t npugen_cpu_read(uintptr_t address) {
    const uint32_t low = (uint32_t)address & 0xFFFu;
    const uint32_t timer = (uint32_t)address & ~4u;
    if (timer == 0xF8F00200u || timer == 0xFFFEC200u) return address & 4u ? 0 : (count += 0x100u);
    printf("read %lx\n", (unsigned long)address);
    return low == 0x730u ? 0 : ++others >= 5 ? UINT32_MAX : 0;
}
static inline void npugen_cpu_write(uintptr_t address, uint32_t value) {
    printf("write %lx %lx\n", (unsigned long)address, (unsigned long)value);
}
static inline void npugen_cpu_barrier(void) { puts("barrier"); }
static inline void npugen_cpu_clean(uintptr_t address) { printf("clean %lx\n", (unsigned long)address); }
static inline void npugen_cpu_invalidate(uintptr_t address) { printf("invalidate %lx\n", (unsigned long)address); }
static inline uint64_t npugen_cpu_count(void) { return count += 0x100u; }
static inline uint64_t npugen_cpu_rate(void) { return 100000000u; }
