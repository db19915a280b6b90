/* The C library under libFuzzer: images as a damaged or hostile file gives them, and calls on them in any order.
 *
 * A case is bytes, of which `number` makes fields that are small, at the edge or anything. The device is answers from
 * the same bytes; its memory is blocks whose neighbouring bytes must not be touched, which AddressSanitizer sees to, or
 * pages that there are not. Beyond that: what is loaded is what fits, reckoned in another way, and values that were
 * packed come back. `python -m tests.fuzz.c_library` builds and runs it.
 */
#include "device.h"

#define MAPS 3

static unsigned long loaded, written; /* of this process */

/* A field: small as a rule, so that much is accepted. */
static uint32_t number(void) {
    const uint32_t kind = byte();
    if (kind < 242) return 1 + kind % 11;
    if (kind < 245) return byte();
    if (kind < 247) return byte() << 8 | byte();
    if (kind < 250) return UINT32_MAX - byte() % 4;
    if (kind < 253) return (UINT32_C(1) << byte() % 32) + byte() % 3 - 1;
    return word();
}

static int trouble(unsigned one_in) { return byte() % one_in == one_in - 1u; }

static uint32_t anything(void) { return word(); }

/* Whether a map fits, in floating point: exact where it matters, and beyond that nothing wraps. */
static int fits(const npugen_image *image, const npugen_tensor *tensor, int input) {
    const double pixels = (double)tensor->height * tensor->width, beat = NPUGEN_BEAT_BYTES;
    const double row = (double)tensor->channels * tensor->width;
    const double across = tensor->signs ? (double)(((uint64_t)tensor->width + 7) / 8) : tensor->width;
    const double blocks = (double)(uint64_t)((tensor->channels + beat - 1) / beat);
    const double beats = tensor->interleaved ? tensor->height * (double)(uint64_t)((row + beat - 1) / beat)
                                             : across * tensor->height * blocks;
    if (tensor->signs && (input || tensor->interleaved)) return 0;
    return pixels * tensor->channels > 0 && tensor->offset >= image->write_start
        && tensor->offset + beats <= image->data_beats;
}

static int all_fit(const npugen_image *image) {
    int good = image->code_size && image->code_size % NPUGEN_INSTRUCTION_BYTES == 0
        && image->write_start <= image->data_beats && image->data_beats
        && (double)image->data_beats * NPUGEN_BEAT_BYTES <= (double)SIZE_MAX
        && (double)image->constants_size <= (double)image->write_start * NPUGEN_BEAT_BYTES;
    for (unsigned map = 0; map < image->input_count; ++map) good = good && fits(image, &image->inputs[map], 1);
    for (unsigned map = 0; map < image->output_count; ++map) good = good && fits(image, &image->outputs[map], 0);
    return good;
}

static void make_maps(npugen_tensor *maps, unsigned count, uint32_t first) {
    for (unsigned map = 0; map < count; ++map) {
        const uint32_t offset = number();
        maps[map].name = "map";
        maps[map].offset = byte() % 4 ? first + offset : offset;
        maps[map].channels = number();
        maps[map].height = number();
        maps[map].width = number();
        if (byte() % 16 == 0) { /* a product that is 2^32 and a little, of which 32 bits keep the little */
            const uint32_t half = byte() % 31 + 1;
            maps[map].channels = (UINT32_C(1) << half) * (byte() % 4 ? 1 : NPUGEN_BEAT_BYTES);
            maps[map].width = (UINT32_C(1) << (32 - half)) + byte() % 2;
            maps[map].height = 1 + byte() % 2;
        }
        maps[map].interleaved = byte() % 2 ? 0 : (int)(byte() % 3) - 1;
        maps[map].signs = byte() % 4 ? 0 : (int)(byte() % 3) - 1;
    }
}

static size_t values_of(const npugen_tensor *tensor) {
    return (size_t)tensor->channels * tensor->height * tensor->width;
}

/* Refusals alone show little. */
static void how_far(void) { printf("%lu images loaded, %lu inputs written\n", loaded, written); }

