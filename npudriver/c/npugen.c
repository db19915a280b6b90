/* Programs on a device: registers, memory, packing. See npugen.h. */
#include "npugen.h"

#include <string.h>

#define SETTLING_US 1000000u
#define SLICE_US 250000u /* an interrupt that was lost is found out after so long */
#define STATUS_BITS (NPUGEN_STATUS_BUSY | NPUGEN_STATUS_DONE | NPUGEN_STATUS_ERROR)

static const char *const error_names[] = NPUGEN_ERROR_NAMES;
static const char *const error_texts[] = NPUGEN_ERROR_TEXTS;

static uint32_t read_register(npugen_device *device, uint32_t address) {
    return device->backend.read32(device->backend.context, address);
}

static void write_register(npugen_device *device, uint32_t address, uint32_t value) {
    device->backend.write32(device->backend.context, address, value);
}

static uint64_t now(npugen_device *device) { return device->backend.now(device->backend.context); }

/* The status register. A device that is off, or unreachable, often reads as ones. */
static npugen_status look(npugen_device *device, uint32_t *status) {
    *status = read_register(device, NPUGEN_REG_STATUS);
    return *status & ~(uint32_t)STATUS_BITS ? NPUGEN_IO : NPUGEN_OK;
}

/* Wait until the machine is at rest. */
static npugen_status settle(npugen_device *device) {
    const uint64_t deadline = now(device) + SETTLING_US;
    for (;;) {
        uint32_t status;
        if (look(device, &status) != NPUGEN_OK) return NPUGEN_IO;
        if (!(status & NPUGEN_STATUS_BUSY)) return NPUGEN_OK;
        if (now(device) >= deadline) return NPUGEN_BUSY;
        if (device->backend.wait(device->backend.context, 20) != NPUGEN_OK) return NPUGEN_IO;
    }
}

static npugen_status identify(npugen_device *device) {
    if (read_register(device, NPUGEN_REG_ID) != NPUGEN_ID_VALUE) return NPUGEN_WRONG_DEVICE;
    if (read_register(device, NPUGEN_REG_VERSION) != NPUGEN_VERSION_VALUE) return NPUGEN_WRONG_DEVICE;
    if (read_register(device, NPUGEN_REG_CONFIG) != NPUGEN_CONFIG_VALUE) return NPUGEN_WRONG_DEVICE;
    return NPUGEN_OK;
}

npugen_status npugen_open(npugen_device *device, const npugen_backend *backend) {
    npugen_status status;
    uint32_t found;
    memset(device, 0, sizeof *device);
    device->backend = *backend;
    status = identify(device);
    if (status == NPUGEN_OK) status = look(device, &found);
    if (status != NPUGEN_OK) return status;
    if (found & NPUGEN_STATUS_BUSY) { /* whoever had it before is gone */
        status = npugen_abort(device);
        if (status == NPUGEN_BUSY) status = npugen_reset(device);
        if (status != NPUGEN_OK) return status;
    }
    write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_CLEAR);
    return NPUGEN_OK;
}

/* Whether the machine's bus has the addresses of a buffer, up to its last byte. */
static int reachable(const npugen_buffer *buffer) {
    const uint64_t highest = UINT64_MAX >> (64 - NPUGEN_ADDRESS_BITS);
    return buffer->address <= highest && buffer->size - 1 <= highest - buffer->address;
}

static void release(npugen_device *device, npugen_buffer *buffer) {
    if (device->backend.free) device->backend.free(device->backend.context, buffer);
    memset(buffer, 0, sizeof *buffer);
}

static npugen_status reserve(npugen_device *device, npugen_buffer *buffer, size_t size) {
    npugen_status status =
        device->backend.allocate(device->backend.context, size, NPUGEN_BASE_ALIGNMENT, buffer);
    if (status != NPUGEN_OK || reachable(buffer)) return status;
    release(device, buffer);
    return NPUGEN_UNREACHABLE;
}

static npugen_status fill(npugen_device *device, npugen_buffer *buffer, const uint8_t *data, size_t size) {
    if (size) memcpy(buffer->data, data, size);
    /* All of it: what an earlier owner left dirty would be written over results during a run. */
    return device->backend.to_device(device->backend.context, buffer, 0, buffer->size);
}

#ifdef NPUGEN_REG_LIMIT_LOCK
static uint64_t read_pair(npugen_device *device, uint32_t low, uint32_t high) {
    const uint32_t half = read_register(device, low);
    return (uint64_t)read_register(device, high) << 32 | half;
}

/* Let the machine, which is at rest, reach a program's memory and no other. Where another process has the page of the
 * limits, writes to it do nothing; it reads as 0 then, and the machine says if they are too narrow. */
