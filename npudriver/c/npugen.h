/* The driver in C: the same calls as the Python package npudriver, in C99 without dependencies.
 *
 * A device is reached by a backend: npugen_uio.c is one for Linux (UIO and u-dma-buf), npugen_bare.c one for bare
 * metal, which wants up to four short functions of the processor. Registers and codes are those of npugen_regs.h,
 * programs those of npugen_program.h; both are generated. Nothing here allocates memory but the backend, and there
 * are no variables but those of a device: one thread at a time for each.
 */
#ifndef NPUGEN_H
#define NPUGEN_H

#include <stddef.h>
#include <stdint.h>

#include "npugen_regs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Data regions that a program can have: inputs of the next inferences are loaded while one runs. */
#define NPUGEN_MAX_SLOTS 4

/* What every call returns. */
typedef enum npugen_status {
    NPUGEN_OK = 0,
    NPUGEN_WRONG_DEVICE = 1, /* no NPU, or one of another configuration */
    NPUGEN_BUSY = 2,         /* a program runs, or the bus owes answers to one that was stopped */
    NPUGEN_FAULT = 3,        /* the machine stopped: see npugen_device.fault_code and .fault_index */
    NPUGEN_TIMEOUT = 4,      /* not done in time; it goes on */
    NPUGEN_ABORTED = 5,      /* stopped without a result */
    NPUGEN_NO_MEMORY = 6,
    NPUGEN_ARGUMENT = 7,    /* a slot, an input or an output that there is not; an image or a shift that cannot be */
    NPUGEN_IO = 8,          /* the way to the device fails */
    NPUGEN_UNREACHABLE = 9, /* memory that the machine's bus does not reach, or not within limits that another locked */
    NPUGEN_DAMAGED = 10     /* code or constants are not those that were deployed */
} npugen_status;

/* Memory that host and device share. Nothing but the buffer is in its cache lines.
 *
 * Caches, once for all: the machine sees memory and no cache. What is in a buffer is therefore either the host's, or the
 * machine's from npugen_start until npugen_wait or npugen_abort has its end.
 *
 *  program    written at the load and then cleaned (to_device), whole
 *  region     cleaned whole at the load, not only where constants were written: a line over results or intermediate
 *             values that an earlier owner of the memory left dirty would otherwise be written over them during a run
 *  inputs     invalidated (to_host) before the host writes them, as the lines at their ends are shared with what the
 *             machine wrote; cleaned after it
 *  outputs    invalidated after the run and before each reading: the processor may have fetched lines ahead of time.
 *             They are clean by the rules above, so that what shares a line with them is not lost
 *  others     intermediate values and constants are not touched between load and unload
 *  registers  status, counters and trace index are never cached: Device memory of an Arm
 *
 * A caller that writes into a region by itself does what inputs need. */
typedef struct npugen_buffer {
    uint8_t *data;
    uint64_t address; /* on the device's bus */
    size_t size;
} npugen_buffer;

/* A way to a device: nine functions, of which free and reset may be NULL. */
typedef struct npugen_backend {
    void *context; /* the functions' first argument */
    /* Registers; where a way does not reach a page of them, it reads as 0 and writes do nothing. */
    uint32_t (*read32)(void *context, uint32_t address);
    void (*write32)(void *context, uint32_t address, uint32_t value);
    /* Memory at a multiple of alignment. */
    npugen_status (*allocate)(void *context, size_t size, size_t alignment, npugen_buffer *buffer);
    void (*free)(void *context, npugen_buffer *buffer);
    /* Before the machine reads: write back what is dirty in the cache. Before the host reads: drop what is in the cache.
     * Lines at the ends are whole. Both are barriers between memory and registers, also where there is no cache. */
    npugen_status (*to_device)(void *context, const npugen_buffer *buffer, size_t offset, size_t size);
    npugen_status (*to_host)(void *context, const npugen_buffer *buffer, size_t offset, size_t size);
    /* Wait for the interrupt, or for so long; it may end early. */
    npugen_status (*wait)(void *context, uint32_t microseconds);
    uint64_t (*now)(void *context); /* microseconds, from any beginning */
    npugen_status (*reset)(void *context);
} npugen_backend;

