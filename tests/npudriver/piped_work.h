/* One instance of a model in C over the samples that the other end of a pipe has: two on their way at a time, where it
 * has two slots.
 */
#ifndef PIPED_WORK_H
#define PIPED_WORK_H

#include "npugen_model.h"
#include "piped_backend.h"

typedef struct piped_work {
    piped_end end;
    int events; /* whether the library never waits */
    npugen_device device;
    npugen_model model;
    void *inputs[NPUGEN_MODEL_SLOTS][NPUGEN_MODEL_INPUTS + 1u], *outputs[NPUGEN_MODEL_SLOTS][NPUGEN_MODEL_OUTPUTS];
    uint64_t arena[NPUGEN_MODEL_ARENA_BYTES / sizeof(uint64_t) + 1u];
} piped_work;

static void piped_require(const piped_work *work, npugen_status status) {
    if (status == NPUGEN_OK) return;
    piped_request(&work->end, PIPED_STATUS, (uint32_t)status, work->device.fault_code, work->device.fault_index);
    _exit(1);
}

static void *piped_room(size_t size) {
    void *data = malloc(size + 1u);
    if (!data) _exit(6);
    return data;
}

static void piped_prepare(piped_work *work, uint32_t sample) {
    const unsigned slot = sample % NPUGEN_MODEL_SLOTS;
    for (uint32_t input = 0; input < NPUGEN_MODEL_INPUTS; ++input) {
        piped_request(&work->end, PIPED_INPUT, sample, input, 0);
        piped_get(&work->end, work->inputs[slot][input],
                  npugen_model_inputs[input].values * npugen_model_inputs[input].element);
    }
    piped_require(work, npugen_model_prepare(&work->model, slot, (const void *const *)work->inputs[slot],
                                             work->outputs[slot]));
}

static void piped_send(piped_work *work, uint32_t sample) {
    const unsigned slot = sample % NPUGEN_MODEL_SLOTS;
    for (uint32_t output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) {
        const npugen_value *value = &npugen_model_outputs[output];
        size_t count = 1;
        piped_request(&work->end, PIPED_OUTPUT, sample, output, (uint32_t)value->rank);
        for (size_t axis = 0; axis < value->rank; ++axis) {
            const uint32_t size = (uint32_t)work->model.shapes[slot][output][axis];
            piped_put(&work->end, &size, sizeof size);
            count *= size;
        }
        piped_put(&work->end, work->outputs[slot][output], count * value->element);
    }
}

/* By events: what is outside of the library waits, and as often as there are programs. */
static void piped_end_sample(piped_work *work, unsigned slot) {
    npugen_status status = npugen_model_end(&work->model, slot, work->events ? 0 : UINT32_MAX);
    unsigned waits = 0;
    while (work->events && status == NPUGEN_TIMEOUT) {
        ++waits;
        piped_require(work, work->device.backend.wait(work->device.backend.context, 1000000u));
        status = npugen_model_end(&work->model, slot, 0);
    }
    piped_require(work, status);
    if (work->events && waits != NPUGEN_MODEL_PROGRAMS) _exit(7);
}

/* All samples that there are, over work->end. */
static void piped_run(piped_work *work) {
    const npugen_backend backend = piped_backend(&work->end);
    uint32_t count;
    piped_require(work, npugen_open(&work->device, &backend));
    piped_require(work, npugen_model_load(&work->model, &work->device, work->arena));
    for (unsigned slot = 0; slot < NPUGEN_MODEL_SLOTS; ++slot) {
        for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
            work->inputs[slot][input] =
                piped_room(npugen_model_inputs[input].values * npugen_model_inputs[input].element);
        for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
            work->outputs[slot][output] =
                piped_room(npugen_model_outputs[output].values * npugen_model_outputs[output].element);
    }
    piped_request(&work->end, PIPED_SAMPLES, 0, 0, 0);
    count = piped_answer(&work->end);
    for (uint32_t sample = 0; sample < count; ++sample) {
        if (NPUGEN_MODEL_SLOTS == 1u || !sample) piped_prepare(work, sample);
        piped_require(work, npugen_model_begin(&work->model, sample % NPUGEN_MODEL_SLOTS));
        if (NPUGEN_MODEL_SLOTS > 1u && sample + 1u < count) piped_prepare(work, sample + 1u);
        piped_end_sample(work, sample % NPUGEN_MODEL_SLOTS);
        piped_send(work, sample);
    }
    piped_require(work, npugen_model_unload(&work->model));
    for (unsigned slot = 0; slot < NPUGEN_MODEL_SLOTS; ++slot) {
        for (unsigned input = 0; input < NPUGEN_MODEL_INPUTS; ++input) free(work->inputs[slot][input]);
        for (unsigned output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) free(work->outputs[slot][output]);
    }
}

#endif