static npugen_status confine(npugen_device *device, const npugen_program *program) {
    const npugen_buffer *memory = &program->memory;
    const uint64_t last = memory->address + memory->size - 1;
    if (device->confined_last == last && device->confined_first == memory->address) return NPUGEN_OK;
    device->confined_last = 0;
    write_register(device, NPUGEN_REG_LIMIT_LOCK, 0);
    write_register(device, NPUGEN_REG_LIMIT_FIRST_LOW, (uint32_t)memory->address);
    write_register(device, NPUGEN_REG_LIMIT_FIRST_HIGH, (uint32_t)(memory->address >> 32));
    write_register(device, NPUGEN_REG_LIMIT_LAST_LOW, (uint32_t)last);
    write_register(device, NPUGEN_REG_LIMIT_LAST_HIGH, (uint32_t)(last >> 32));
    write_register(device, NPUGEN_REG_LIMIT_LOCK, 1);
    if (read_register(device, NPUGEN_REG_LIMIT_LOCK)
        && (read_pair(device, NPUGEN_REG_LIMIT_FIRST_LOW, NPUGEN_REG_LIMIT_FIRST_HIGH) > memory->address
            || read_pair(device, NPUGEN_REG_LIMIT_LAST_LOW, NPUGEN_REG_LIMIT_LAST_HIGH) < last))
        return NPUGEN_UNREACHABLE; /* they were locked, and stood still */
    device->confined_first = memory->address;
    device->confined_last = last;
    return NPUGEN_OK;
}

static void unconfine(npugen_device *device, const npugen_program *program) {
    if (!device->confined_last || device->confined_first != program->memory.address) return;
    write_register(device, NPUGEN_REG_LIMIT_LOCK, 0);
    device->confined_last = 0;
}

static uint64_t whole_pages(uint64_t size) {
    return (size + NPUGEN_BASE_ALIGNMENT - 1) / NPUGEN_BASE_ALIGNMENT * NPUGEN_BASE_ALIGNMENT;
}

static npugen_buffer part_of(const npugen_buffer *memory, uint64_t first, size_t size) {
    const npugen_buffer part = {memory->data + first, memory->address + first, size};
    return part;
}

/* One piece for all of a program, so that limits around it leave all else out. */
static npugen_status reserve_program(npugen_device *device, npugen_program *program, size_t code, size_t region,
                                     unsigned slots) {
    const uint64_t first = whole_pages(code), pitch = whole_pages(region);
    npugen_status status;
    if (pitch > SIZE_MAX / NPUGEN_MAX_SLOTS || first > SIZE_MAX - slots * pitch) return NPUGEN_NO_MEMORY;
    status = reserve(device, &program->memory, (size_t)(first + slots * pitch));
    if (status != NPUGEN_OK) return status;
    program->code = part_of(&program->memory, 0, code);
    for (; program->slots < slots; ++program->slots)
        program->regions[program->slots] = part_of(&program->memory, first + program->slots * pitch, region);
    return NPUGEN_OK;
}

static void release_program(npugen_device *device, npugen_program *program) {
    unconfine(device, program);
    if (program->memory.data) release(device, &program->memory);
}
#else
static npugen_status confine(npugen_device *device, const npugen_program *program) {
    (void)device;
    (void)program;
    return NPUGEN_OK;
}

static npugen_status reserve_program(npugen_device *device, npugen_program *program, size_t code, size_t region,
                                     unsigned slots) {
    npugen_status status = reserve(device, &program->code, code);
    while (status == NPUGEN_OK && program->slots < slots) {
        status = reserve(device, &program->regions[program->slots], region);
        if (status == NPUGEN_OK) ++program->slots;
    }
    return status;
}

static void release_program(npugen_device *device, npugen_program *program) {
    while (program->slots) release(device, &program->regions[--program->slots]);
    if (program->code.data) release(device, &program->code);
}
#endif

static uint64_t beats_of(uint64_t bytes) { return bytes / NPUGEN_BEAT_BYTES + (bytes % NPUGEN_BEAT_BYTES != 0); }

/* Whether so many times one count stay within a limit; no product is made that does not fit. */
static int times_fit(uint64_t *count, uint64_t factor, uint64_t limit) {
    if (factor > limit || (factor && *count > limit / factor)) return 0;
    *count *= factor;
    return 1;
}

/* Pixels of a beat that has a bit for each value, in place of a byte. */
#define SIGN_PIXELS 8u

