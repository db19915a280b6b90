/* A device that another program simulates (tests/piped_device.py): requests go to stdout, answers come from stdin.
 *
 * A request is an operation and three numbers, then bytes where it has some: little-endian, as all processors here are.
 * It needs read, write and aligned memory, and runs under qemu as on the host.
 */
#ifndef PIPED_BACKEND_H
#define PIPED_BACKEND_H

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "npugen.h"

/* As Operation of tests/piped_device.py. */
enum {
    PIPED_READ,
    PIPED_WRITE,
    PIPED_ALLOCATE,
    PIPED_FREE,
    PIPED_TO_DEVICE,
    PIPED_TO_HOST,
    PIPED_WAIT,
    PIPED_NOW,
    PIPED_RESET,
    PIPED_SAMPLES,
    PIPED_INPUT,
    PIPED_OUTPUT,
    PIPED_STATUS,
    PIPED_SAY
};

static void piped_put(const void *data, size_t size) {
    const char *next = data;
    while (size) {
        const ssize_t done = write(1, next, size);
        if (done <= 0) _exit(4);
        next += done;
        size -= (size_t)done;
    }
}

static void piped_get(void *data, size_t size) {
    char *next = data;
    while (size) {
        const ssize_t done = read(0, next, size);
        if (done <= 0) _exit(5);
        next += done;
        size -= (size_t)done;
    }
}

static void piped_request(uint32_t operation, uint32_t first, uint32_t second, uint32_t third) {
    const uint32_t words[4] = {operation, first, second, third};
    piped_put(words, sizeof words);
}

static uint32_t piped_answer(void) {
    uint32_t word;
    piped_get(&word, sizeof word);
    return word;
}

static uint32_t piped_read(void *context, uint32_t address) {
    (void)context;
    piped_request(PIPED_READ, address, 0, 0);
    return piped_answer();
}

static void piped_write(void *context, uint32_t address, uint32_t value) {
    (void)context;
    piped_request(PIPED_WRITE, address, value, 0);
}

static npugen_status piped_allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    (void)context;
    buffer->data = malloc(size);
    if (!buffer->data) return NPUGEN_NO_MEMORY;
    buffer->size = size;
    piped_request(PIPED_ALLOCATE, (uint32_t)size, (uint32_t)alignment, 0);
    buffer->address = piped_answer();
    return NPUGEN_OK;
}

static void piped_free(void *context, npugen_buffer *buffer) {
    (void)context;
    piped_request(PIPED_FREE, (uint32_t)buffer->address, 0, 0);
    free(buffer->data);
}

/* The device's memory is a copy, so what is not cleaned, or not invalidated, is seen. */
static npugen_status piped_to_device(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context;
    if (offset > buffer->size || size > buffer->size - offset) return NPUGEN_IO;
    piped_request(PIPED_TO_DEVICE, (uint32_t)(buffer->address + offset), (uint32_t)size, 0);
    piped_put(buffer->data + offset, size);
    return NPUGEN_OK;
}

static npugen_status piped_to_host(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context;
    if (offset > buffer->size || size > buffer->size - offset) return NPUGEN_IO;
    piped_request(PIPED_TO_HOST, (uint32_t)(buffer->address + offset), (uint32_t)size, 0);
    piped_get(buffer->data + offset, size);
    return NPUGEN_OK;
}

static npugen_status piped_wait(void *context, uint32_t microseconds) {
    (void)context;
    piped_request(PIPED_WAIT, microseconds, 0, 0);
    return (npugen_status)piped_answer();
}

static uint64_t piped_now(void *context) {
    (void)context;
    piped_request(PIPED_NOW, 0, 0, 0);
    return piped_answer();
}

static npugen_status piped_reset(void *context) {
    (void)context;
    piped_request(PIPED_RESET, 0, 0, 0);
    return (npugen_status)piped_answer();
}

static npugen_backend piped_backend(void) {
    return (npugen_backend){NULL,            piped_read,    piped_write, piped_allocate, piped_free,
                            piped_to_device, piped_to_host, piped_wait,  piped_now,      piped_reset};
}

#endif
