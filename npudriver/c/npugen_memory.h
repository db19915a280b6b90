/* What back ends share that divide one block of memory: the blocks that are taken, and a barrier. */
#ifndef NPUGEN_MEMORY_H
#define NPUGEN_MEMORY_H

#include <string.h>

#include "npugen.h"

/* Between memory and the machine's registers: what was stored before is seen first, what is loaded after is new. */
#if defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
#define NPUGEN_BARRIER() __asm__ volatile("dsb sy" ::: "memory")
#elif defined(__riscv)
#define NPUGEN_BARRIER() __asm__ volatile("fence iorw, iorw" ::: "memory")
#else
#define NPUGEN_BARRIER() __sync_synchronize()
#endif

#define NPUGEN_MEMORY_BLOCKS 64

typedef struct npugen_memory {
    uint8_t *data;
    uint64_t address; /* on the device's bus */
    size_t size, line; /* line: a power of two. Blocks begin and end at its multiples, so that no two share one */
    struct npugen_memory_block { size_t first, end; } blocks[NPUGEN_MEMORY_BLOCKS];
    unsigned block_count;
} npugen_memory;

/* The first gap that is large enough; alignment: a power of two. */
static inline npugen_status npugen_memory_take(npugen_memory *memory, size_t size, size_t alignment,
                                               npugen_buffer *buffer) {
    size_t first = 0, whole;
    unsigned number = 0;
    if (alignment < memory->line) alignment = memory->line;
    if (memory->block_count == NPUGEN_MEMORY_BLOCKS || size > SIZE_MAX - memory->line) return NPUGEN_NO_MEMORY;
    whole = (size + memory->line - 1) / memory->line * memory->line;
    for (;; ++number) {
        /* The bus address is what has to be aligned. */
        const size_t gap = (size_t)(-(memory->address + first) & (alignment - 1));
        if (gap > memory->size - first) return NPUGEN_NO_MEMORY;
        first += gap;
        if (number == memory->block_count) break;
        if (first <= memory->blocks[number].first && whole <= memory->blocks[number].first - first) break;
        if (first < memory->blocks[number].end) first = memory->blocks[number].end;
    }
    if (whole > memory->size - first) return NPUGEN_NO_MEMORY;
    memmove(&memory->blocks[number + 1], &memory->blocks[number],
            (memory->block_count - number) * sizeof *memory->blocks);
    memory->blocks[number].first = first;
    memory->blocks[number].end = first + whole;
    ++memory->block_count;
    buffer->data = memory->data + first;
    buffer->address = memory->address + first;
    buffer->size = size;
    return NPUGEN_OK;
}

static inline void npugen_memory_give(npugen_memory *memory, npugen_buffer *buffer) {
    for (unsigned number = 0; number < memory->block_count; ++number) {
        if (memory->data + memory->blocks[number].first != buffer->data) continue;
        --memory->block_count;
        memmove(&memory->blocks[number], &memory->blocks[number + 1],
                (memory->block_count - number) * sizeof *memory->blocks);
        break;
    }
    memset(buffer, 0, sizeof *buffer);
}

/* A range of a buffer, widened to whole lines, from the memory's first byte on. */
static inline void npugen_memory_lines(const npugen_memory *memory, const npugen_buffer *buffer, size_t offset,
                                       size_t size, size_t *first, size_t *end) {
    const size_t begin = (size_t)(buffer->data - memory->data) + offset;
    *first = begin / memory->line * memory->line;
    *end = (begin + size + memory->line - 1) / memory->line * memory->line;
    if (*end > memory->size) *end = memory->size;
}

#endif