/* Beats of a row of a block. */
static uint64_t row_beats(const npugen_tensor *tensor) {
    return tensor->signs ? ((uint64_t)tensor->width + SIGN_PIXELS - 1) / SIGN_PIXELS : tensor->width;
}

/* Whether a map lies in the region, after the constants. All places within the map are in the region then, and are
 * numbers that this processor has, as the region's size is one. */
static int inside(const npugen_image *image, const npugen_tensor *tensor) {
    const uint64_t room = (uint64_t)image->data_beats - image->write_start;
    uint64_t beats = tensor->interleaved ? beats_of((uint64_t)tensor->channels * tensor->width) : row_beats(tensor);
    if (!tensor->channels || !tensor->height || !tensor->width || (tensor->interleaved && tensor->signs)) return 0;
    if (!tensor->interleaved && !times_fit(&beats, beats_of(tensor->channels), room)) return 0;
    if (!times_fit(&beats, tensor->height, room)) return 0;
    return tensor->offset >= image->write_start && tensor->offset - image->write_start <= room - beats;
}

static int all_inside(const npugen_image *image, const npugen_tensor *tensors, unsigned count, int may_be_signs) {
    if (count && !tensors) return 0;
    while (count--)
        if (!inside(image, &tensors[count]) || (tensors[count].signs && !may_be_signs)) return 0;
    return 1;
}

/* Sizes that go together, a data region that this processor can address, inputs and outputs within it. Whoever made the
 * image may have taken all of it from a file. */
static int sensible(const npugen_image *image) {
    const uint64_t region = (uint64_t)image->data_beats * NPUGEN_BEAT_BYTES;
    if (!image->code || !image->code_size || image->code_size % NPUGEN_INSTRUCTION_BYTES) return 0;
    if (image->code_size / NPUGEN_INSTRUCTION_BYTES >= NPUGEN_INSTRUCTION_LIMIT) return 0;
    if (!region || region > SIZE_MAX || image->write_start > image->data_beats) return 0;
    if (image->constants_size && !image->constants) return 0;
    if (image->constants_size > (uint64_t)image->write_start * NPUGEN_BEAT_BYTES) return 0;
    return all_inside(image, image->inputs, image->input_count, 0)
        && all_inside(image, image->outputs, image->output_count, 1);
}

npugen_status npugen_load(npugen_device *device, npugen_program *program, const npugen_image *image,
                          unsigned slots) {
    const size_t region_size = (size_t)image->data_beats * NPUGEN_BEAT_BYTES;
    size_t code_size;
    npugen_status status;
    memset(program, 0, sizeof *program);
    if (slots < 1 || slots > NPUGEN_MAX_SLOTS || !sensible(image)) return NPUGEN_ARGUMENT;
    code_size = (size_t)beats_of(image->code_size) * NPUGEN_BEAT_BYTES; /* fetch reads whole beats */
    status = reserve_program(device, program, code_size, region_size, slots);
    if (status == NPUGEN_OK) status = fill(device, &program->code, image->code, image->code_size);
    for (unsigned slot = 0; status == NPUGEN_OK && slot < slots; ++slot)
        status = fill(device, &program->regions[slot], image->constants, image->constants_size);
    if (status == NPUGEN_OK) {
        program->image = image;
        return NPUGEN_OK;
    }
    release_program(device, program);
    memset(program, 0, sizeof *program);
    return status;
}

npugen_status npugen_unload(npugen_device *device, npugen_program *program) {
    if (program->image) {
        /* What it was told to stop may have transfers under way. */
        npugen_status status = NPUGEN_OK;
        if (device->running == program)
            status = npugen_abort(device);
        else if (!device->running)
            status = settle(device);
        if (status != NPUGEN_OK) return status;
        release_program(device, program);
    }
    memset(program, 0, sizeof *program);
    return NPUGEN_OK;
}

/* Bytes of a row of an interleaved map, or of the pixels of a block's row. */
static size_t row_bytes(const npugen_tensor *tensor) {
    const size_t bytes = (size_t)tensor->channels * tensor->width;
    if (!tensor->interleaved) return (size_t)row_beats(tensor) * NPUGEN_BEAT_BYTES;
    return (bytes + NPUGEN_BEAT_BYTES - 1) / NPUGEN_BEAT_BYTES * NPUGEN_BEAT_BYTES;
}

static size_t tensor_bytes(const npugen_tensor *tensor) {
    const size_t blocks = (tensor->channels + NPUGEN_BEAT_BYTES - 1) / NPUGEN_BEAT_BYTES;
    return (tensor->interleaved ? 1 : blocks) * tensor->height * row_bytes(tensor);
}

