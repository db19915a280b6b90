/* Two models, deployed as "one" and "two", in one program and on one device. The samples at the other end of the pipe
 * are theirs in turn: both have one input and one output.
 */
#include "npugen_one.h"
#include "npugen_two.h"
#include "piped_backend.h"

static piped_end end = {0, 1};
static npugen_device device;

static void require(npugen_status status) {
    if (status == NPUGEN_OK) return;
    piped_request(&end, PIPED_STATUS, (uint32_t)status, device.fault_code, device.fault_index);
    _exit(1);
}

static void *fetched(uint32_t sample, const npugen_value *value) {
    void *data = malloc(value->values * value->element);
    if (!data) _exit(6);
    piped_request(&end, PIPED_INPUT, sample, 0, 0);
    piped_get(&end, data, value->values * value->element);
    return data;
}

static void send(uint32_t sample, const npugen_value *value, const size_t *shape, const void *data) {
    piped_request(&end, PIPED_OUTPUT, sample, 0, (uint32_t)value->rank);
    for (size_t axis = 0; axis < value->rank; ++axis) {
        const uint32_t size = (uint32_t)shape[axis];
        piped_put(&end, &size, sizeof size);
    }
    piped_put(&end, data, value->values * value->element);
}

#define RUN(name, model, sample)                                                                              \
    do {                                                                                                      \
        void *input = fetched(sample, &npugen_##name##_inputs[0]);                                            \
        void *output = malloc(npugen_##name##_outputs[0].values * npugen_##name##_outputs[0].element);        \
        const void *inputs[1] = {input};                                                                      \
        void *outputs[1] = {output};                                                                          \
        if (!output) _exit(6);                                                                                \
        require(npugen_##name##_run(model, inputs, outputs, UINT32_MAX));                                     \
        send(sample, &npugen_##name##_outputs[0], (model)->shapes[0][0], output);                             \
        free(input);                                                                                          \
        free(output);                                                                                         \
    } while (0)

int main(void) {
    static npugen_one one;
    static npugen_two two;
    static uint64_t arena_one[NPUGEN_ONE_ARENA_BYTES / sizeof(uint64_t) + 1u];
    static uint64_t arena_two[NPUGEN_TWO_ARENA_BYTES / sizeof(uint64_t) + 1u];
    const npugen_backend backend = piped_backend(&end);
    uint32_t count;
    require(npugen_open(&device, &backend));
    require(npugen_one_load(&one, &device, arena_one));
    require(npugen_two_load(&two, &device, arena_two));
    piped_request(&end, PIPED_SAMPLES, 0, 0, 0);
    count = piped_answer(&end);
    for (uint32_t sample = 0; sample < count; ++sample) {
        if (sample % 2u)
            RUN(two, &two, sample);
        else
            RUN(one, &one, sample);
    }
    require(npugen_two_unload(&two));
    require(npugen_one_unload(&one));
    return 0;
}
