/* The port of npugen_bare.c to VexRiscv in a system of LiteX, as `python -m gen soc --cpu vexriscv` makes it.
 *
 * Its data cache writes through, so that nothing is dirty in it; what the machine wrote is seen after all of the cache
 * has been dropped, which is the only order that the processor has for it. Addresses are npugen_soc.h's.
 */
#ifndef NPUGEN_VEXRISCV_H
#define NPUGEN_VEXRISCV_H

#include "npugen_bare.h"
#include "npugen_soc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With memory that nobody else uses, which begins and ends at cache lines (NPUGEN_SOC_LINE). */
npugen_status npugen_vexriscv_open(npugen_bare *bare, npugen_backend *backend, uint8_t *memory, size_t size);

/* Cycles of the system's clock since its reset. */
uint64_t npugen_vexriscv_cycles(void);

#ifdef __cplusplus
}
#endif

#endif