/* Where a value lies from the tensor's first byte on. */
static size_t place_of(const npugen_tensor *tensor, uint32_t channel, uint32_t row, uint32_t column) {
    if (tensor->interleaved) return row * row_bytes(tensor) + (size_t)column * tensor->channels + channel;
    return ((size_t)(channel / NPUGEN_BEAT_BYTES) * tensor->height + row) * row_bytes(tensor)
        + (size_t)column * NPUGEN_BEAT_BYTES + channel % NPUGEN_BEAT_BYTES;
}

/* A sign of a map of packed bits, -1 or 1: the bits of a beat are those of its channels, pixel after pixel. */
static int8_t sign_at(const uint8_t *map, const npugen_tensor *tensor, uint32_t channel, uint32_t row,
                      uint32_t column) {
    const uint32_t bit = column % SIGN_PIXELS * NPUGEN_BEAT_BYTES + channel % NPUGEN_BEAT_BYTES;
    map += ((size_t)(channel / NPUGEN_BEAT_BYTES) * tensor->height + row) * row_bytes(tensor)
        + (size_t)(column / SIGN_PIXELS) * NPUGEN_BEAT_BYTES;
    return (int8_t)((map[bit / 8u] >> bit % 8u & 1) ? 1 : -1);
}

/* Whether a region is the machine's: the host keeps away until the run has ended. */
static int runs_on(const npugen_device *device, const npugen_program *program, unsigned slot) {
    return device->running == program && device->running_slot == slot;
}

npugen_status npugen_input(npugen_device *device, npugen_program *program, unsigned slot, unsigned input,
                           const int8_t *values) {
    const npugen_tensor *tensor;
    npugen_buffer *region;
    npugen_status status;
    size_t begin;
    if (!program->image || slot >= program->slots || input >= program->image->input_count) return NPUGEN_ARGUMENT;
    if (runs_on(device, program, slot)) return NPUGEN_BUSY;
    tensor = &program->image->inputs[input];
    region = &program->regions[slot];
    begin = (size_t)tensor->offset * NPUGEN_BEAT_BYTES;
    /* What shares the lines at its ends is the machine's, and is written back with it. */
    status = device->backend.to_host(device->backend.context, region, begin, tensor_bytes(tensor));
    if (status != NPUGEN_OK) return status;
    memset(region->data + begin, 0, tensor_bytes(tensor));
    for (uint32_t channel = 0; channel < tensor->channels; ++channel)
        for (uint32_t row = 0; row < tensor->height; ++row)
            for (uint32_t column = 0; column < tensor->width; ++column)
                region->data[begin + place_of(tensor, channel, row, column)] = (uint8_t)*values++;
    return device->backend.to_device(device->backend.context, region, begin, tensor_bytes(tensor));
}

npugen_status npugen_output(npugen_device *device, npugen_program *program, unsigned slot, unsigned output,
                            int8_t *values) {
    const npugen_tensor *tensor;
    npugen_buffer *region;
    npugen_status status;
    size_t begin;
    if (!program->image || slot >= program->slots || output >= program->image->output_count) return NPUGEN_ARGUMENT;
    if (runs_on(device, program, slot)) return NPUGEN_BUSY;
    tensor = &program->image->outputs[output];
    region = &program->regions[slot];
    begin = (size_t)tensor->offset * NPUGEN_BEAT_BYTES;
    status = device->backend.to_host(device->backend.context, region, begin, tensor_bytes(tensor));
    if (status != NPUGEN_OK) return status;
    for (uint32_t channel = 0; channel < tensor->channels; ++channel)
        for (uint32_t row = 0; row < tensor->height; ++row)
            for (uint32_t column = 0; column < tensor->width; ++column)
                *values++ = tensor->signs ? sign_at(region->data + begin, tensor, channel, row, column)
                                          : (int8_t)region->data[begin + place_of(tensor, channel, row, column)];
    return NPUGEN_OK;
}

npugen_status npugen_start(npugen_device *device, npugen_program *program, unsigned slot) {
    npugen_status status;
    if (!program->image || slot >= program->slots) return NPUGEN_ARGUMENT;
    if (device->running) return NPUGEN_BUSY;
    status = settle(device);
    if (status != NPUGEN_OK) return status;
    write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_CLEAR);
    status = confine(device, program);
    if (status != NPUGEN_OK) return status;
    write_register(device, NPUGEN_REG_PROGRAM_LOW, (uint32_t)program->code.address);
    write_register(device, NPUGEN_REG_PROGRAM_HIGH, (uint32_t)(program->code.address >> 32));
    write_register(device, NPUGEN_REG_PROGRAM_LENGTH,
                   (uint32_t)(program->image->code_size / NPUGEN_INSTRUCTION_BYTES));
    write_register(device, NPUGEN_REG_DATA_LOW, (uint32_t)program->regions[slot].address);
    write_register(device, NPUGEN_REG_DATA_HIGH, (uint32_t)(program->regions[slot].address >> 32));
    write_register(device, NPUGEN_REG_DATA_BEATS, program->image->data_beats);
    write_register(device, NPUGEN_REG_WRITE_START, program->image->write_start);
    if (device->progress_cycles) write_register(device, NPUGEN_REG_TIMEOUT, device->progress_cycles);
