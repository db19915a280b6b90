/* One loaded program, whose streams a governor shortens as a modelled battery empties; on the simulated Verilog.
 *
 * A line for each inference: level, charge, and the first output's values in hexadecimal. With a folder as argument the
 * charge that Linux would show there, and nothing else. */
#include "npugen_levels.h"
#include "npugen_power.h"
#include "npugen_program.h"
#include "rtl_backend.h"

static void require(npugen_status status, const char *what) {
    if (status == NPUGEN_OK) return;
    fprintf(stderr, "governing: %s: %s\n", what, npugen_status_text(status));
    exit(1);
}

int main(int argc, char **argv) {
    npugen_backend backend;
    npugen_device device;
    npugen_program program;
    npugen_governor governor;
    npugen_battery battery = {NPUGEN_BATTERY_ENERGY, NPUGEN_BATTERY_ENERGY};
    npugen_image image = npugen_model;
    npugen_choice choice;
    uint32_t charge;
    const npugen_tensor *output = &image.outputs[0];
    const size_t values = (size_t)output->channels * output->height * output->width;
    int8_t *found = malloc(values);
    if (argc > 1) {
        require(npugen_read_charge(argv[1], &charge), "reading the charge");
        printf("%u\n", (unsigned)charge);
        return 0;
    }
    if (!found) return 2;
    image.code = file_contents("code.bin", image.code_size);
    image.constants = file_contents("data.bin", image.constants_size);
    open_backend(&backend, 1, argv);
    require(npugen_open(&device, &backend), "opening");
    require(npugen_load(&device, &program, &image, 1), "loading");
    require(npugen_input(&device, &program, 0, 0,
                         (int8_t *)file_contents("input_0.bin", (size_t)image.inputs[0].channels
                                                                    * image.inputs[0].height * image.inputs[0].width)),
            "loading an input");
    require(npugen_governor_init(&governor, npugen_levels, NPUGEN_LEVEL_COUNT, &npugen_levels_plan,
                                 NPUGEN_BATTERY_ENERGY), "reading the levels");
    for (;;) {
        charge = npugen_battery_charge(&battery);
        require(npugen_govern(&governor, &device, charge, 0, &choice), "choosing");
        if (choice.short_of) return 0;
        require(npugen_start(&device, &program, 0), "starting");
        require(npugen_wait(&device, 1000000), "running");
        require(npugen_output(&device, &program, 0, 0, found), "reading an output");
        npugen_battery_spend(&battery, npugen_levels[choice.level].energy);
        printf("%u %u ", choice.level, (unsigned)charge);
        for (size_t value = 0; value < values; ++value) printf("%02x", (uint8_t)found[value]);
        putchar('\n');
    }
}
