/* The C library over a cache that does the worst that a cache may do, in front of the simulated Verilog.
 *
 *     ./example LINE EVICT      bytes of a line; 1: dirty lines are written back at the end of each run, 0: never
 *
 * The host sees what is cached, the machine what is in memory. A line is fetched as soon as it has been dropped, and is
 * then stale until it is dropped again. Memory comes with an earlier owner's dirty lines all over it. Prints the number
 * of values that differ, or what the library says.
 */
#include <string.h>

#include "npugen_program.h"
#include "rtl_backend.h"

#define MOST 16
#define CHECK(call) \
    do { \
        const npugen_status outcome = (call); \
        if (outcome != NPUGEN_OK) return puts(npugen_status_text(outcome)), 0; \
    } while (0)

static struct { uint8_t *host, *fetched, *memory, *dirty; size_t size; } blocks[MOST];
static unsigned count;
static size_t line;
static int evict;

static int is_dirty(unsigned block, size_t at) {
    return blocks[block].dirty[at / line] || memcmp(blocks[block].host + at, blocks[block].fetched + at, line) != 0;
}

static void write_back(unsigned block, size_t at) {
    if (!is_dirty(block, at)) return;
    memcpy(blocks[block].memory + at, blocks[block].host + at, line);
    memcpy(blocks[block].fetched + at, blocks[block].host + at, line);
    blocks[block].dirty[at / line] = 0;
}

static void drop(unsigned block, size_t at) {
    memcpy(blocks[block].host + at, blocks[block].memory + at, line);
    memcpy(blocks[block].fetched + at, blocks[block].memory + at, line);
    blocks[block].dirty[at / line] = 0;
}

static npugen_status cached_allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    const size_t whole = (size + line - 1) / line * line;
    uint8_t **const arrays[] = {&blocks[count].host, &blocks[count].fetched, &blocks[count].memory,
                                &blocks[count].dirty};
    for (unsigned array = 0; array < 4; ++array) {
        *arrays[array] = malloc(whole);
        if (!*arrays[array]) return NPUGEN_NO_MEMORY;
        memset(*arrays[array], array == 2 ? 0x5A : 0xA5, whole);
    }
    blocks[count].size = whole;
    *buffer = (npugen_buffer){blocks[count].host, next_address, size};
    npu_add_region(context, next_address, whole, blocks[count].memory, 0);
    next_address += (whole + alignment - 1) / alignment * alignment;
    ++count;
    return NPUGEN_OK;
}

static void each(const npugen_buffer *buffer, size_t offset, size_t size, void (*act)(unsigned block, size_t at)) {
    unsigned block = 0;
    if (offset + size > buffer->size) exit(4);
    while (blocks[block].host != buffer->data) ++block;
    for (size_t at = offset / line * line; at < offset + size; at += line) act(block, at);
}

static npugen_status clean(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context;
    each(buffer, offset, size, write_back);
    return NPUGEN_OK;
}

static npugen_status invalidate(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context;
    each(buffer, offset, size, drop);
    return NPUGEN_OK;
}

static npugen_status cached_wait(void *context, uint32_t microseconds) {
    shim_wait(context, microseconds);
    for (unsigned block = 0; evict && block < count; ++block)
        for (size_t at = 0; at < blocks[block].size; at += line) write_back(block, at);
    return NPUGEN_OK;
}

static size_t values_of(const npugen_tensor *tensor) {
    return (size_t)tensor->channels * tensor->height * tensor->width;
}

int main(int argc, char **argv) {
    npugen_image image = npugen_model;
    npugen_backend backend;
    npugen_device device;
    npugen_program program;
    int8_t *values = (int8_t *)file_contents("input_0.bin", values_of(&image.inputs[0]));
    int8_t *wanted = (int8_t *)file_contents("expected_0.bin", values_of(&image.outputs[0]));
    int8_t *found = calloc(values_of(&image.outputs[0]), 1), *zeros = calloc(values_of(&image.inputs[0]), 1);
    size_t wrong = 0;
    if (argc < 3 || !found || !zeros) return 2;
    line = (size_t)atoi(argv[1]);
    evict = atoi(argv[2]);
    image.code = file_contents("code.bin", image.code_size);
    image.constants = file_contents("data.bin", image.constants_size);
    open_backend(&backend, 1, argv);
    backend.allocate = cached_allocate;
    backend.to_device = clean;
    backend.to_host = invalidate;
    backend.wait = cached_wait;
    CHECK(npugen_open(&device, &backend));
    CHECK(npugen_load(&device, &program, &image, 2));
    for (unsigned run = 0; run < 4; ++run) {
        const unsigned slot = run % 2;
        /* Another run's results lie there before, and the next input is loaded before the results are read. */
        CHECK(npugen_input(&device, &program, slot, 0, run < 2 ? zeros : values));
        if (run < 2) CHECK(npugen_input(&device, &program, slot, 0, values));
        CHECK(npugen_start(&device, &program, slot));
        CHECK(npugen_wait(&device, 1000000));
        CHECK(npugen_input(&device, &program, slot, 0, zeros));
        CHECK(npugen_output(&device, &program, slot, 0, found));
        for (size_t value = 0; value < values_of(&image.outputs[0]); ++value) wrong += found[value] != wanted[value];
    }
    printf("%lu\n", (unsigned long)wrong);
    return 0;
}