#ifdef NPUGEN_REG_STREAM_SHIFT
    write_register(device, NPUGEN_REG_STREAM_SHIFT, device->stream_shift);
#endif
    write_register(device, NPUGEN_REG_IRQ_ENABLE, 1);
    write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_START);
    device->running = program;
    device->running_slot = slot;
    return NPUGEN_OK;
}

/* The outcome of what has ended; the interrupt falls. */
static npugen_status collect(npugen_device *device, uint32_t status) {
    const int failed = (status & NPUGEN_STATUS_ERROR) != 0;
    device->fault_code = failed ? read_register(device, NPUGEN_REG_ERROR_CODE) : 0;
    device->fault_index = failed ? read_register(device, NPUGEN_REG_ERROR_INDEX) : 0;
    write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_CLEAR);
    device->running = NULL;
    return failed ? NPUGEN_FAULT : NPUGEN_OK;
}

npugen_status npugen_wait(npugen_device *device, uint32_t timeout_us) {
    const uint64_t deadline = now(device) + timeout_us;
    for (;;) {
        const uint64_t time = now(device);
        uint64_t left;
        uint32_t status;
        if (look(device, &status) != NPUGEN_OK) return NPUGEN_IO;
        if (status & (NPUGEN_STATUS_DONE | NPUGEN_STATUS_ERROR)) return collect(device, status);
        if (!(status & NPUGEN_STATUS_BUSY)) {
            device->running = NULL;
            return NPUGEN_ABORTED;
        }
        if (time >= deadline) return NPUGEN_TIMEOUT;
        left = deadline - time;
        if (device->backend.wait(device->backend.context, left < SLICE_US ? (uint32_t)left : SLICE_US) != NPUGEN_OK)
            return NPUGEN_IO;
    }
}

npugen_status npugen_abort(npugen_device *device) {
    npugen_status status;
    write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_ABORT);
    status = settle(device);
    if (status != NPUGEN_OK) return status;
    write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_CLEAR);
    device->running = NULL;
    return NPUGEN_OK;
}

npugen_status npugen_reset(npugen_device *device) {
    npugen_status status =
        device->backend.reset ? device->backend.reset(device->backend.context) : npugen_abort(device);
    if (status == NPUGEN_OK) {
        device->running = NULL;
        device->confined_last = 0;
    }
    if (status == NPUGEN_OK) status = identify(device);
    if (status == NPUGEN_OK) write_register(device, NPUGEN_REG_CONTROL, NPUGEN_CONTROL_CLEAR);
    return status;
}

npugen_status npugen_set_stream_shift(npugen_device *device, uint32_t shift) {
#ifdef NPUGEN_REG_STREAM_SHIFT
    const uint32_t most = NPUGEN_STREAM_SHIFT_MOST;
#else
    const uint32_t most = 0;
#endif
    if (shift > most) return NPUGEN_ARGUMENT;
    device->stream_shift = shift; /* written at the next start: what runs keeps its own */
    return NPUGEN_OK;
}

uint64_t npugen_counter(npugen_device *device, uint32_t low_register) {
    /* The low half first: it holds the high one. */
    const uint64_t low = read_register(device, low_register);
    return low | (uint64_t)read_register(device, low_register + 4) << 32;
}

const char *npugen_status_text(npugen_status status) {
    static const char *const texts[] = {
        "done", "the device is no NPU of this configuration", "the device is busy", "the machine stopped at an error",
        "no result in time", "stopped without a result", "no room in the device's memory",
        "no such slot, input or output, or an image or a shift that cannot be", "the way to the device fails",
        "memory at addresses that the machine does not reach",
        "code or constants are damaged: deploy the program again"};
    return (unsigned)status < sizeof texts / sizeof *texts ? texts[status] : "unknown";
}

const char *npugen_error_name(uint32_t code) {
    return code < sizeof error_names / sizeof *error_names ? error_names[code] : "unknown";
}

const char *npugen_error_text(uint32_t code) {
    return code < sizeof error_texts / sizeof *error_texts ? error_texts[code] : "not known to this driver";
}
