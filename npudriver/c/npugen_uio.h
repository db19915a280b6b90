/* A backend for Linux: registers and interrupt by UIO, memory by u-dma-buf. */
#ifndef NPUGEN_UIO_H
#define NPUGEN_UIO_H

#include "npugen.h"
#include "npugen_memory.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPUGEN_UIO_CONTROLS 5

/* What is where; NULL is the usual one. */
typedef struct npugen_uio_names {
    const char *device; /* as the device tree calls it ("npu"), or a file such as uio0 */
    const char *buffer; /* "udmabuf0" */
    const char *dev;    /* "/dev" */
    const char *sysfs;  /* "/sys/class" */
} npugen_uio_names;

typedef struct npugen_uio {
    int device, buffer;
    int limits_file;                   /* -1: their page is another process's, or the machine has none */
    int interrupt;                     /* -1: it has none, and is polled */
    int controls[NPUGEN_UIO_CONTROLS]; /* files by which u-dma-buf is told to write back and drop caches */
    volatile uint32_t *registers, *limits;
    size_t registers_size, limits_size;
    npugen_memory memory;
    int coherent;
    char message[256]; /* what failed in npugen_uio_open */
} npugen_uio;

/* Device and memory are this process's until it closes them. On NPUGEN_IO uio->message says why. */
npugen_status npugen_uio_open(npugen_uio *uio, npugen_backend *backend, const npugen_uio_names *names);
void npugen_uio_close(npugen_uio *uio);

#ifdef __cplusplus
}
#endif

#endif
