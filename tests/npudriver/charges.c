/* Charges of the folders that are named, as tests/npudriver/test_c_governor.py writes them: a number, or "error". */
#include "npugen_power.h"

#include <inttypes.h>
#include <stdio.h>

int main(int count, char **folders) {
    for (int number = 1; number < count; ++number) {
        uint32_t charge;
        if (npugen_read_charge(folders[number], &charge) == NPUGEN_OK)
            printf("%" PRIu32 "\n", charge);
        else
            puts("error");
    }
    return 0;
}
