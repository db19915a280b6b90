/* A model in C over the samples that the other end of a pipe has: two on their way at a time, where it has two slots. */
#include "npugen_model.h"
#include "piped_backend.h"

static uint64_t arena[NPUGEN_MODEL_ARENA_BYTES / sizeof(uint64_t) + 1u];
static void *inputs[NPUGEN_MODEL_SLOTS][NPUGEN_MODEL_INPUTS + 1u], *outputs[NPUGEN_MODEL_SLOTS][NPUGEN_MODEL_OUTPUTS];
static npugen_device device;
static npugen_model model;

static void require(npugen_status status) {
    if (status == NPUGEN_OK) return;
    piped_request(PIPED_STATUS, (uint32_t)status, device.fault_code, device.fault_index);
    _exit(1);
}

static void *room(size_t size) {
    void *data = malloc(size + 1u);
    if (!data) _exit(6);
    return data;
}

static void prepare(uint32_t sample) {
    const unsigned slot = sample % NPUGEN_MODEL_SLOTS;
    for (uint32_t input = 0; input < NPUGEN_MODEL_INPUTS; ++input) {
        piped_request(PIPED_INPUT, sample, input, 0);
        piped_get(inputs[slot][input], npugen_model_inputs[input].values * npugen_model_inputs[input].element);
    }
    require(npugen_model_prepare(&model, slot, (const void *const *)inputs[slot], outputs[slot]));
}

static void send(uint32_t sample) {
    const unsigned slot = sample % NPUGEN_MODEL_SLOTS;
    for (uint32_t output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) {
        const npugen_value *value = &npugen_model_outputs[output];
        size_t count = 1;
        piped_request(PIPED_OUTPUT, sample, output, (uint32_t)value->rank);
        for (size_t axis = 0; axis < value->rank; ++axis) {
            const uint32_t size = (uint32_t)model.shapes[slot][output][axis];
            piped_put(&size, sizeof size);
            count *= size;
        }
        piped_put(outputs[slot][output], count * value->element);
    }
}

int main(void) {
    const npugen_backend backend = piped_backend();
    uint32_t count;
    require(npugen_open(&device, &backend));
    require(npugen_model_load(&model, &device, arena));
    for (unsigned slot = 0; slot < NPUGEN_MODEL_SLOTS; ++slot) {
        for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
            inputs[slot][input] = room(npugen_model_inputs[input].values * npugen_model_inputs[input].element);
        for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
            outputs[slot][output] = room(npugen_model_outputs[output].values * npugen_model_outputs[output].element);
    }
    piped_request(PIPED_SAMPLES, 0, 0, 0);
    count = piped_answer();
    for (uint32_t sample = 0; sample < count; ++sample) {
        if (NPUGEN_MODEL_SLOTS == 1u || !sample) prepare(sample);
        require(npugen_model_begin(&model, sample % NPUGEN_MODEL_SLOTS));
        if (NPUGEN_MODEL_SLOTS > 1u && sample + 1u < count) prepare(sample + 1u);
        require(npugen_model_end(&model, sample % NPUGEN_MODEL_SLOTS, UINT32_MAX));
        send(sample);
    }
    require(npugen_model_unload(&model));
    return 0;
}
