/* One program of files of the current folder, on the simulated Verilog. */
#ifndef RTL_PROGRAM_H
#define RTL_PROGRAM_H

#include "npugen_program.h"
#include "rtl_backend.h"

typedef struct {
    npugen_image image;
    npugen_backend backend;
    npugen_device device;
    npugen_program program;
    size_t values; /* of the first output */
    int8_t *found; /* that output, once it is read */
} rtl_program;

/* Ends the process where something fails. */
static inline void require(npugen_status status, const char *what) {
    if (status == NPUGEN_OK) return;
    fprintf(stderr, "%s: %s\n", what, npugen_status_text(status));
    exit(1);
}

static inline size_t values_of(const npugen_tensor *tensor) {
    return (size_t)tensor->channels * tensor->height * tensor->width;
}

/* The loaded program, with its first input. */
static inline void load_program(rtl_program *it) {
    it->image = npugen_model;
    it->image.code = file_contents("code.bin", it->image.code_size);
    it->image.constants = file_contents("data.bin", it->image.constants_size);
    it->values = values_of(&it->image.outputs[0]);
    it->found = malloc(it->values);
    if (!it->found) exit(2);
    open_backend(&it->backend, 1, NULL);
    require(npugen_open(&it->device, &it->backend), "opening");
    require(npugen_load(&it->device, &it->program, &it->image, 1), "loading");
    require(npugen_input(&it->device, &it->program, 0, 0,
                         (int8_t *)file_contents("input_0.bin", values_of(&it->image.inputs[0]))), "loading an input");
}

/* The first output, in hexadecimal, to the end of a line. */
static inline void print_output(rtl_program *it) {
    require(npugen_output(&it->device, &it->program, 0, 0, it->found), "reading an output");
    for (size_t value = 0; value < it->values; ++value) printf("%02x", (uint8_t)it->found[value]);
    putchar('\n');
}

#endif
