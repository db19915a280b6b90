/* A model in C under libFuzzer: all that it reads is anything, and its calls come in any order.
 *
 * That is inputs (numbers that are none, or infinite, indices beyond every axis), states, feature maps that the device
 * has written, registers, and outcomes of the back end. Inputs, outputs, arena and the device's memory are blocks as
 * large as the header says, and no byte beside them may be touched. Beyond that: what is OK has a shape within the
 * largest one, and a state that the model keeps is the output of that sample. The model is that of
 * tests/fuzz/c_model.py, and has the states that this file knows.
 */
#include "device.h"
#include "npugen_model.h"

static unsigned long run_whole, begun_slots; /* of this process */

static void how_far(void) { printf("%lu samples begun, %lu ended\n", begun_slots, run_whole); }

/* What there is of the case is used up soon: from then on bytes are drawn, from a seed that is the case's. */
static uint32_t drawn;

static uint32_t any(void) {
    drawn = drawn * UINT32_C(1664525) + UINT32_C(1013904223);
    return left && drawn >> 30 == 0 ? byte() : drawn >> 24;
}

/* How seldom; 0: never. */
static unsigned seldom;

static int trouble(unsigned one_in) { return seldom && (any() | any() << 8) % (one_in * seldom) == 0; }

static uint32_t anything(void) { return any() | any() << 8 | any() << 16 | any() << 24; }

static void fill_any(uint8_t *data, size_t size) {
    for (size_t at = 0; at < size; ++at) data[at] = (uint8_t)any();
}

/* What an input may hold that its type allows: small numbers as a rule, so that much is reached. */
static void fill_value(const npugen_value *value, uint8_t *data) {
    static const float reals[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 127.5f, -128.5f, 3e38f, -3e38f, 1e-40f, 255.0f, 6.0f};
    const uint32_t way = any() % 4;
    if (way == 0) {
        fill_any(data, value->values * value->element);
        return;
    }
    for (size_t index = 0; index < value->values; ++index) {
        uint8_t *const place = data + index * value->element;
        if (value->type == NPUGEN_REAL) {
            const uint32_t kind = any();
            float number = kind < 200 ? (float)((int)any() - 128) / 32.0f : reals[kind % 12u];
            if (way == 2 && any() % 32 == 0) number /= 0.0f * (float)(kind % 2u); /* infinite, or no number */
            memcpy(place, &number, sizeof number);
        } else {
            const int64_t number = way == 3 && any() % 4 == 0 ? (int64_t)(anything() * UINT64_C(0x100000001))
                                                              : (int64_t)(any() % 16) - 8;
            memcpy(place, &number, value->element); /* little-endian */
        }
    }
}

/* The machine has written something where the host reads. */
static npugen_status to_host(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    const npugen_status status = sync_range(context, buffer, offset, size);
    fill_any(buffer->data + offset, size);
    return status;
}

typedef struct sample {
    uint8_t *inputs[NPUGEN_MODEL_INPUTS], *outputs[NPUGEN_MODEL_OUTPUTS];
} sample;

static void make(sample *made) {
    for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
        made->inputs[input] = watched(npugen_model_inputs[input].values * npugen_model_inputs[input].element);
    for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
        made->outputs[output] = watched(npugen_model_outputs[output].values * npugen_model_outputs[output].element);
}

static void unmake(const sample *made) {
    for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
        unwatched(made->inputs[input], npugen_model_inputs[input].values * npugen_model_inputs[input].element);
    for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
        unwatched(made->outputs[output], npugen_model_outputs[output].values * npugen_model_outputs[output].element);
}

static void ended(npugen_model *model, const sample *made, unsigned slot) {
    (void)made;
    if (++run_whole > begun_slots) stop("a sample ends that was not begun");
    for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
        for (size_t axis = 0; axis < npugen_model_outputs[output].rank; ++axis)
            if (model->shapes[slot][output][axis] > npugen_model_outputs[output].shape[axis])
                stop("an output is larger than the largest");
#ifdef NPUGEN_MODEL_STATES
    for (unsigned state = 0; state < NPUGEN_MODEL_STATES; ++state) {
        const npugen_value *const value = &npugen_model_states[state];
        if (memcmp(npugen_model_state(model, state), made->outputs[state], value->values * value->element))
            stop("a state is not the output that it was");
    }
#endif
}

static void call(npugen_device *device, npugen_model *model, const sample *made) {
    const unsigned slot = any() % 8u ? any() % NPUGEN_MODEL_SLOTS : any() % 4u;
    const void *const *const inputs = (const void *const *)made->inputs;
    void *const *const outputs = (void *const *)made->outputs;
    npugen_status status;
    switch (any() % 8u) {
    case 0:
        if (npugen_model_begin(model, slot) == NPUGEN_OK) ++begun_slots;
        break;
    case 1:
        if (npugen_model_end(model, slot, any() * 1000u) == NPUGEN_OK) ended(model, made, slot);
        break;
    case 2: (void)npugen_abort(device); break;
    case 3: (void)npugen_model_prepare(model, slot, inputs, outputs); break;
#ifdef NPUGEN_MODEL_STATES
    case 4: (void)npugen_model_reset(model); break;
    case 5: {
        const unsigned state = any() % (NPUGEN_MODEL_STATES + 1u);
        uint8_t *const data = npugen_model_state(model, state);
        if ((data != NULL) != (state < NPUGEN_MODEL_STATES)) stop("a state that there is not");
        if (data) fill_value(&npugen_model_states[state], data);
        break;
    }
#endif
    default:
        for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
            fill_value(&npugen_model_inputs[input], made->inputs[input]);
        ++begun_slots;
        status = npugen_model_run(model, inputs, outputs, 50000u);
        if (status == NPUGEN_OK) ended(model, made, 0);
        else if (status != NPUGEN_TIMEOUT && status != NPUGEN_IO) --begun_slots; /* after these it can still end */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t time = 0;
    const npugen_backend backend = {&time, read32, write32, allocate, give_back, sync_range, to_host,
                                    wait_a_while, now, NULL};
    npugen_device device;
    npugen_model model;
    sample made;
    uint8_t *arena;
    unsigned calls;
    static int begun;
    if (!begun) atexit(how_far);
    begun = 1;
    bytes = data;
    left = size;
    drawn = word();
    seldom = (const unsigned[]){0, 1, 6, 40}[byte() % 4u];
    calls = 1u + byte() % 12u;
    make(&made);
    arena = watched(NPUGEN_MODEL_ARENA_BYTES);
    for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
        fill_value(&npugen_model_inputs[input], made.inputs[input]);
    if (npugen_open(&device, &backend) == NPUGEN_OK) {
        if (npugen_model_load(&model, &device, arena) == NPUGEN_OK)
            while (calls--) call(&device, &model, &made);
        while (npugen_model_unload(&model) != NPUGEN_OK) {}
        if (blocks) stop("memory is not given back");
    }
    unwatched(arena, NPUGEN_MODEL_ARENA_BYTES);
    unmake(&made);
    return 0;
}
