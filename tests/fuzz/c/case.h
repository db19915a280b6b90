/* What cases of all targets are made of: bytes, one after the other. */
#ifndef CASE_H
#define CASE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *bytes;
static size_t left;

static uint32_t byte(void) { return left ? (--left, (uint32_t)*bytes++) : 0u; }

static uint32_t word(void) { return byte() | byte() << 8 | byte() << 16 | byte() << 24; }

static void stop(const char *why) {
    fprintf(stderr, "%s\n", why);
    abort();
}

#endif
