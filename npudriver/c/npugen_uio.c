/* UIO and u-dma-buf under the driver in C. See npugen_uio.h. */
#define _POSIX_C_SOURCE 200809L

#include "npugen_uio.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LINE 64u /* bytes of a cache line, at least as many as any processor here has */
#define PATH_SIZE 512

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A number in a file of sysfs; the default where there is none. */
static uint64_t number_in(const char *path, uint64_t otherwise) {
    char text[64];
    FILE *file = fopen(path, "r");
    uint64_t value = otherwise;
    if (!file) return otherwise;
    if (fgets(text, sizeof text, file)) value = strtoull(text, NULL, 0);
    fclose(file);
    return value;
}

static uint32_t read32(void *context, uint32_t address) { return ((npugen_uio *)context)->registers[address / 4]; }

static void write32(void *context, uint32_t address, uint32_t value) {
    ((npugen_uio *)context)->registers[address / 4] = value;
}

static npugen_status allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    npugen_uio *uio = context;
    size_t first = 0;
    unsigned number = 0;
    if (uio->block_count == NPUGEN_UIO_BLOCKS) return NPUGEN_NO_MEMORY;
    for (;; ++number) {
        /* The bus address is what has to be aligned. */
        first += (size_t)(-(uio->memory_address + first) & (alignment - 1));
        if (number == uio->block_count) break;
        if (first + size <= uio->blocks[number].first) break;
        if (first < uio->blocks[number].end) first = uio->blocks[number].end;
    }
    if (first > uio->memory_size || size > uio->memory_size - first) return NPUGEN_NO_MEMORY;
    memmove(&uio->blocks[number + 1], &uio->blocks[number], (uio->block_count - number) * sizeof *uio->blocks);
    uio->blocks[number].first = first;
    uio->blocks[number].end = first + size;
    ++uio->block_count;
    buffer->data = uio->memory + first;
    buffer->address = uio->memory_address + first;
    buffer->size = size;
    return NPUGEN_OK;
}

static void give_back(void *context, npugen_buffer *buffer) {
    npugen_uio *uio = context;
    for (unsigned number = 0; number < uio->block_count; ++number) {
        if (uio->memory + uio->blocks[number].first != buffer->data) continue;
        --uio->block_count;
        memmove(&uio->blocks[number], &uio->blocks[number + 1], (uio->block_count - number) * sizeof *uio->blocks);
        break;
    }
    memset(buffer, 0, sizeof *buffer);
}

static void write_number(const npugen_uio *uio, const char *name, uint64_t value) {
    char path[PATH_SIZE];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", uio->folder, name);
    file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "%llu\n", (unsigned long long)value);
    fclose(file);
}

static void sync_range(npugen_uio *uio, const npugen_buffer *buffer, size_t offset, size_t size, int to_device) {
    const size_t begin = (size_t)(buffer->data - uio->memory) + offset;
    const size_t first = begin / LINE * LINE, end = (begin + size + LINE - 1) / LINE * LINE;
    if (uio->coherent || !size) return;
    write_number(uio, "sync_offset", first);
    write_number(uio, "sync_size", (end < uio->memory_size ? end : uio->memory_size) - first);
    write_number(uio, "sync_direction", to_device ? 1 : 2);
    write_number(uio, to_device ? "sync_for_device" : "sync_for_cpu", 1);
}

static void to_device(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    sync_range(context, buffer, offset, size, 1);
}

static void to_host(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    sync_range(context, buffer, offset, size, 0);
}

static npugen_status wait_interrupt(void *context, uint32_t microseconds) {
    npugen_uio *uio = context;
    struct pollfd file = {uio->interrupt, POLLIN, 0};
    const uint32_t enable = 1;
    uint32_t count;
    if (write(uio->interrupt, &enable, sizeof enable) != (ssize_t)sizeof enable) return NPUGEN_IO;
    if (poll(&file, 1, (int)(microseconds + 999) / 1000) < 0) return errno == EINTR ? NPUGEN_OK : NPUGEN_IO;
    if ((file.revents & POLLIN) && read(uio->interrupt, &count, sizeof count) < 0) return NPUGEN_IO;
    return NPUGEN_OK;
}

static uint64_t now(void *context) {
    struct timespec time;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_nsec / 1000u;
}

static npugen_status failed(npugen_uio *uio, const char *what, const char *why) {
    snprintf(uio->message, sizeof uio->message, "%.120s: %.120s", what, why);
    npugen_uio_close(uio);
    return NPUGEN_IO;
}

npugen_status npugen_uio_open(npugen_uio *uio, npugen_backend *backend, const char *device,
                              const char *buffer, const char *sysfs) {
    char path[PATH_SIZE];
    void *mapped;
    memset(uio, 0, sizeof *uio);
    uio->device = uio->interrupt = uio->buffer = -1;
    snprintf(path, sizeof path, "%s/uio/%s/maps/map0/size", sysfs, base_name(device));
    uio->registers_size = (size_t)number_in(path, 0);
    if (!uio->registers_size) return failed(uio, path, "no registers");
    snprintf(uio->folder, sizeof uio->folder, "%.120s/u-dma-buf/%.100s", sysfs, base_name(buffer));
    snprintf(path, sizeof path, "%s/phys_addr", uio->folder);
    if (access(path, R_OK))
        snprintf(uio->folder, sizeof uio->folder, "%.120s/udmabuf/%.100s", sysfs, base_name(buffer));
    snprintf(path, sizeof path, "%s/size", uio->folder);
    uio->memory_size = (size_t)number_in(path, 0);
    if (!uio->memory_size) return failed(uio, path, "no such u-dma-buf");
    snprintf(path, sizeof path, "%s/phys_addr", uio->folder);
    uio->memory_address = number_in(path, 0);
    snprintf(path, sizeof path, "%s/dma_coherent", uio->folder);
    uio->coherent = (int)number_in(path, 0);
    uio->device = open(device, O_RDWR | O_SYNC);
    if (uio->device < 0) return failed(uio, device, strerror(errno));
    uio->interrupt = uio->device;
    mapped = mmap(NULL, uio->registers_size, PROT_READ | PROT_WRITE, MAP_SHARED, uio->device, 0);
    if (mapped == MAP_FAILED) return failed(uio, device, strerror(errno));
    uio->registers = mapped;
    uio->buffer = open(buffer, O_RDWR); /* without O_SYNC: cached */
    if (uio->buffer < 0) return failed(uio, buffer, strerror(errno));
    mapped = mmap(NULL, uio->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, uio->buffer, 0);
    if (mapped == MAP_FAILED) return failed(uio, buffer, strerror(errno));
    uio->memory = mapped;
    *backend = (npugen_backend){uio, read32, write32, allocate, give_back, to_device, to_host,
                wait_interrupt, now, NULL};
    return NPUGEN_OK;
}

void npugen_uio_close(npugen_uio *uio) {
    if (uio->registers) munmap((void *)uio->registers, uio->registers_size);
    if (uio->memory) munmap(uio->memory, uio->memory_size);
    if (uio->device >= 0) close(uio->device);
    if (uio->buffer >= 0) close(uio->buffer);
    uio->registers = NULL;
    uio->memory = NULL;
    uio->device = uio->interrupt = uio->buffer = -1;
}
