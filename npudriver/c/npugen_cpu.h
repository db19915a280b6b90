/* All that npugen_arm.c asks of an Arm processor itself: registers, one line of its own cache, a barrier, the time. */
#ifndef NPUGEN_CPU_H
#define NPUGEN_CPU_H

#include <stdint.h>

static inline uint32_t npugen_cpu_read(uintptr_t address) { return *(volatile const uint32_t *)address; }
static inline void npugen_cpu_write(uintptr_t address, uint32_t value) { *(volatile uint32_t *)address = value; }
static inline void npugen_cpu_barrier(void) { __asm__ volatile("dsb sy" ::: "memory"); }

#if defined(__aarch64__)
static inline void npugen_cpu_clean(uintptr_t address) { __asm__ volatile("dc cvac, %0" ::"r"(address) : "memory"); }
static inline void npugen_cpu_invalidate(uintptr_t address) {
    __asm__ volatile("dc ivac, %0" ::"r"(address) : "memory");
}
/* The generic timer, and how often a second it counts. */
static inline uint64_t npugen_cpu_count(void) {
    uint64_t count;
    __asm__ volatile("isb\n\tmrs %0, cntpct_el0" : "=r"(count)::"memory");
    return count;
}
static inline uint64_t npugen_cpu_rate(void) {
    uint64_t rate;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(rate));
    return rate;
}
#else
/* DCCMVAC and DCIMVAC. */
static inline void npugen_cpu_clean(uintptr_t address) {
    __asm__ volatile("mcr p15, 0, %0, c7, c10, 1" ::"r"(address) : "memory");
}
static inline void npugen_cpu_invalidate(uintptr_t address) {
    __asm__ volatile("mcr p15, 0, %0, c7, c6, 1" ::"r"(address) : "memory");
}
/* A Cortex-A9 has no generic timer: npugen_arm.c reads its global one. */
static inline uint64_t npugen_cpu_count(void) { return 0; }
static inline uint64_t npugen_cpu_rate(void) { return 1; }
#endif

#endif