/* Values that are written are read again, through an output that is the same map as the input. */
static void use(npugen_device *device, npugen_program *program, const npugen_image *image, unsigned slot,
                unsigned map) {
    const npugen_tensor *tensor = map < image->input_count ? &image->inputs[map] : NULL;
    const size_t count = tensor ? values_of(tensor) : 0;
    int8_t *values = (int8_t *)watched(count), *found = (int8_t *)watched(count);
    for (size_t value = 0; value < count; ++value) values[value] = (int8_t)(value * 37 + 11);
    if (npugen_input(device, program, slot, map, values) == NPUGEN_OK) {
        const npugen_image *whole = program->image;
        npugen_image same = *image;
        ++written;
        same.outputs = image->inputs;
        same.output_count = image->input_count;
        program->image = &same;
        if (npugen_output(device, program, slot, map, found) == NPUGEN_OK && memcmp(found, values, count))
            stop("values do not come back");
        program->image = whole;
    }
    unwatched((uint8_t *)values, count);
    unwatched((uint8_t *)found, count);
}

static void read_output(npugen_device *device, npugen_program *program, const npugen_image *image, unsigned slot,
                        unsigned map) {
    const size_t count = map < image->output_count ? values_of(&image->outputs[map]) : 0;
    int8_t *found = (int8_t *)watched(count);
    if (npugen_output(device, program, slot, map, found) == NPUGEN_OK && image->outputs[map].signs)
        for (size_t value = 0; value < count; ++value)
            if (found[value] != 1 && found[value] != -1) stop("a sign is another value");
    unwatched((uint8_t *)found, count);
}

static void call(npugen_device *device, npugen_program *program, const npugen_image *image) {
    const unsigned slot = byte() % (NPUGEN_MAX_SLOTS + 1), map = byte() % (MAPS + 1);
    switch (byte() % 8) {
    case 0: (void)npugen_start(device, program, slot); break;
    case 1: (void)npugen_wait(device, byte() * 1000u); break;
    case 2: (void)npugen_abort(device); break;
    case 3: (void)npugen_set_stream_shift(device, number()); break;
    case 4: read_output(device, program, image, slot, map); break;
    default: use(device, program, image, slot, map);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static npugen_tensor maps[2 * MAPS];
    uint64_t time = 0;
    const npugen_backend backend = {&time, read32, write32, allocate, give_back, sync_range, sync_range,
                                    wait_a_while, now, NULL};
    npugen_device device;
    npugen_program program;
    npugen_image image;
    npugen_status status;
    uint8_t *code, *constants;
    size_t code_bytes, constant_bytes;
    static int begun;
    if (!begun) atexit(how_far);
    begun = 1;
    bytes = data;
    left = size;
    memset(&image, 0, sizeof image);
    image.name = "image";
    code_bytes = byte() % 4 ? (size_t)NPUGEN_INSTRUCTION_BYTES * (number() % 64) : number() % 1024;
    image.write_start = number();
    constant_bytes = byte() % 4 && image.write_start < 256 ? image.write_start * (size_t)NPUGEN_BEAT_BYTES
                                                           : number() % 4096;
    image.data_beats = byte() % 4 ? image.write_start + byte() * byte() : number();
    image.code = code = watched(code_bytes);
    image.constants = constants = watched(constant_bytes);
    memset(code, 0, code_bytes);
    memset(constants, 1, constant_bytes);
    image.code_size = code_bytes;
    image.constants_size = constant_bytes;
    image.input_count = byte() % (MAPS + 1);
    image.output_count = byte() % (MAPS + 1);
    image.inputs = maps;
    image.outputs = maps + MAPS;
    make_maps(maps, image.input_count, image.write_start);
    make_maps(maps + MAPS, image.output_count, image.write_start);
    status = npugen_open(&device, &backend);
    if (status == NPUGEN_OK) {
        const unsigned slots = 1 + byte() % NPUGEN_MAX_SLOTS;
        status = npugen_load(&device, &program, &image, slots);
        if ((status == NPUGEN_ARGUMENT) == all_fit(&image))
            stop(status == NPUGEN_ARGUMENT ? "what fits is refused" : "what does not fit is taken");
        loaded += status == NPUGEN_OK;
        while (status == NPUGEN_OK && left) call(&device, &program, &image);
        while (npugen_unload(&device, &program) != NPUGEN_OK) {}
        if (blocks) stop("memory is not given back");
    }
    unwatched(code, code_bytes);
    unwatched(constants, constant_bytes);
    return 0;
}
