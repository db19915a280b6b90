/* Blocks whose neighbouring bytes must not be touched, and a device that answers from a case's bytes. */
#ifndef DEVICE_H
#define DEVICE_H

#include <sys/mman.h>

#include "case.h"
#include "npugen.h"

#define MOST_BYTES (1u << 18) /* of a block of the device's memory */

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* A block whose end is watched. */
static uint8_t *watched(size_t size) {
#ifdef SANITIZED
    return malloc(size ? size : 1);
#else
    const size_t page = 65536, whole = (size + page - 1) / page * page;
    uint8_t *block = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED || mprotect(block + whole, page, PROT_NONE)) stop("no memory");
    return block + (whole - size);
#endif
}

static void unwatched(uint8_t *block, size_t size) {
#ifdef SANITIZED
    (void)size;
    free(block);
#else
    const size_t page = 65536, whole = (size + page - 1) / page * page;
    munmap(block - (whole - size), whole + page);
#endif
}

/* Of the target: whether something goes wrong, once in so many times, and what the device says then. */
static int trouble(unsigned one_in);
static uint32_t anything(void);

static unsigned blocks;

static uint32_t read32(void *context, uint32_t address) {
    (void)context;
    if (address == NPUGEN_REG_ID) return NPUGEN_ID_VALUE;
    if (address == NPUGEN_REG_VERSION) return NPUGEN_VERSION_VALUE;
    if (address == NPUGEN_REG_CONFIG) return NPUGEN_CONFIG_VALUE;
    if (address == NPUGEN_REG_STATUS) return trouble(8) ? anything() & 15u : NPUGEN_STATUS_DONE;
    return anything();
}

static void write32(void *context, uint32_t address, uint32_t value) { (void)context, (void)address, (void)value; }

static npugen_status allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    (void)context, (void)alignment;
    if (size > MOST_BYTES || trouble(16)) return NPUGEN_NO_MEMORY;
    buffer->data = watched(size);
    buffer->size = size;
    buffer->address = trouble(8) ? (uint64_t)anything() << 32 | anything() : 0x1000;
    ++blocks;
    return NPUGEN_OK;
}

static void give_back(void *context, npugen_buffer *buffer) {
    (void)context;
    unwatched(buffer->data, buffer->size);
    --blocks;
}

static npugen_status sync_range(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context;
    if (offset > buffer->size || size > buffer->size - offset) stop("a range beyond its buffer is written back");
    return trouble(16) ? NPUGEN_IO : NPUGEN_OK;
}

static npugen_status wait_a_while(void *context, uint32_t microseconds) {
    *(uint64_t *)context += microseconds;
    return NPUGEN_OK;
}

static uint64_t now(void *context) { return *(uint64_t *)context += 1000; }

#endif
