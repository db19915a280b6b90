/* A backend for Linux: registers and interrupt by UIO, memory by u-dma-buf. */
#ifndef NPUGEN_UIO_H
#define NPUGEN_UIO_H

#include "npugen.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPUGEN_UIO_BLOCKS 64

typedef struct npugen_uio {
    int device, interrupt, buffer;
    volatile uint32_t *registers;
    uint8_t *memory;
    size_t registers_size, memory_size;
    uint64_t memory_address;
    int coherent;
    char folder[256]; /* of the u-dma-buf in sysfs */
    struct npugen_uio_block { size_t first, end; } blocks[NPUGEN_UIO_BLOCKS];
    unsigned block_count;
    char message[256]; /* what failed in npugen_uio_open */
} npugen_uio;

/* "/dev/uio0" and "/dev/udmabuf0"; sysfs is "/sys/class". On NPUGEN_IO uio->message says why. */
npugen_status npugen_uio_open(npugen_uio *uio, npugen_backend *backend, const char *device,
                              const char *buffer, const char *sysfs);
void npugen_uio_close(npugen_uio *uio);

#ifdef __cplusplus
}
#endif

#endif
