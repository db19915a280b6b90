/* The ladder of a new board, and a dump, under libFuzzer: a device that does what it should, but now and then anything.
 *
 * A case is what goes wrong: which events, of all that the device takes part in, and what it does then; all else is as
 * of a sound one, so that every check is reached. The device keeps registers, and writes what a program's answer is,
 * where it belongs. Beyond the target's memory, which is watched: texts end where they should. What a machine that does
 * not stop still has is not given back.
 */
#include "device.h"

#include "npugen_bringup.h"
#include "npugen_doctor.h"
#include "npugen_dump.h"

#define WORDS 0x400u
#define FAULTS 4
#define MOST_BUFFERS 64u
#define BEFORE 6u /* checks in front of the engines */
#define ENGINES 2u /* of a case */

static unsigned long ended, failures; /* ladders that were climbed, and checks that failed, of this process */

static uint32_t events, faults_at[FAULTS], every, random_state;
static uint32_t lasting; /* what is wrong with each result, as `spoil` has it; 0: nothing */
static int troubled;     /* anything was wrong */
static uint32_t registers[WORDS];
static npugen_buffer held[MOST_BUFFERS];
static unsigned held_count;
static unsigned place; /* on the ladder: how many checks have ended */
static const npugen_trial *trials;

/* xorshift: a case's bytes are too few for what a device says. */
static uint32_t anything(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static int trouble(unsigned one_in) {
    int found;
    (void)one_in;
    ++events;
    found = every && events % every == 0;
    for (unsigned fault = 0; fault < FAULTS; ++fault) found |= events == faults_at[fault];
    troubled |= found;
    return found;
}

/* -- the device ---------------------------------------------------------------------------------------------------- */

static npugen_status take(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    const npugen_status status = allocate(context, size, alignment, buffer);
    if (status == NPUGEN_OK) {
        if (held_count == MOST_BUFFERS) stop("memory is taken again and again");
        held[held_count++] = *buffer;
    }
    return status;
}

static void give(void *context, npugen_buffer *buffer) {
    unsigned number = 0;
    while (number < held_count && held[number].data != buffer->data) ++number;
    if (number == held_count) stop("memory is given back that was not taken");
    held[number] = held[--held_count];
    give_back(context, buffer);
}

/* A result that is wrong, in one of some ways. */
static void spoil(uint8_t *output, size_t size, uint32_t way) {
    const uint32_t amount = way >> 4;
    switch (way % 16) {
    case 1: memset(output, (int)(amount & 0xFF), size); break;
    case 3:
        for (size_t at = 0; at < size; at += 4)
            for (size_t byte_of = 0; byte_of < 2 && at + 3 < size; ++byte_of) {
                const uint8_t first = output[at + byte_of];
                output[at + byte_of] = output[at + 3 - byte_of];
                output[at + 3 - byte_of] = first;
            }
        break;
    case 5:
        for (size_t at = 0; at < size; ++at) output[at] = (uint8_t)anything();
        break;
    case 7:
        for (size_t at = amount % 16; at < size; at += 16) output[at] |= (uint8_t)(amount >> 8);
        break;
    case 9:
        for (size_t at = amount % 16; at < size; at += 32) output[at] ^= (uint8_t)(amount >> 8);
        break;
    default: output[amount % size] ^= (uint8_t)(1u << (amount >> 16) % 8);
    }
}

/* What a program leaves: the answer of the engine whose turn it is, or what it copies; or anything in its place. */
static void compute(void) {
    const npugen_buffer *buffer = held_count ? &held[held_count - 1] : NULL;
    const npugen_trial *trial = place >= BEFORE ? &trials[place - BEFORE] : NULL;
    uint8_t *region, *output;
    if (!buffer || !trial) return;
    region = buffer->data + (registers[NPUGEN_REG_DATA_LOW / 4] - (uint32_t)buffer->address);
    if ((size_t)(region - buffer->data) > buffer->size
        || (size_t)(region - buffer->data) + (size_t)trial->data_beats * NPUGEN_BEAT_BYTES > buffer->size)
        return;
    output = region + (size_t)trial->output * NPUGEN_BEAT_BYTES;
    memmove(output, trial->source >= 0 ? region + (size_t)trial->source * NPUGEN_BEAT_BYTES : trial->expected,
            trial->expected_size);
    if (trouble(8)) spoil(output, trial->expected_size, anything() | 1u);
    if (lasting) {
        troubled = 1;
        spoil(output, trial->expected_size, lasting);
    }
}

static uint32_t shown(void *context, uint32_t address) {
    if (address / 4 >= WORDS || address % 4) stop("no register has this address");
    if (trouble(8)) return read32(context, address) ^ (anything() % 2 ? anything() : 1u << anything() % 32);
    if (address <= NPUGEN_REG_CONFIG && address != NPUGEN_REG_CONTROL && address != NPUGEN_REG_STATUS)
        return read32(context, address);
    return registers[address / 4];
}

static void written(void *context, uint32_t address, uint32_t value) {
    if (address / 4 >= WORDS || address % 4) stop("no register has this address");
    if (trouble(8)) {
        if (anything() % 2) return;
        value = anything();
    }
    write32(context, address, value);
    if (address != NPUGEN_REG_CONTROL) {
        registers[address / 4] = value;
        return;
    }
    if (value & NPUGEN_CONTROL_CLEAR) registers[NPUGEN_REG_STATUS / 4] &= ~NPUGEN_STATUS_DONE;
    if (value & NPUGEN_CONTROL_ABORT) registers[NPUGEN_REG_STATUS / 4] = trouble(8) ? anything() : 0u;
    if (value & NPUGEN_CONTROL_START) {
        compute();
        registers[NPUGEN_REG_STATUS / 4] = trouble(8) ? anything() : NPUGEN_STATUS_DONE;
    }
}

/* As soon as the interrupt is up; else, or for no reason, in time. */
static npugen_status waits(void *context, uint32_t microseconds) {
    const int up = (registers[NPUGEN_REG_STATUS / 4] & NPUGEN_STATUS_DONE) != 0;
    if (trouble(16)) return anything() % 2 ? NPUGEN_IO : wait_a_while(context, anything() % 100000);
    return wait_a_while(context, up ? 1u : microseconds);
}

static uint64_t clock_of(void *context) { return trouble(16) ? now(context) : ++*(uint64_t *)context; }

static npugen_status again(void *context) {
    (void)context;
    memset(registers, 0, sizeof registers);
    return trouble(8) ? NPUGEN_IO : NPUGEN_OK;
}

/* What the host reads back is what it wrote, or is not. */
static npugen_status back(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    if (size && trouble(16)) buffer->data[offset + anything() % size] ^= (uint8_t)anything();
    return sync_range(context, buffer, offset, size);
}

/* -- what is said -------------------------------------------------------------------------------------------------- */

static void put(void *context, const char *text, size_t size) {
    for (size_t at = 0; at < size; ++at) *(size_t *)context += text[at] != '\0';
}

static void report(void *context, const npugen_finding *finding) {
    if (!memchr(finding->found, 0, sizeof finding->found) || !memchr(finding->wrong, 0, sizeof finding->wrong))
        stop("a text has no end");
    if (!finding->ok && (!*finding->found || !*finding->wrong || !*finding->next)) stop("a failure says nothing");
    npugen_put_finding(finding, put, context);
    failures += !finding->ok;
    ++place;
}

static void how_far(void) { printf("%lu ladders climbed, %lu checks failed\n", ended, failures); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int begun;
    uint64_t time = 0;
    size_t said = 0;
    npugen_doctor doctor = {{&time, shown, written, take, give, sync_range, back, waits, clock_of, again},
                            NULL, ENGINES, 0, &said, report};
    if (!begun) atexit(how_far);
    begun = 1;
    bytes = data;
    left = size;
    doctor.trials = trials = &npugen_trials[byte() % (NPUGEN_TRIALS - ENGINES + 1)];
    doctor.has_interrupt = byte() % 2 == 0;
    if (byte() % 4 == 0) doctor.backend.reset = NULL;
    every = byte() % 8 ? 0 : 1 + byte();
    for (unsigned fault = 0; fault < FAULTS; ++fault) {
        const uint32_t most = UINT32_C(1) << byte() % 13;
        faults_at[fault] = byte() % 4 ? 0 : 1 + word() % most;
    }
    random_state = word() | 1u;
    lasting = byte() % 4 ? 0 : word() | 1u;
    memset(registers, 0, sizeof registers);
    events = place = held_count = 0;
    troubled = 0;
    if (byte() % 4 == 0) npugen_dump(&doctor.backend, &npugen_shown_machine, put, &said);
    if (npugen_examine(&doctor)) ++ended;
    else if (!troubled) stop("a sound device has failed");
    if (held_count && !troubled) stop("memory is not given back");
    while (held_count) give(&time, &held[held_count - 1]);
    return 0;
}
