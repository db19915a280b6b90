/* Calls on the model of test_c_states.py: the exit status says which had another outcome than it should. */
#include <math.h>
#include <string.h>

#include "npugen_model.h"
#include "piped_backend.h"
static uint64_t arena[NPUGEN_MODEL_ARENA_BYTES / sizeof(uint64_t) + 1u];
int main(void) {
    piped_end end = {0, 1};
    const npugen_backend backend = piped_backend(&end);
    static npugen_device device;
    static npugen_model model;
    static float x[5] = {1, 2, -1, 0.5f, 3}, y[3], first[3], h[12], bad[5];
    static int8_t c[12], other[12];
    const void *inputs[1] = {x}, *none[1] = {bad};
    void *outputs[5] = {y, NULL, c, NULL, NULL};
    bad[0] = (float)NAN;
    if (npugen_open(&device, &backend) || npugen_model_load(&model, &device, arena)) return 11;
    if (npugen_model_run(&model, inputs, outputs, UINT32_MAX)) return 12;
    memcpy(first, y, sizeof y);
    memcpy(other, c, sizeof c);
    memcpy(h, npugen_model_state(&model, 0), sizeof h);
    if (memcmp(npugen_model_state(&model, 1), c, sizeof c)) return 13;
    /* A sample that is lost changes no state. */
    if (npugen_model_run(&model, none, outputs, UINT32_MAX) != NPUGEN_ARGUMENT) return 14;
    if (memcmp(npugen_model_state(&model, 0), h, sizeof h)) return 15;
    if (npugen_model_prepare(&model, 0, inputs, outputs)) return 16;
    if (npugen_model_end(&model, 0, 0) != NPUGEN_ARGUMENT || npugen_model_begin(&model, 0)) return 27;
    if (npugen_model_reset(&model) != NPUGEN_BUSY) return 17;
    if (npugen_model_prepare(&model, 0, inputs, outputs) != NPUGEN_BUSY) return 18;
    if (npugen_model_end(&model, 0, UINT32_MAX) || !memcmp(other, c, sizeof c)) return 19;
    if (npugen_model_reset(&model) || npugen_model_run(&model, inputs, outputs, UINT32_MAX)) return 20;
    if (memcmp(first, y, sizeof y) || memcmp(other, c, sizeof c)) return 21;
    /* A state that is put back is that of before. */
    if (npugen_model_run(&model, inputs, outputs, UINT32_MAX)) return 22;
    memcpy(first, y, sizeof y);
    memcpy(npugen_model_state(&model, 0), h, sizeof h);
    memcpy(npugen_model_state(&model, 1), other, sizeof other);
    if (npugen_model_run(&model, inputs, outputs, UINT32_MAX)) return 23;
    if (memcmp(npugen_model_state(&model, 1), c, sizeof c)) return 24;
    if (npugen_model_state(&model, 4) || npugen_model_prepare(&model, 1, inputs, outputs) != NPUGEN_ARGUMENT) return 25;
    return npugen_model_unload(&model) || npugen_model_reset(&model) != NPUGEN_ARGUMENT ? 26 : 0;
}
