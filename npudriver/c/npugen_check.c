/* Whether a program's bytes are those that were deployed: SHA-256 (FIPS 180-4), as in program.json. See npugen.h. */
#include "npugen.h"

#include <string.h>

#define BLOCK 64u

static uint32_t turned(uint32_t value, unsigned by) { return value >> by | value << (32 - by); }

/* A round, whose number modulo 8 is `round`: the words stay where they are, and the first of them is one earlier each
 * time. A number that the compiler knows, so that they can be in registers: a shift of all of them takes two thirds of a
 * small processor's time. */
static inline void turn(uint32_t now[8], unsigned round, uint32_t add) {
    const uint32_t a = now[(8u - round) % 8u], b = now[(9u - round) % 8u], c = now[(10u - round) % 8u];
    const uint32_t e = now[(12u - round) % 8u], f = now[(13u - round) % 8u], g = now[(14u - round) % 8u];
    const uint32_t first = now[(15u - round) % 8u] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25))
        + ((e & f) ^ (~e & g)) + add;
    now[(11u - round) % 8u] += first;
    now[(15u - round) % 8u] = first + (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void mix(uint32_t state[8], const uint8_t *block) {
    static const uint32_t constants[64] = {
        0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
        0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
        0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
        0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
        0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
        0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
        0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
        0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u};
    uint32_t words[64], now[8];
    for (unsigned at = 0; at < 16; ++at)
        words[at] = (uint32_t)block[4 * at] << 24 | (uint32_t)block[4 * at + 1] << 16
            | (uint32_t)block[4 * at + 2] << 8 | block[4 * at + 3];
    for (unsigned at = 16; at < 64; ++at) {
        const uint32_t near = words[at - 2], far = words[at - 15];
        words[at] = words[at - 16] + words[at - 7] + (turned(far, 7) ^ turned(far, 18) ^ far >> 3)
            + (turned(near, 17) ^ turned(near, 19) ^ near >> 10);
    }
    memcpy(now, state, sizeof now);
    for (unsigned at = 0; at < 64; at += 8) {
        turn(now, 0, constants[at] + words[at]);
        turn(now, 1, constants[at + 1] + words[at + 1]);
        turn(now, 2, constants[at + 2] + words[at + 2]);
        turn(now, 3, constants[at + 3] + words[at + 3]);
        turn(now, 4, constants[at + 4] + words[at + 4]);
        turn(now, 5, constants[at + 5] + words[at + 5]);
        turn(now, 6, constants[at + 6] + words[at + 6]);
        turn(now, 7, constants[at + 7] + words[at + 7]);
    }
    for (unsigned at = 0; at < 8; ++at) state[at] += now[at];
}

/* Whether data has the digest. */
static int matches(const uint8_t *data, size_t size, const uint8_t *digest) {
    uint32_t state[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                         0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
    const size_t whole = size / BLOCK * BLOCK, rest = size - whole;
    const size_t end = rest + 9 > BLOCK ? 2 * BLOCK : BLOCK; /* a bit, zeros, the length in bits */
    uint8_t last[2 * BLOCK] = {0};
    for (size_t at = 0; at < whole; at += BLOCK) mix(state, data + at);
    if (rest) memcpy(last, data + whole, rest);
    last[rest] = 0x80;
    for (unsigned byte = 0; byte < 8; ++byte)
        last[end - 1 - byte] = (uint8_t)((uint64_t)size * 8 >> 8 * byte);
    for (size_t at = 0; at < end; at += BLOCK) mix(state, last + at);
    for (unsigned byte = 0; byte < NPUGEN_DIGEST_BYTES; ++byte)
        if (digest[byte] != (uint8_t)(state[byte / 4] >> (24 - 8 * (byte % 4)))) return 0;
    return 1;
}

npugen_status npugen_check(const npugen_image *image) {
    if (!image->code_digest || !image->constants_digest) return NPUGEN_ARGUMENT;
    if (!image->code || (image->constants_size && !image->constants)) return NPUGEN_ARGUMENT;
    return matches(image->code, image->code_size, image->code_digest)
            && matches(image->constants, image->constants_size, image->constants_digest)
        ? NPUGEN_OK
        : NPUGEN_DAMAGED;
}
