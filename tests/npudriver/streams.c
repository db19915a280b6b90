/* One loaded program with streams of several lengths, on the simulated Verilog.
 *
 *     ./example SHIFT...        a line for each: cycles, and the first output's values in hexadecimal
 */
#include "rtl_program.h"

int main(int argc, char **argv) {
    rtl_program it;
    load_program(&it);
    for (int number = 1; number < argc; ++number) {
        require(npugen_set_stream_shift(&it.device, (uint32_t)atoi(argv[number])), "setting the streams' length");
        require(npugen_start(&it.device, &it.program, 0), "starting");
        /* Of what is started from then on, not of what runs. */
        require(npugen_set_stream_shift(&it.device, NPUGEN_STREAM_SHIFT_MOST), "setting it while one runs");
        require(npugen_wait(&it.device, 1000000), "running");
        printf("%llu ", (unsigned long long)npugen_counter(&it.device, NPUGEN_REG_COUNTER_CYCLES_LOW));
        print_output(&it);
    }
    return 0;
}
