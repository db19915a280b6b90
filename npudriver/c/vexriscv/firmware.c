/* The model of this folder over the samples in memory, on VexRiscv beside the machine. See firmware.h;
 * gen/soc/samples.py is the other end. */
#include "firmware.h"

#include <string.h>

#include "npugen_model.h"
#include "npugen_vexriscv.h"

/* Samples lie one after the other, each: npugen_record; inputs; room for outputs. All of these begin at
 * NPUGEN_SAMPLE_ALIGNMENT bytes. */
#define NPUGEN_SAMPLE_ALIGNMENT 32u

typedef struct npugen_record {
    uint64_t cycles;      /* from the sample to its outputs */
    uint64_t accelerator; /* of these, by the machine's counter */
    uint32_t shapes[NPUGEN_MODEL_OUTPUTS][NPUGEN_MODEL_RANK];
} npugen_record;

extern uint8_t npugen_end[]; /* of the image with its stack: firmware.ld */

int main(void);

__attribute__((section(".mailbox"))) volatile npugen_mailbox npugen_mail = {
    .magic = NPUGEN_MAGIC, .samples = (uintptr_t)npugen_end};

static uint64_t arena[NPUGEN_MODEL_ARENA_BYTES / sizeof(uint64_t) + 1u];
static npugen_device device;
static npugen_model model;
static npugen_backend bare_backend;
static uint64_t accelerator;

static size_t aligned(size_t size) {
    return (size + NPUGEN_SAMPLE_ALIGNMENT - 1u) / NPUGEN_SAMPLE_ALIGNMENT * NPUGEN_SAMPLE_ALIGNMENT;
}

/* The cycles of each program of a model are added up where its outcome is cleared. */
static void counting_write(void *context, uint32_t address, uint32_t value) {
    if (address == NPUGEN_REG_CONTROL && value == NPUGEN_CONTROL_CLEAR &&
        (bare_backend.read32(context, NPUGEN_REG_STATUS) & NPUGEN_STATUS_DONE))
        accelerator += npugen_counter(&device, NPUGEN_REG_COUNTER_CYCLES_LOW);
    bare_backend.write32(context, address, value);
}

static int failed(npugen_status status, uint32_t what) {
    if (status == NPUGEN_OK) return 0;
    npugen_mail.status = (uint32_t)status;
    npugen_mail.what = what;
    npugen_mail.fault_code = device.fault_code;
    npugen_mail.fault_index = device.fault_index;
    npugen_mail.state = NPUGEN_FAILED;
    return 1;
}

static uint8_t *run(uint8_t *sample) {
    npugen_record *record = (npugen_record *)(void *)sample;
    const void *inputs[NPUGEN_MODEL_INPUTS];
    void *outputs[NPUGEN_MODEL_OUTPUTS];
    uint64_t begin;
    sample += aligned(sizeof *record);
    for (size_t input = 0; input < NPUGEN_MODEL_INPUTS; ++input) {
        inputs[input] = sample;
        sample += aligned(npugen_model_inputs[input].values * npugen_model_inputs[input].element);
    }
    for (size_t output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output) {
        outputs[output] = sample;
        sample += aligned(npugen_model_outputs[output].values * npugen_model_outputs[output].element);
    }
    accelerator = 0;
    begin = npugen_vexriscv_cycles();
    if (failed(npugen_model_run(&model, inputs, outputs, UINT32_MAX), 3)) return NULL;
    record->cycles = npugen_vexriscv_cycles() - begin;
    record->accelerator = accelerator;
    for (size_t output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
        for (size_t axis = 0; axis < npugen_model_outputs[output].rank; ++axis)
            record->shapes[output][axis] = (uint32_t)model.shapes[0][output][axis];
    return sample;
}

/* Bytes of a sample. */
static size_t sample_bytes(void) {
    size_t size = aligned(sizeof(npugen_record));
    for (size_t input = 0; input < NPUGEN_MODEL_INPUTS; ++input)
        size += aligned(npugen_model_inputs[input].values * npugen_model_inputs[input].element);
    for (size_t output = 0; output < NPUGEN_MODEL_OUTPUTS; ++output)
        size += aligned(npugen_model_outputs[output].values * npugen_model_outputs[output].element);
    return size;
}

int main(void) {
    static npugen_bare bare;
    npugen_backend backend;
    const uint64_t begin = npugen_vexriscv_cycles();
    const uint32_t count = npugen_mail.count;
    uint8_t *sample = npugen_end, *memory = sample + count * sample_bytes();
    const size_t room = (size_t)(NPUGEN_SOC_MEMORY + NPUGEN_SOC_MEMORY_BYTES - (uintptr_t)memory);
    if (failed(npugen_vexriscv_open(&bare, &bare_backend, memory, room), 0)) return 0;
    backend = bare_backend;
    backend.write32 = counting_write;
    if (failed(npugen_open(&device, &backend), 1)) return 0;
    if (failed(npugen_model_load(&model, &device, arena), 2)) return 0;
    npugen_mail.load_cycles = npugen_vexriscv_cycles() - begin;
    while (npugen_mail.done < count) {
        sample = run(sample);
        if (!sample) return 0;
        npugen_mail.done = npugen_mail.done + 1u;
        *(volatile uint32_t *)(uintptr_t)NPUGEN_SOC_SCRATCH = npugen_mail.done;
    }
    npugen_mail.state = NPUGEN_FINISHED;
    return 0;
}
