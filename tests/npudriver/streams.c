/* One loaded program with streams of several lengths, on the simulated Verilog.
 *
 *     ./example SHIFT...        a line for each: cycles, and the first output's values in hexadecimal
 */
#include "npugen.h"
#include "npugen_program.h"
#include "rtl_backend.h"

static void require(npugen_status status, const char *what) {
    if (status == NPUGEN_OK) return;
    fprintf(stderr, "streams: %s: %s\n", what, npugen_status_text(status));
    exit(1);
}

static size_t values_of(const npugen_tensor *tensor) {
    return (size_t)tensor->channels * tensor->height * tensor->width;
}

int main(int argc, char **argv) {
    npugen_backend backend;
    npugen_device device;
    npugen_program program;
    npugen_image image = npugen_model;
    int8_t *values = (int8_t *)file_contents("input_0.bin", values_of(&image.inputs[0]));
    int8_t *found = malloc(values_of(&image.outputs[0]));
    if (!found) return 2;
    image.code = file_contents("code.bin", image.code_size);
    image.constants = file_contents("data.bin", image.constants_size);
    open_backend(&backend, 1, argv);
    require(npugen_open(&device, &backend), "opening");
    require(npugen_load(&device, &program, &image, 1), "loading");
    require(npugen_input(&device, &program, 0, 0, values), "loading an input");
    for (int number = 1; number < argc; ++number) {
        require(npugen_set_stream_shift(&device, (uint32_t)atoi(argv[number])), "setting the streams' length");
        require(npugen_start(&device, &program, 0), "starting");
        /* Of what is started from then on, not of what runs. */
        require(npugen_set_stream_shift(&device, NPUGEN_STREAM_SHIFT_MOST), "setting it while one runs");
        require(npugen_wait(&device, 1000000), "running");
        require(npugen_output(&device, &program, 0, 0, found), "reading an output");
        printf("%llu ", (unsigned long long)npugen_counter(&device, NPUGEN_REG_COUNTER_CYCLES_LOW));
        for (size_t value = 0; value < values_of(&image.outputs[0]); ++value) printf("%02x", (uint8_t)found[value]);
        putchar('\n');
    }
    return 0;
}
