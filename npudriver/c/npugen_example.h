/* What the examples share: how they open a backend, read files and say that something went wrong.
 *
 * Compiled with NPUGEN_BACKEND_HEADER they take another backend than that of Linux: a header that defines
 * `static npugen_status open_backend(npugen_backend *backend, int argc, char **argv)`.
 */
#ifndef NPUGEN_EXAMPLE_H
#define NPUGEN_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>

#include "npugen.h"

#ifdef NPUGEN_BACKEND_HEADER
#include NPUGEN_BACKEND_HEADER
#else
#include "npugen_uio.h"

static npugen_uio uio;

static npugen_status open_backend(npugen_backend *backend, int argc, char **argv) {
    const npugen_uio_names names = {argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL, NULL, NULL};
    const npugen_status status = npugen_uio_open(&uio, backend, &names);
    if (status != NPUGEN_OK) fprintf(stderr, "example: %s\n", uio.message);
    return status;
}
#endif

/* The most that the examples wait for an inference. */
#define TIMEOUT_US 10000000u

/* End the program, with a line that says why, unless all is well. */
static inline void require(const npugen_device *device, npugen_status status, const char *what) {
    if (status == NPUGEN_OK) return;
    fprintf(stderr, "example: %s: %s", what, npugen_status_text(status));
    if (status == NPUGEN_FAULT)
        fprintf(stderr, ": %s at instruction %lu: %s", npugen_error_name(device->fault_code),
                (unsigned long)device->fault_index, npugen_error_text(device->fault_code));
    fputc('\n', stderr);
    exit(1);
}

/* The first bytes of a file, `room` at most, and how many there are; ends the program where it cannot be read. */
static inline void *beginning(const char *path, size_t room, size_t *size) {
    void *data = calloc(room + 1u, 1u);
    FILE *file = fopen(path, "rb");
    if (!data || !file) {
        fprintf(stderr, "example: %s: cannot be read\n", path);
        exit(1);
    }
    *size = fread(data, 1, room, file);
    fclose(file);
    return data;
}

/* A file of so many bytes; ends the program where there is none. */
static inline void *contents(const char *path, size_t size) {
    size_t found;
    void *data = beginning(path, size + 1u, &found);
    if (found != size) {
        fprintf(stderr, "example: %s: has another size than %lu bytes\n", path, (unsigned long)size);
        exit(1);
    }
    return data;
}

#endif
