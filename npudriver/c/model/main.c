/* Runs the model of this folder over the enclosed sample, twice, and compares what comes out. A model that keeps
 * states, and so has one sample on its way at a time, begins anew before each.
 *
 *     ./example [npu [udmabuf0]]        the UIO device and the u-dma-buf, by name
 */
#include <math.h>
#include <string.h>

#include "npugen_example.h"
#include "npugen_model.h"

/* Numbers with a fraction may differ by so much of the largest: sums run in another order. */
#define TOLERANCE 1e-4

static double real(const npugen_value *value, const void *data, size_t index) {
    float single;
    double number;
    if (value->element == sizeof single) {
        memcpy(&single, (const char *)data + index * sizeof single, sizeof single);
        return (double)single;
    }
    memcpy(&number, (const char *)data + index * sizeof number, sizeof number);
    return number;
}

/* Values of an output that are not the expected ones. */
static size_t differing(const npugen_value *value, const void *found, const void *wanted, size_t count) {
    size_t wrong = 0;
    double largest = 0;
    if (value->type == NPUGEN_REAL)
        for (size_t index = 0; index < count; ++index) largest = fmax(largest, fabs(real(value, wanted, index)));
    for (size_t index = 0; index < count; ++index)
        if (value->type == NPUGEN_REAL)
            wrong += !(fabs(real(value, found, index) - real(value, wanted, index)) <= TOLERANCE * largest);
        else
            wrong += memcmp((const char *)found + index * value->element,
                            (const char *)wanted + index * value->element, value->element) != 0;
    return wrong;
}

#define RUNS 2u

static uint64_t arena[NPUGEN_MODEL_ARENA_BYTES / sizeof(uint64_t) + 1u];

int main(int argc, char **argv) {
    static npugen_model model;
    npugen_backend backend;
    npugen_device device;
    const void *inputs[NPUGEN_MODEL_INPUTS];
    void *outputs[RUNS][NPUGEN_MODEL_OUTPUTS];
    size_t wrong = 0, size;
    char name[64];
    if (open_backend(&backend, argc, argv) != NPUGEN_OK) return 1;
    require(&device, npugen_open(&device, &backend), "opening the device");
    require(&device, npugen_model_load(&model, &device, arena), "loading the model");
    for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input) {
        const npugen_value *value = &npugen_model_inputs[input];
        snprintf(name, sizeof name, "input_%u.bin", input);
        inputs[input] = contents(name, value->values * value->element);
    }
    for (unsigned run = 0; run < RUNS; ++run)
        for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) {
            const npugen_value *value = &npugen_model_outputs[output];
            outputs[run][output] = calloc(value->values + 1u, value->element);
            if (!outputs[run][output]) return 1;
        }
    for (unsigned run = 0; run < RUNS; ++run) {
        const unsigned slot = run % NPUGEN_MODEL_SLOTS;
#ifdef NPUGEN_MODEL_STATES
        require(&device, npugen_model_reset(&model), "beginning anew");
#endif
        if (NPUGEN_MODEL_SLOTS == 1u || !run)
            require(&device, npugen_model_prepare(&model, slot, inputs, outputs[run]), "preparing");
        require(&device, npugen_model_begin(&model, slot), "starting");
        /* With two slots the next sample is prepared while the device computes this one. */
        if (NPUGEN_MODEL_SLOTS > 1u && run + 1u < RUNS)
            require(&device, npugen_model_prepare(&model, (run + 1u) % NPUGEN_MODEL_SLOTS, inputs, outputs[run + 1u]),
                    "preparing");
        require(&device, npugen_model_end(&model, slot, TIMEOUT_US), "running");
        for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) {
            const npugen_value *value = &npugen_model_outputs[output];
            size_t count = 1;
            void *wanted;
            for (size_t axis = 0; axis < value->rank; ++axis) count *= model.shapes[slot][output][axis];
            snprintf(name, sizeof name, "expected_%u.bin", output);
            wanted = beginning(name, value->values * value->element + 1u, &size);
            if (size != count * value->element) {
                fprintf(stderr, "example: %s has another shape than expected\n", value->name);
                ++wrong;
            } else {
                wrong += differing(value, outputs[run][output], wanted, count);
            }
            free(wanted);
        }
    }
    printf("%lu values differ from the expected ones\n", (unsigned long)wrong);
    require(&device, npugen_model_unload(&model), "unloading the model");
    for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input) free((void *)inputs[input]);
    for (unsigned run = 0; run < RUNS; ++run)
        for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) free(outputs[run][output]);
    return wrong ? 1 : 0;
}