/* A feature map (channels, height, width) of int8 in the data region. */
typedef struct npugen_tensor {
    const char *name; /* of the model's input or output */
    uint32_t offset;  /* beats */
    uint32_t channels, height, width;
    int interleaved; /* (height, width, channels), every row beginning a beat */
    int signs;       /* an output of bits, each a value of -1 or 1, which npugen_output unpacks */
} npugen_tensor;

#define NPUGEN_DIGEST_BYTES 32

/* A program as it is linked or read from files, of which npugen_load believes nothing: sizes must go together, and maps
 * lie in the data region after the constants. It must not change while it is loaded. */
typedef struct npugen_image {
    const char *name;
    const uint8_t *code, *constants;
    size_t code_size, constants_size; /* bytes */
    uint32_t data_beats, write_start;
    const npugen_tensor *inputs, *outputs;
    unsigned input_count, output_count;
    const uint8_t *code_digest, *constants_digest; /* SHA-256, for npugen_check; may be NULL */
} npugen_image;

/* A program in the device's memory, known by its address: not to be copied. */
typedef struct npugen_program {
    const npugen_image *image;
    npugen_buffer code, regions[NPUGEN_MAX_SLOTS];
    npugen_buffer memory; /* all of these, of a machine with limits */
    unsigned slots;
} npugen_program;

typedef struct npugen_device {
    npugen_backend backend;
    uint32_t progress_cycles; /* without progress until the machine gives up; 0: what it has */
    uint32_t stream_shift;    /* of what is started next: see npugen_set_stream_shift */
    uint32_t fault_code, fault_index;
    uint64_t confined_first, confined_last; /* what limits have been locked around; last 0: nothing */
    const npugen_program *running; /* until npugen_wait has its outcome, or npugen_abort has stopped it */
    unsigned running_slot;
} npugen_device;

/* Look whether the device is the one that npugen_regs.h is of, and bring it to rest. */
npugen_status npugen_open(npugen_device *device, const npugen_backend *backend);

/* Whether code and constants are what was deployed, by their SHA-256: NPUGEN_DAMAGED if not, NPUGEN_ARGUMENT where the
 * image has no digests. In npugen_check.c, which only a caller of it links: the load itself does not. */
npugen_status npugen_check(const npugen_image *image);

/* Put a program into memory, with so many data regions; others may be there. */
npugen_status npugen_load(npugen_device *device, npugen_program *program, const npugen_image *image,
                          unsigned slots);
/* Give its memory back; if it runs, it is aborted. On NPUGEN_BUSY it keeps its memory: reset the device, once more. */
npugen_status npugen_unload(npugen_device *device, npugen_program *program);

/* Load an input, also while another slot's inference runs; read an output of one that has ended. NPUGEN_BUSY for the
 * slot that runs. */
npugen_status npugen_input(npugen_device *device, npugen_program *program, unsigned slot, unsigned input,
                           const int8_t *values);
npugen_status npugen_output(npugen_device *device, npugen_program *program, unsigned slot, unsigned output,
                            int8_t *values);

/* One inference at a time: NPUGEN_BUSY until the one before has been waited for, or aborted. */
npugen_status npugen_start(npugen_device *device, npugen_program *program, unsigned slot);
npugen_status npugen_wait(npugen_device *device, uint32_t timeout_us);
npugen_status npugen_abort(npugen_device *device);
npugen_status npugen_reset(npugen_device *device);

/* Make the streams of all that is started from then on shorter by so many powers of two, not below 8 bits; nothing is
 * loaded anew. 0 at first. NPUGEN_ARGUMENT for more than the register takes, and where the machine has no streams. */
npugen_status npugen_set_stream_shift(npugen_device *device, uint32_t shift);

/* A counter of the last inference, by the register of its low half, such as NPUGEN_REG_COUNTER_CYCLES_LOW. */
uint64_t npugen_counter(npugen_device *device, uint32_t low_register);

const char *npugen_status_text(npugen_status status);
const char *npugen_error_name(uint32_t code);
const char *npugen_error_text(uint32_t code);

#ifdef __cplusplus
}
#endif

#endif
