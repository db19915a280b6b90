/* memcpy and memset of the image for VexRiscv, at every offset within words and of many sizes. */
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);

#define ROOM 160u

static uint8_t from[ROOM], to[ROOM];

static uint8_t before(size_t at) { return (uint8_t)(at * 7u + 1u); }

/* Whether `to` has `wanted` from `begin` on, and beside that what was there. */
static int good(size_t begin, size_t size, const uint8_t *wanted, uint8_t value) {
    for (size_t at = 0; at < ROOM; ++at) {
        const int within = at >= begin && at - begin < size;
        if (to[at] != (within ? (wanted ? wanted[at - begin] : value) : before(at))) return 0;
    }
    return 1;
}

int main(void) {
    volatile uint8_t *const first = from, *const second = to; /* so that no compiler makes calls of these loops */
    for (size_t at = 0; at < ROOM; ++at) first[at] = (uint8_t)(at * 13u + 5u);
    for (size_t target = 0; target < 8; ++target)
        for (size_t size = 0; size < 100; ++size) {
            for (size_t source = 0; source < 4; ++source) {
                for (size_t at = 0; at < ROOM; ++at) second[at] = before(at);
                if (memcpy(to + target, from + source, size) != to + target) return 1;
                if (!good(target, size, from + source, 0)) return 2;
            }
            for (size_t at = 0; at < ROOM; ++at) second[at] = before(at);
            if (memset(to + target, 0x1A5, size) != to + target || !good(target, size, NULL, 0xA5)) return 3;
        }
    return 0;
}
