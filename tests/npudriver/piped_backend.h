/* A device that another program simulates (tests/piped_device.py): requests go to stdout, answers come from stdin.
 *
 * Or to other ends of pipes, for several devices of a program: a back end's context says which.
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

typedef struct piped_end {
    int from, to;
} piped_end;

static void piped_put(const piped_end *end, const void *data, size_t size) {
    const char *next = data;
    while (size) {
        const ssize_t done = write(end->to, next, size);
        if (done <= 0) _exit(4);
        next += done;
        size -= (size_t)done;
    }
}

static void piped_get(const piped_end *end, void *data, size_t size) {
    char *next = data;
    while (size) {
        const ssize_t done = read(end->from, next, size);
        if (done <= 0) _exit(5);
        next += done;
        size -= (size_t)done;
    }
}

static void piped_request(const piped_end *end, uint32_t operation, uint32_t first, uint32_t second, uint32_t third) {
    const uint32_t words[4] = {operation, first, second, third};
    piped_put(end, words, sizeof words);
}

static uint32_t piped_answer(const piped_end *end) {
    uint32_t word;
    piped_get(end, &word, sizeof word);
    return word;
}

static uint32_t piped_read(void *context, uint32_t address) {
    piped_request(context, PIPED_READ, address, 0, 0);
    return piped_answer(context);
}

static void piped_write(void *context, uint32_t address, uint32_t value) {
    piped_request(context, PIPED_WRITE, address, value, 0);
}

static npugen_status piped_allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    buffer->data = malloc(size);
    if (!buffer->data) return NPUGEN_NO_MEMORY;
    buffer->size = size;
    piped_request(context, PIPED_ALLOCATE, (uint32_t)size, (uint32_t)alignment, 0);
    buffer->address = piped_answer(context);
    return NPUGEN_OK;
}

static void piped_free(void *context, npugen_buffer *buffer) {
    piped_request(context, PIPED_FREE, (uint32_t)buffer->address, 0, 0);
    free(buffer->data);
}

/* The device's memory is a copy, so what is not cleaned, or not invalidated, is seen. */
static npugen_status piped_to_device(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    if (offset > buffer->size || size > buffer->size - offset) return NPUGEN_IO;
    piped_request(context, PIPED_TO_DEVICE, (uint32_t)(buffer->address + offset), (uint32_t)size, 0);
    piped_put(context, buffer->data + offset, size);
    return NPUGEN_OK;
}

static npugen_status piped_to_host(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    if (offset > buffer->size || size > buffer->size - offset) return NPUGEN_IO;
    piped_request(context, PIPED_TO_HOST, (uint32_t)(buffer->address + offset), (uint32_t)size, 0);
    piped_get(context, buffer->data + offset, size);
    return NPUGEN_OK;
}

static npugen_status piped_wait(void *context, uint32_t microseconds) {
    piped_request(context, PIPED_WAIT, microseconds, 0, 0);
    return (npugen_status)piped_answer(context);
}

static uint64_t piped_now(void *context) {
    piped_request(context, PIPED_NOW, 0, 0, 0);
    return piped_answer(context);
}

static npugen_status piped_reset(void *context) {
    piped_request(context, PIPED_RESET, 0, 0, 0);
    return (npugen_status)piped_answer(context);
}

/* The end stays where it is. */
static npugen_backend piped_backend(piped_end *end) {
    return (npugen_backend){end,             piped_read,    piped_write, piped_allocate, piped_free,
                            piped_to_device, piped_to_host, piped_wait,  piped_now,      piped_reset};
}

#endif
