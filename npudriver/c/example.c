/* Runs the program of this folder twice over the enclosed input, the second inference loaded while the first runs.
 *
 *     ./example [npu [udmabuf0]]        the UIO device and the u-dma-buf, by name
 */
#include <string.h>

#include "npugen_example.h"
#include "npugen_program.h"

static size_t values_of(const npugen_tensor *tensor) {
    return (size_t)tensor->channels * tensor->height * tensor->width;
}

/* The values of an output that are not the expected ones. */
static size_t differing(npugen_device *device, npugen_program *program, unsigned slot, unsigned output) {
    const npugen_tensor *tensor = &program->image->outputs[output];
    const size_t count = values_of(tensor);
    char name[64];
    size_t wrong = 0;
    int8_t *found = malloc(count), *wanted;
    snprintf(name, sizeof name, "expected_%u.bin", output);
    wanted = contents(name, count);
    if (!found) exit(1);
    require(device, npugen_output(device, program, slot, output, found), "reading an output");
    for (size_t value = 0; value < count; ++value) wrong += found[value] != wanted[value];
    free(found);
    free(wanted);
    return wrong;
}

int main(int argc, char **argv) {
    npugen_backend backend;
    npugen_device device;
    npugen_program program;
    npugen_image image = npugen_model;
    size_t wrong = 0;
    if (open_backend(&backend, argc, argv) != NPUGEN_OK) return 1;
    require(&device, npugen_open(&device, &backend), "opening the device");
    image.code = contents("code.bin", image.code_size);
    image.constants = contents("data.bin", image.constants_size);
    require(&device, npugen_check(&image), "code.bin and data.bin");
    require(&device, npugen_load(&device, &program, &image, 2), "loading the program");
    for (unsigned slot = 0; slot < 2; ++slot) {
        for (unsigned input = 0; input < image.input_count; ++input) {
            char name[64];
            int8_t *values;
            snprintf(name, sizeof name, "input_%u.bin", input);
            values = contents(name, values_of(&image.inputs[input]));
            require(&device, npugen_input(&device, &program, slot, input, values), "loading an input");
            free(values);
        }
        /* The first runs while the second's input is loaded. */
        if (slot == 0) require(&device, npugen_start(&device, &program, 0), "starting");
    }
    for (unsigned slot = 0; slot < 2; ++slot) {
        require(&device, npugen_wait(&device, TIMEOUT_US), "running");
        printf("%s: %llu cycles\n", image.name,
               (unsigned long long)npugen_counter(&device, NPUGEN_REG_COUNTER_CYCLES_LOW));
        if (slot == 0) require(&device, npugen_start(&device, &program, 1), "starting");
        for (unsigned output = 0; output < image.output_count; ++output)
            wrong += differing(&device, &program, slot, output);
    }
    printf("%lu values differ from the expected ones\n", (unsigned long)wrong);
    require(&device, npugen_unload(&device, &program), "unloading the program");
    free((void *)image.code);
    free((void *)image.constants);
    return wrong ? 1 : 0;
}
