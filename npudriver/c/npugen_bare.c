/* A back end of a port's data and functions. See npugen_bare.h. */
#include "npugen_bare.h"

static uint32_t read32(void *context, uint32_t address) {
    return ((npugen_bare *)context)->port.registers[address / 4];
}

static void write32(void *context, uint32_t address, uint32_t value) {
    ((npugen_bare *)context)->port.registers[address / 4] = value;
}

static npugen_status allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    return npugen_memory_take(&((npugen_bare *)context)->memory, size, alignment, buffer);
}

static void give_back(void *context, npugen_buffer *buffer) {
    npugen_memory_give(&((npugen_bare *)context)->memory, buffer);
}

static npugen_status sync_range(npugen_bare *bare, const npugen_buffer *buffer, size_t offset, size_t size,
                                void (*lines)(void *context, const uint8_t *begin, size_t size)) {
    size_t first, end;
    NPUGEN_BARRIER();
    if (!lines || !size) return NPUGEN_OK;
    npugen_memory_lines(&bare->memory, buffer, offset, size, &first, &end);
    lines(bare->port.context, bare->memory.data + first, end - first);
    NPUGEN_BARRIER();
    return NPUGEN_OK;
}

static npugen_status to_device(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    return sync_range(context, buffer, offset, size, ((npugen_bare *)context)->port.clean);
}

static npugen_status to_host(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    return sync_range(context, buffer, offset, size, ((npugen_bare *)context)->port.invalidate);
}

static npugen_status pause(void *context, uint32_t microseconds) {
    npugen_bare *bare = context;
    if (bare->port.sleep) bare->port.sleep(bare->port.context, microseconds);
    return NPUGEN_OK;
}

static uint64_t now(void *context) {
    npugen_bare *bare = context;
    return bare->port.now(bare->port.context);
}

static npugen_status reset(void *context) {
    npugen_bare *bare = context;
    return bare->port.reset(bare->port.context);
}

npugen_status npugen_bare_open(npugen_bare *bare, npugen_backend *backend, const npugen_port *port) {
    const size_t line = port->line ? port->line : 1;
    if (!port->registers || !port->memory || !port->now || (line & (line - 1))) return NPUGEN_ARGUMENT;
    if (!port->clean != !port->invalidate || (port->clean && !port->line)) return NPUGEN_ARGUMENT;
    if ((uintptr_t)port->memory % line || port->memory_address % line || port->memory_size % line)
        return NPUGEN_ARGUMENT;
    memset(bare, 0, sizeof *bare);
    bare->port = *port;
    bare->memory.data = port->memory;
    bare->memory.address = port->memory_address;
    bare->memory.size = port->memory_size;
    bare->memory.line = line;
    *backend = (npugen_backend){bare,    read32, write32, allocate, give_back, to_device,
                                to_host, pause,  now,     port->reset ? reset : NULL};
    return NPUGEN_OK;
}
