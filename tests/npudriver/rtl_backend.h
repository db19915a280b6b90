/* A backend of the C driver on the simulated Verilog: a thin shim over the C interface of sim/rtl/harness.cpp. */
#ifndef RTL_BACKEND_H
#define RTL_BACKEND_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "npugen.h"

struct Machine;
struct Machine *npu_new(uint64_t seed);
void npu_add_region(struct Machine *machine, uint64_t base, uint64_t size, uint8_t *data, uint64_t writable_from);
void npu_clear_faults(struct Machine *machine);
void npu_add_fault(struct Machine *machine, int write, int64_t burst, uint64_t low, uint64_t high, int response);
int64_t npu_access(struct Machine *machine, int write, unsigned address, uint32_t value);
int npu_run(struct Machine *machine, uint64_t cycles);
void npu_reset(struct Machine *machine, unsigned cycles);
const char *npu_failure(struct Machine *machine);

/* A cycle is a microsecond. */
static uint64_t cycles;
static uint64_t next_address = 0xFFFFF000u;

static int64_t access_port(void *context, int write, uint32_t address, uint32_t value) {
    const int64_t answer = npu_access(context, write, address, value);
    if (answer < 0 || *npu_failure(context)) {
        fprintf(stderr, "shim: %s\n", npu_failure(context));
        exit(3);
    }
    cycles += 8;
    return answer;
}

static uint32_t shim_read(void *context, uint32_t address) { return (uint32_t)access_port(context, 0, address, 0); }

static void shim_write(void *context, uint32_t address, uint32_t value) { access_port(context, 1, address, value); }

static npugen_status shim_allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    buffer->data = calloc(size, 1);
    buffer->address = next_address;
    buffer->size = size;
    next_address += (size + alignment - 1) / alignment * alignment;
    if (!buffer->data) return NPUGEN_NO_MEMORY;
    npu_add_region(context, buffer->address, size, buffer->data, 0);
    return NPUGEN_OK;
}

static npugen_status shim_sync(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context;
    if (offset + size > buffer->size) exit(4);
    return NPUGEN_OK;
}

static npugen_status shim_wait(void *context, uint32_t microseconds) {
    npu_run(context, microseconds);
    cycles += microseconds;
    return NPUGEN_OK;
}

static uint64_t shim_now(void *context) {
    (void)context;
    return cycles;
}

static npugen_status shim_reset(void *context) {
    npu_reset(context, 4);
    return NPUGEN_OK;
}

/* With an argument, that burst of reads is answered with an error. */
static npugen_status open_backend(npugen_backend *backend, int argc, char **argv) {
    struct Machine *machine = npu_new(0);
    if (argc > 1) npu_add_fault(machine, 0, atoi(argv[1]), 0, UINT64_C(1) << 62, 2);
    *backend = (npugen_backend){machine,   shim_read, shim_write, shim_allocate, NULL,
                                shim_sync, shim_sync, shim_wait,  shim_now,      shim_reset};
    return NPUGEN_OK;
}

/* A file of ``size`` bytes; ends the program where it cannot be read. */
static inline uint8_t *file_contents(const char *path, size_t size) {
    uint8_t *data = malloc(size);
    FILE *file = fopen(path, "rb");
    if (!data || !file || fread(data, 1, size, file) != size) exit(2);
    fclose(file);
    return data;
}

#endif
