/* Calls of the C library that it has to refuse, on the simulated Verilog: a line for each that it does not. */
#include "npugen.h"
#include "npugen_program.h"
#include "rtl_backend.h"

static int wrong;

static void expect(npugen_status found, npugen_status wanted, const char *what) {
    if (found == wanted) return;
    printf("%s: %s\n", what, npugen_status_text(found));
    wrong = 1;
}

static unsigned given_back;
static npugen_status out_of_reach(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    const npugen_status status = shim_allocate(context, size, alignment, buffer);
    buffer->address = (UINT64_C(1) << NPUGEN_ADDRESS_BITS) - (size - 1);
    return status;
}
static void give_back(void *context, npugen_buffer *buffer) {
    (void)context;
    free(buffer->data);
    ++given_back;
}

static uint32_t ones(void *context, uint32_t address) {
    return address == NPUGEN_REG_STATUS ? 0xFFFFFFFFu : shim_read(context, address);
}
static npugen_status fails(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    (void)context, (void)buffer, (void)offset, (void)size;
    return NPUGEN_IO;
}

static void images(npugen_device *device, const npugen_image *image) {
    npugen_program program;
    npugen_image bad = *image;
    expect(npugen_load(device, &program, image, 0), NPUGEN_ARGUMENT, "no slots");
    expect(npugen_load(device, &program, image, NPUGEN_MAX_SLOTS + 1), NPUGEN_ARGUMENT, "too many slots");
    bad.constants_size = (size_t)bad.data_beats * NPUGEN_BEAT_BYTES + 1;
    expect(npugen_load(device, &program, &bad, 1), NPUGEN_ARGUMENT, "constants beyond the region");
    bad = *image;
    bad.write_start = bad.data_beats + 1;
    expect(npugen_load(device, &program, &bad, 1), NPUGEN_ARGUMENT, "nothing to write to");
    bad = *image;
    bad.code_size -= 1;
    expect(npugen_load(device, &program, &bad, 1), NPUGEN_ARGUMENT, "a piece of an instruction");
    expect(npugen_start(device, &program, 0), NPUGEN_ARGUMENT, "a program that is not there");
    device->backend.allocate = out_of_reach;
    device->backend.free = give_back;
    expect(npugen_load(device, &program, image, 1), NPUGEN_UNREACHABLE, "memory beyond the bus");
    if (given_back != 1) expect(NPUGEN_OK, NPUGEN_IO, "memory that was not given back");
    device->backend.allocate = shim_allocate;
    device->backend.free = NULL;
}

static void runs(npugen_device *device, const npugen_image *image) {
    static int8_t values[1024];
    npugen_program program, other;
    const npugen_backend backend = device->backend;
    expect(npugen_load(device, &program, image, 2), NPUGEN_OK, "loading");
    expect(npugen_load(device, &other, image, 1), NPUGEN_OK, "loading another");
    expect(npugen_wait(device, 1000), NPUGEN_ABORTED, "waiting for nothing");
    expect(npugen_set_stream_shift(device, 0), NPUGEN_OK, "streams as they are");
    expect(npugen_set_stream_shift(device, 1), NPUGEN_ARGUMENT, "streams that there are not");
    expect(npugen_start(device, &program, 2), NPUGEN_ARGUMENT, "a slot that there is not");
    expect(npugen_start(device, &program, 0), NPUGEN_OK, "starting");
    expect(npugen_start(device, &program, 1), NPUGEN_BUSY, "starting while one runs");
    expect(npugen_input(device, &program, 0, 0, values), NPUGEN_BUSY, "an input of what runs");
    expect(npugen_output(device, &program, 0, 0, values), NPUGEN_BUSY, "an output of what runs");
    expect(npugen_input(device, &program, 1, 0, values), NPUGEN_OK, "an input of what does not");
    expect(npugen_wait(device, 0), NPUGEN_TIMEOUT, "no time");
    expect(npugen_unload(device, &other), NPUGEN_OK, "unloading what does not run");
    expect(npugen_wait(device, 1000000), NPUGEN_OK, "waiting");
    expect(npugen_start(device, &program, 1), NPUGEN_OK, "starting the next");
    expect(npugen_abort(device), NPUGEN_OK, "aborting");
    expect(npugen_wait(device, 1000000), NPUGEN_ABORTED, "waiting for what was aborted");
    expect(npugen_start(device, &program, 1), NPUGEN_OK, "starting after an abort");
    expect(npugen_reset(device), NPUGEN_OK, "a reset");
    expect(npugen_start(device, &program, 0), NPUGEN_OK, "starting after a reset");
    device->backend.read32 = ones;
    expect(npugen_wait(device, 1000), NPUGEN_IO, "a device that reads as ones");
    device->backend = backend;
    expect(npugen_unload(device, &program), NPUGEN_OK, "unloading what runs");
    if (shim_read(backend.context, NPUGEN_REG_STATUS) & NPUGEN_STATUS_BUSY)
        expect(NPUGEN_OK, NPUGEN_BUSY, "it runs in memory that it has lost");
    expect(npugen_unload(device, &program), NPUGEN_OK, "unloading once more");
    device->backend.to_device = fails;
    expect(npugen_load(device, &program, image, 1), NPUGEN_IO, "caches that are not written back");
}

int main(int argc, char **argv) {
    npugen_backend backend;
    npugen_device device;
    npugen_image image = npugen_model;
    image.code = file_contents("code.bin", image.code_size);
    image.constants = file_contents("data.bin", image.constants_size);
    open_backend(&backend, argc, argv);
    expect(npugen_open(&device, &backend), NPUGEN_OK, "opening");
    images(&device, &image);
    runs(&device, &image);
    backend.read32 = ones;
    expect(npugen_open(&device, &backend), NPUGEN_IO, "opening what reads as ones");
    return wrong;
}
