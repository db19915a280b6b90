/* One loaded program, whose streams a governor shortens as a modelled battery empties; on the simulated Verilog.
 *
 * A line for each inference: level, charge, and the first output's values in hexadecimal. With a folder as argument the
 * charge that Linux would show there, and nothing else. */
#include "npugen_levels.h"
#include "npugen_power.h"
#include "rtl_program.h"

int main(int argc, char **argv) {
    rtl_program it;
    npugen_governor governor;
    npugen_battery battery = {NPUGEN_BATTERY_ENERGY, NPUGEN_BATTERY_ENERGY};
    npugen_choice choice;
    uint32_t charge;
    if (argc > 1) {
        require(npugen_read_charge(argv[1], &charge), "reading the charge");
        printf("%u\n", (unsigned)charge);
        return 0;
    }
    load_program(&it);
    require(npugen_governor_init(&governor, npugen_levels, NPUGEN_LEVEL_COUNT, &npugen_levels_plan,
                                 NPUGEN_BATTERY_ENERGY), "reading the levels");
    for (;;) {
        charge = npugen_battery_charge(&battery);
        require(npugen_govern(&governor, &it.device, charge, 0, &choice), "choosing");
        if (choice.short_of) return 0;
        require(npugen_start(&it.device, &it.program, 0), "starting");
        require(npugen_wait(&it.device, 1000000), "running");
        npugen_battery_spend(&battery, npugen_levels[choice.level].energy);
        printf("%u %u ", choice.level, (unsigned)charge);
        print_output(&it);
    }
}
