/* Cases for image.c without libFuzzer: from a generator of random numbers, or the files named.
 *
 *     ./replay SEED COUNT
 *     ./replay FILE ...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t data[4096];

/* splitmix64 */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

int main(int argc, char **argv) {
    char *end = NULL;
    uint64_t state = argc == 3 ? strtoull(argv[1], &end, 10) : 0;
    unsigned long count = end && !*end ? strtoul(argv[2], NULL, 10) : 0;
    for (int file = 1; !count && file < argc; ++file) {
        FILE *stream = fopen(argv[file], "rb");
        if (!stream) return 2;
        LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof data, stream));
        fclose(stream);
    }
    for (unsigned long number = 0; number < count; ++number) {
        const size_t size = (size_t)(48 + draw(&state) % 160);
        for (size_t at = 0; at < size; ++at) data[at] = (uint8_t)draw(&state);
        LLVMFuzzerTestOneInput(data, size);
    }
    return 0;
}
