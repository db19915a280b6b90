/* Checks of a new board, from the register port to the engines. See npugen_doctor.h. */
#include "npugen_doctor.h"

#include <string.h>

#define PATIENCE_US 1000000u /* that a small program may take */
#define PROGRESS 50000u      /* cycles without progress until the machine gives up */
#define RUNS 3u
#define MEMORY_SIZE 16384u /* bytes of the pattern, a power of two */
#define LANES 16u          /* bytes in which data lines are told apart */
#define LINE_BYTES 32u     /* of the shortest cache line */
#define EARLY_US 5000u     /* an interrupt that is up ends so long a wait at once */
#define INSTRUCTION_BYTES NPUGEN_INSTRUCTION_BYTES

#define WIRING "compare the address bus of the register port with the block design's, line by line"
#define PORT "compare the memory port with the block design's"
#define SLOWER "look at the tool's timing report, and build with a lower --clock"

typedef struct bench {
    const npugen_doctor *doctor;
    npugen_device device;
    npugen_finding finding;
} bench;

/* -- words --------------------------------------------------------------------------------------------------------- */

static void append(char *text, size_t room, const char *more) {
    size_t at = strlen(text);
    while (*more && at + 1 < room) text[at++] = *more++;
    text[at] = '\0';
}

static void append_number(char *text, size_t room, uint32_t value, unsigned base) {
    char digits[36];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do digits[--at] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    if (base == 16) append(text, room, "0x");
    append(text, room, &digits[at]);
}

static void say(bench *b, const char *text) { append(b->finding.found, sizeof b->finding.found, text); }
static void say_number(bench *b, size_t value) {
    append_number(b->finding.found, sizeof b->finding.found, (uint32_t)value, 10);
}
static void say_hex(bench *b, uint32_t value) { append_number(b->finding.found, sizeof b->finding.found, value, 16); }
static void blame(bench *b, const char *text) { append(b->finding.wrong, sizeof b->finding.wrong, text); }
static void blame_number(bench *b, size_t value) {
    append_number(b->finding.wrong, sizeof b->finding.wrong, (uint32_t)value, 10);
}

/* A check has failed; what is wrong may have been said before. */
static int fail(bench *b, const char *wrong, const char *next) {
    blame(b, wrong);
    b->finding.next = next;
    return 0;
}

/* A call of the library has failed, which is no finding about the machine itself. */
static int fail_status(bench *b, npugen_status status) {
    say(b, npugen_status_text(status));
    return fail(b, "the way to the device fails", "look at the back end");
}

static uint32_t read_register(bench *b, uint32_t address) {
    return b->doctor->backend.read32(b->doctor->backend.context, address);
}

static void write_register(bench *b, uint32_t address, uint32_t value) {
    b->doctor->backend.write32(b->doctor->backend.context, address, value);
}

static void blame_line(bench *b, uint32_t line, uint32_t level, const char *of) {
    blame(b, "address line ");
    blame_number(b, line);
    blame(b, " of the register port is stuck at ");
    blame_number(b, level);
    blame(b, of);
}

/* -- identity ------------------------------------------------------------------------------------------------------ */

#define KNOWN 3u
static const uint32_t known_at[KNOWN] = {NPUGEN_REG_ID, NPUGEN_REG_VERSION, NPUGEN_REG_CONFIG};
static const uint32_t known_values[KNOWN] = {NPUGEN_ID_VALUE, NPUGEN_VERSION_VALUE, NPUGEN_CONFIG_VALUE};

/* Whether reads by a stuck line would give what was found; registers that are not known may give anything. */
static int reads_by_line(const uint32_t *found, uint32_t line, uint32_t level) {
    unsigned seen = 0;
    for (unsigned number = 0; number < KNOWN; ++number) {
        const uint32_t at = (known_at[number] & ~(1u << line)) | level << line;
        for (unsigned other = 0; other < KNOWN; ++other) {
            if (known_at[other] != at) continue;
            if (found[number] != known_values[other]) return 0;
            ++seen;
        }
    }
    return seen > 1;
}

static int check_identity(bench *b) {
    uint32_t found[KNOWN];
    unsigned wrong = KNOWN;
    for (unsigned number = KNOWN; number-- > 0;) {
        found[number] = read_register(b, known_at[number]);
        if (found[number] != known_values[number]) wrong = number;
    }
    if (wrong == KNOWN) {
        /* Seen once more in place of others, by a line that none of their addresses has. */
        for (uint32_t line = 4; line < 12; ++line) {
            unsigned same = 0;
            while (same < KNOWN && read_register(b, known_at[same] | 1u << line) == known_values[same]) ++same;
            if (same < KNOWN) continue;
            say(b, "the identifying registers are at ");
            say_hex(b, 1u << line);
            say(b, ", too");
            blame_line(b, line, 0, ", of reads");
            return fail(b, "", WIRING);
        }
        say(b, "an NPU of configuration ");
        say_hex(b, NPUGEN_CONFIG_VALUE);
        return 1;
    }
    say(b, "register at ");
    say_hex(b, known_at[wrong]);
    say(b, " is ");
    say_hex(b, found[wrong]);
    say(b, ", not ");
    say_hex(b, known_values[wrong]);
    if (found[0] == found[1] && found[1] == found[2])
        return fail(b,
                    "nothing answers at the register port: another address, no clock, held in reset, no bitstream, or an "
                    "address line of it is stuck at 1",
                    "compare the address with the block design's, and load the bitstream");
    for (uint32_t line = 2; line < 4; ++line)
        for (uint32_t level = 0; level < 2; ++level)
            if (reads_by_line(found, line, level)) {
                blame_line(b, line, level, ", of reads");
                return fail(b, "", WIRING);
            }
    if (wrong == 0 && found[0] == 0x4755504Eu)
        return fail(b, "the bytes of each word are swapped", "mend the order of bytes on the way to the registers");
    if (wrong == 0)
        return fail(b, "another peripheral is at this address, or an address line of it is stuck at 1",
                    "compare the address with the block design's");
    return fail(b, "the bitstream is of another configuration or version",
                "load the bitstream of this package, or deploy the model again for this machine");
}

/* -- rest ---------------------------------------------------------------------------------------------------------- */

static int check_rest(bench *b) {
    const int busy = (read_register(b, NPUGEN_REG_STATUS) & NPUGEN_STATUS_BUSY) != 0;
    const npugen_status status = npugen_open(&b->device, &b->doctor->backend);
    if (status == NPUGEN_BUSY) {
        say(b, "the machine is busy and does not stop");
        return fail(b, "its bus owes answers to a program that another has started", "load the bitstream again");
    }
    if (status != NPUGEN_OK) return fail_status(b, status);
    b->device.progress_cycles = PROGRESS;
    say(b, busy ? "a program that was running has been stopped" : "no program is running");
    return 1;
}

/* -- registers ----------------------------------------------------------------------------------------------------- */

#define PLAIN 3u   /* of 32 bits that start nothing */
#define CHANGED 6u /* that a write changes */
static const uint32_t plain[CHANGED] = {NPUGEN_REG_DATA_BEATS,  NPUGEN_REG_WRITE_START,    NPUGEN_REG_TIMEOUT,
                                        NPUGEN_REG_PROGRAM_LOW, NPUGEN_REG_PROGRAM_LENGTH, NPUGEN_REG_DATA_LOW};

/* Which writes change what is read, and by which line the others are lost. Were they to go to the control register, they
 * would be no command. */
static int check_write_lines(bench *b) {
    unsigned arrived = 0, named = 0, lost = 0;
    for (unsigned number = 0; number < CHANGED; ++number) {
        uint32_t first;
        write_register(b, plain[number], 0x5A5A5000u);
        first = read_register(b, plain[number]);
        write_register(b, plain[number], 0xA5A5A000u);
        if (read_register(b, plain[number]) != first)
            arrived |= 1u << number;
        else
            lost = number;
    }
    if (!arrived || arrived == (1u << CHANGED) - 1) return 1;
    for (uint32_t line = 2; line < 7; ++line)
        for (uint32_t level = 0; level < 2; ++level) {
            unsigned by_line = 0;
            for (unsigned number = 0; number < CHANGED; ++number)
                by_line |= (unsigned)((plain[number] >> line & 1) == level) << number;
            if (by_line != arrived) continue;
            if (named++) blame(b, ", or ");
            blame_line(b, line, level, ", of writes");
        }
    if (!named) return 1; /* what is wrong is in the data: the walk says it */
    say(b, "writes of the register at ");
    say_hex(b, plain[lost]);
    say(b, ", and not of all others, go elsewhere");
    return fail(b, "", WIRING);
}

static int check_walk(bench *b, uint32_t address) {
    uint32_t never_one = UINT32_MAX, never_zero = UINT32_MAX;
    int wrong = 0, stuck = 0;
    for (unsigned bit = 0; bit < 32; ++bit)
        for (unsigned inverse = 0; inverse < 2; ++inverse) {
            const uint32_t value = inverse ? ~(1u << bit) : 1u << bit;
            uint32_t found;
            write_register(b, address, value);
            found = read_register(b, address);
            never_one &= ~found;
            never_zero &= found;
            if (found == value || wrong) continue;
            wrong = 1;
            say(b, "register at ");
            say_hex(b, address);
            say(b, " is ");
            say_hex(b, found);
            say(b, " after ");
            say_hex(b, value);
            say(b, " was written");
        }
    if (!wrong) return 1;
    if ((never_one | never_zero) == UINT32_MAX)
        return fail(b, "registers do not hold what is written: writes do not arrive, or the machine is in reset",
                    "check reset, the port's clock, and that its write channels are wired");
    for (unsigned bit = 0; bit < 32; ++bit) {
        if (!((never_one | never_zero) >> bit & 1)) continue;
        if (stuck++) blame(b, ", ");
        blame(b, "bit ");
        blame_number(b, bit);
        blame(b, " is stuck at ");
        blame_number(b, never_zero >> bit & 1);
    }
    return fail(b, stuck ? "" : "bits flip on their way: the register port's clock is too fast",
                "check the data lines of the register port, and timing at its clock");
}

static int check_registers(bench *b) {
    uint32_t before[CHANGED];
    int ok;
    for (unsigned number = 0; number < CHANGED; ++number) before[number] = read_register(b, plain[number]);
    ok = check_write_lines(b);
    for (unsigned number = 0; ok && number < PLAIN; ++number) ok = check_walk(b, plain[number]);
    for (unsigned number = 0; ok && number < PLAIN; ++number) write_register(b, plain[number], 0x5A5A0000u + number);
    for (unsigned number = 0; ok && number < PLAIN; ++number) {
        const uint32_t found = read_register(b, plain[number]);
        if (found == 0x5A5A0000u + number) continue;
        say(b, "register at ");
        say_hex(b, plain[number]);
        say(b, " is ");
        say_hex(b, found);
        say(b, " after others were written");
        ok = fail(b, "several addresses lead to one register", WIRING);
    }
    for (unsigned number = 0; number < CHANGED; ++number) write_register(b, plain[number], before[number]);
    if (ok) say(b, "3 registers hold every bit");
    return ok;
}

/* -- what became of bytes ------------------------------------------------------------------------------------------ */

/* Bytes that are wanted: those of an array, with some bits turned; a pattern where there is none. */
typedef struct wanted {
    const uint8_t *bytes;
    uint8_t key;
} wanted;

static uint8_t at(const wanted *w, size_t place) {
    uint32_t mixed = (uint32_t)place * 0x9E3779B1u;
    if (w->bytes) return w->bytes[place] ^ w->key;
    mixed ^= mixed >> 15;
    mixed *= 0x85EBCA77u;
    return (uint8_t)(mixed >> 24);
}

static const struct swap {
    const char *text;
    uint8_t group, width;
} swaps[] = {{"the bytes of each 32-bit word", 4, 1},
             {"the 32-bit halves of each 64-bit word", 8, 4},
             {"the bytes of each 64-bit word", 8, 1},
             {"the bytes of each 16-bit word", 2, 1}};
#define SWAPS (sizeof swaps / sizeof *swaps)

static size_t swapped(size_t place, const struct swap *swap) {
    const size_t within = place % swap->group;
    return place - within + (swap->group / swap->width - 1u - within / swap->width) * swap->width
        + within % swap->width;
}

static int by_swap(const wanted *w, const uint8_t *found, size_t size, const struct swap *swap) {
    if (size % swap->group) return 0;
    for (size_t place = 0; place < size; ++place)
        if (found[place] != at(w, swapped(place, swap))) return 0;
    return 1;
}

/* Halves that an address line tells apart are one, of which either may be read. */
static int by_line(const wanted *w, const uint8_t *found, size_t size, unsigned line, unsigned level) {
    for (size_t place = 0; place < size; ++place)
        if (found[place] != at(w, (place & ~((size_t)1 << line)) | (size_t)level << line)) return 0;
    return 1;
}

/* Says which data lines are stuck, if that explains all that is wrong. */
static int blame_data_lines(bench *b, const wanted *w, const uint8_t *found, size_t size) {
    uint8_t wrong[LANES] = {0}, ones[LANES] = {0}, zeros[LANES] = {0};
    unsigned first = LANES, bit = 0;
    for (size_t place = 0; place < size; ++place) {
        const size_t lane = place % LANES;
        wrong[lane] = (uint8_t)(wrong[lane] | (found[place] ^ at(w, place)));
        ones[lane] = (uint8_t)(ones[lane] | found[place]);
        zeros[lane] = (uint8_t)(zeros[lane] | (uint8_t)~found[place]);
    }
    for (unsigned lane = LANES; lane-- > 0;) {
        if (wrong[lane] & ones[lane] & zeros[lane]) return 0;
        if (wrong[lane]) first = lane;
    }
    if (first == LANES) return 0;
    while (!(wrong[first] >> bit & 1)) ++bit;
    for (unsigned width = 1; width <= LANES; width *= 2) {
        unsigned lane = 0;
        while (lane < LANES && wrong[lane] == (lane % width == first % width ? 1u << bit : 0u)) ++lane;
        if (lane < LANES) continue;
        blame(b, "data line ");
        blame_number(b, 8u * (first % width) + bit);
        blame(b, " of ");
        blame_number(b, 8u * width);
        blame(b, " is stuck at ");
        blame_number(b, ((unsigned)ones[first] >> bit) & 1u);
        return 1;
    }
    blame(b, "several data lines are stuck");
    return 1;
}

/* Says what was most likely done to the bytes; 0 where there is no pattern in it. */
static int blame_pattern(bench *b, const wanted *w, const uint8_t *found, size_t size) {
    size_t same = 1;
    while (same < size && found[same] == found[0]) ++same;
    if (same == size) {
        blame(b, "every byte reads the same: nothing answers there, or what was written never arrived");
        return 1;
    }
    for (unsigned number = 0; number < SWAPS; ++number)
        if (by_swap(w, found, size, &swaps[number])) {
            blame(b, swaps[number].text);
            blame(b, " are swapped");
            return 1;
        }
    if (blame_data_lines(b, w, found, size)) return 1;
    if (size & (size - 1)) return 0;
    for (unsigned line = 0; (size_t)1 << line < size; ++line)
        for (unsigned level = 0; level < 2; ++level)
            if (by_line(w, found, size, line, level)) {
                blame(b, "address line ");
                blame_number(b, line);
                blame(b, " is stuck");
                return 1;
            }
    return 0;
}

/* How many bytes are wrong, and the first. */
static size_t count_wrong(const wanted *w, const uint8_t *found, size_t size, size_t *first) {
    size_t wrong = 0;
    for (size_t place = size; place-- > 0;)
        if (found[place] != at(w, place)) {
            ++wrong;
            *first = place;
        }
    return wrong;
}

static void say_wrong(bench *b, size_t wrong, size_t size, size_t first, uint8_t found, uint8_t expected) {
    say_number(b, wrong);
    say(b, " of ");
    say_number(b, size);
    say(b, " bytes are wrong, the first, byte ");
    say_hex(b, (uint32_t)first);
    say(b, ", is ");
    say_hex(b, found);
    say(b, ", not ");
    say_hex(b, expected);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

static int compare_memory(bench *b, const npugen_buffer *buffer) {
    const npugen_backend *backend = &b->doctor->backend;
    const wanted w = {NULL, 0};
    size_t wrong, first = 0;
    npugen_status status;
    for (size_t place = 0; place < MEMORY_SIZE; ++place) buffer->data[place] = at(&w, place);
    status = backend->to_device(backend->context, buffer, 0, MEMORY_SIZE);
    if (status == NPUGEN_OK) status = backend->to_host(backend->context, buffer, 0, MEMORY_SIZE);
    if (status != NPUGEN_OK) return fail_status(b, status);
    wrong = count_wrong(&w, buffer->data, MEMORY_SIZE, &first);
    if (wrong) {
        say_wrong(b, wrong, MEMORY_SIZE, first, buffer->data[first], at(&w, first));
        blame(b, "of the host's way to the shared memory, ");
        if (!blame_pattern(b, &w, buffer->data, MEMORY_SIZE))
            blame(b, "timing or signal integrity, as bits are wrong without a pattern");
        return fail(b, "", "check the region's address and size, and that nothing else uses it");
    }
    if (buffer->address + MEMORY_SIZE - 1 > UINT64_MAX >> (64 - NPUGEN_ADDRESS_BITS)) {
        say(b, "the shared memory is beyond the addresses of the machine's bus");
        return fail(b, "its region is too high", "reserve lower memory");
    }
    say_number(b, MEMORY_SIZE / 1024u);
    say(b, " KiB hold a pattern");
    return 1;
}

static int check_memory(bench *b) {
    const npugen_backend *backend = &b->doctor->backend;
    npugen_buffer buffer;
    const npugen_status status = backend->allocate(backend->context, MEMORY_SIZE, NPUGEN_BASE_ALIGNMENT, &buffer);
    int ok;
    if (status != NPUGEN_OK) return fail_status(b, status);
    ok = compare_memory(b, &buffer);
    if (backend->free) backend->free(backend->context, &buffer);
    return ok;
}

/* -- fetch --------------------------------------------------------------------------------------------------------- */

/* The machine is at rest afterwards, whatever it takes. */
static void stop(bench *b) {
    if (npugen_abort(&b->device) != NPUGEN_OK) (void)npugen_reset(&b->device);
}

/* A program of END, in an order of bytes. */
static npugen_image end_program(uint8_t *code, const struct swap *swap) {
    npugen_image image = {"END", code, NULL, INSTRUCTION_BYTES, 0, NPUGEN_BASE_ALIGNMENT / NPUGEN_BEAT_BYTES,
                          0,     NULL, NULL, 0,                 0, NULL,
                          NULL};
    memset(code, 0, INSTRUCTION_BYTES);
    code[swap ? swapped(0, swap) : 0] = NPUGEN_END_OPCODE;
    return image;
}

static npugen_status run_end(bench *b, const struct swap *swap) {
    uint8_t code[INSTRUCTION_BYTES];
    const npugen_image image = end_program(code, swap);
    npugen_program program;
    npugen_status status = npugen_load(&b->device, &program, &image, 1);
    if (status != NPUGEN_OK) return status;
    status = npugen_start(&b->device, &program, 0);
    if (status == NPUGEN_OK) status = npugen_wait(&b->device, PATIENCE_US);
    if (status == NPUGEN_TIMEOUT) stop(b);
    (void)npugen_unload(&b->device, &program);
    return status;
}

static int is_bus_error(uint32_t code) {
    return code == NPUGEN_ERROR_READ_SLVERR || code == NPUGEN_ERROR_READ_DECERR || code == NPUGEN_ERROR_WRITE_SLVERR
        || code == NPUGEN_ERROR_WRITE_DECERR;
}

static int check_fetch(bench *b) {
    const npugen_status status = run_end(b, NULL);
    const uint32_t fault = b->device.fault_code;
    if (status == NPUGEN_OK) {
        say(b, "the machine fetched a program of END and ended it");
        return 1;
    }
    if (status == NPUGEN_TIMEOUT || (status == NPUGEN_FAULT && fault == NPUGEN_ERROR_TIMEOUT)) {
        say(b, "the machine started and does not end");
        return fail(b, "a channel of its memory port never answers",
                    "check clock, reset and connection of the memory port, and the interconnect after it");
    }
    if (status != NPUGEN_FAULT) return fail_status(b, status);
    say(b, "the machine stopped with ");
    say(b, npugen_error_name(fault));
    if (is_bus_error(fault))
        return fail(b, "the bus has no memory at the address that the host calls it by",
                    "check the region's bus address and the memory port's address map");
    for (unsigned number = 0; number < SWAPS; ++number) {
        if (run_end(b, &swaps[number]) != NPUGEN_OK) continue;
        blame(b, "the memory port swaps ");
        return fail(b, swaps[number].text, "mend the order of bytes in the interconnect or in its width converter");
    }
    return fail(b,
                "the machine reads other bytes than the host wrote: the cache is not written back, or the address leads "
                "to other memory",
                "check that the back end flushes the cache, and the region's bus address");
}

/* -- interrupt ----------------------------------------------------------------------------------------------------- */

/* Whether a wait has ended before its time, as the interrupt is up. */
static int ends_early(bench *b) {
    const npugen_backend *backend = &b->doctor->backend;
    const uint64_t began = backend->now(backend->context);
    (void)backend->wait(backend->context, EARLY_US);
    return backend->now(backend->context) - began < EARLY_US / 2;
}

static int check_interrupt(bench *b) {
    uint8_t code[INSTRUCTION_BYTES];
    const npugen_image image = end_program(code, NULL);
    npugen_program program;
    npugen_status status;
    int raised, dropped = 0;
    if (!b->doctor->has_interrupt) {
        say(b, "there is none; the driver polls");
        return 1;
    }
    status = npugen_load(&b->device, &program, &image, 1);
    if (status == NPUGEN_OK) status = npugen_start(&b->device, &program, 0);
    if (status != NPUGEN_OK) return fail_status(b, status);
    /* The program was run before: it ends. */
    for (unsigned look = 0; look < 1000 && read_register(b, NPUGEN_REG_STATUS) & NPUGEN_STATUS_BUSY; ++look)
        (void)b->doctor->backend.wait(b->doctor->backend.context, 100);
    raised = ends_early(b);
    status = npugen_wait(&b->device, PATIENCE_US);
    if (status == NPUGEN_OK) status = npugen_unload(&b->device, &program);
    if (status != NPUGEN_OK) return fail_status(b, status);
    if (!raised) {
        say(b, "the program has ended and no interrupt came");
        return fail(b, "the interrupt line is stuck at 0 or not connected, or its number is another",
                    "compare the interrupt's number with the block design's; until then poll");
    }
    for (unsigned look = 0; look < 3 && !dropped; ++look) dropped = !ends_early(b);
    if (!dropped) {
        say(b, "the interrupt stays after it was cleared");
        return fail(b, "the interrupt line is stuck at 1, is of the other polarity, or is another device's",
                    "declare it level-sensitive, active high");
    }
    say(b, "raised at the end of a program, and dropped");
    return 1;
}

/* -- engines ------------------------------------------------------------------------------------------------------- */

/* What is wrong over all runs. */
typedef struct tally {
    size_t wrong, first;      /* of the first bad run: how many bytes, and which */
    unsigned bad;             /* runs */
    int as_before, as_earlier; /* all that is wrong is what lay there before, or what the run before had to give */
    uint32_t errors[RUNS];    /* a digest of which bits are wrong, of each run */
    uint8_t bits, columns;    /* that are wrong in any byte; 1 even, 2 odd */
    uint64_t lanes;           /* bytes of a beat that are wrong, of the first 64 */
    uint8_t found, expected;  /* of the first */
} tally;

/* What is done to the bits of what a program only copies, the first before any run; and of what lies in the way. */
static const uint8_t keys[RUNS + 1] = {0x33, 0x00, 0xFF, 0x5A}, fills[RUNS] = {0xFF, 0xA5, 0x3C};

static uint8_t key_of(const npugen_trial *trial, unsigned number) { return trial->source >= 0 ? keys[number] : 0; }

static void add_run(const npugen_trial *trial, const uint8_t *found, unsigned run, tally *t) {
    const wanted w = {trial->expected, key_of(trial, run + 1)};
    uint32_t digest = 2166136261u;
    size_t wrong = 0;
    for (size_t place = 0; place < trial->expected_size; ++place) {
        const uint8_t error = found[place] ^ at(&w, place);
        digest = (digest ^ error) * 16777619u;
        if (!error) continue;
        if (!t->bad && !wrong++) {
            t->first = place;
            t->found = found[place];
            t->expected = at(&w, place);
        }
        if (found[place] != (trial->expected[place] ^ fills[run])) t->as_before = 0;
        if (trial->source < 0 || found[place] != (trial->expected[place] ^ keys[run])) t->as_earlier = 0;
        t->bits = (uint8_t)(t->bits | error);
        t->lanes |= (uint64_t)1 << (place % NPUGEN_BEAT_BYTES & 63u);
        t->columns = (uint8_t)(t->columns | 1u << (place / NPUGEN_BEAT_BYTES % trial->cols & 1u));
        if (t->bad) wrong = 1;
    }
    if (!t->bad) t->wrong = wrong;
    t->bad += wrong != 0;
    t->errors[run] = digest;
}

/* Data, input and what lies where the result is to be, as of a run; -1 is before the first. */
static npugen_status prepare(bench *b, const npugen_trial *trial, const npugen_buffer *region, int run) {
    const size_t output = (size_t)trial->output * NPUGEN_BEAT_BYTES;
    if (trial->data_size) memcpy(region->data, trial->data, trial->data_size);
    if (trial->source >= 0)
        for (size_t place = 0; place < trial->expected_size; ++place)
            region->data[(size_t)trial->source * NPUGEN_BEAT_BYTES + place] =
                trial->expected[place] ^ keys[run + 1];
    for (size_t place = 0; place < trial->expected_size; ++place)
        region->data[output + place] = trial->expected[place] ^ fills[run < 0 ? 0 : run];
    return b->device.backend.to_device(b->device.backend.context, region, 0, region->size);
}

/* Puts into the processor's cache what is in memory: one that is not invalidated after the run shows it then. */
static void fetch(const uint8_t *begin, size_t size) {
    for (size_t at = 0; at < size; at += LINE_BYTES) (void)*(const volatile uint8_t *)(begin + at);
}

static npugen_status run_trial(bench *b, const npugen_trial *trial, npugen_program *program, tally *t) {
    const npugen_buffer *region = &program->regions[0];
    const size_t output = (size_t)trial->output * NPUGEN_BEAT_BYTES;
    npugen_status status = prepare(b, trial, region, -1);
    for (unsigned run = 0; status == NPUGEN_OK && run < RUNS; ++run) {
        status = prepare(b, trial, region, (int)run);
        fetch(region->data + output, trial->expected_size);
        if (status == NPUGEN_OK) status = npugen_start(&b->device, program, 0);
        if (status == NPUGEN_OK) status = npugen_wait(&b->device, PATIENCE_US);
        if (status == NPUGEN_OK)
            status = b->device.backend.to_host(b->device.backend.context, region, output, trial->expected_size);
        if (status == NPUGEN_OK) add_run(trial, region->data + output, run, t);
    }
    if (status == NPUGEN_TIMEOUT) stop(b);
    return status;
}

static int blame_outcome(bench *b, npugen_status status) {
    const uint32_t fault = b->device.fault_code;
    if (status == NPUGEN_TIMEOUT || (status == NPUGEN_FAULT && fault == NPUGEN_ERROR_TIMEOUT)) {
        say(b, "the program does not end");
        return fail(b, "an engine waits for what never comes", "look which counter of its states grows");
    }
    if (status != NPUGEN_FAULT) return fail_status(b, status);
    say(b, "the program stopped with ");
    say(b, npugen_error_name(fault));
    if (is_bus_error(fault))
        return fail(b, "the bus refuses what the machine asks of it in its data region",
                    "check that the interconnect lets it read and write there, in bursts");
    return fail(b, "the machine read other bytes than the host wrote, or decodes them wrongly",
                "compare the bitstream with the package");
}

static void blame_place(bench *b, const npugen_trial *trial, const tally *t) {
    unsigned lanes = 0, said = 0;
    for (unsigned lane = 0; lane < 64; ++lane) lanes += (unsigned)(t->lanes >> lane & 1);
    if (NPUGEN_BEAT_BYTES <= 64 && lanes <= NPUGEN_BEAT_BYTES / 2) {
        blame(b, lanes > 1 ? "only channels" : "only channel");
        for (unsigned lane = 0; lane < 64 && said < 8; ++lane) {
            if (!(t->lanes >> lane & 1)) continue;
            blame(b, said++ ? ", " : " ");
            blame_number(b, lane);
        }
        blame(b, " of each block, ");
    }
    if (!(t->bits & (t->bits - 1))) {
        unsigned bit = 0;
        while (!(t->bits >> bit & 1)) ++bit;
        blame(b, "only bit ");
        blame_number(b, bit);
        blame(b, ", ");
    }
    if (trial->cols > 1 && t->columns != 3) blame(b, t->columns == 1 ? "only even columns, " : "only odd columns, ");
}

static int judge(bench *b, const npugen_trial *trial, const uint8_t *last, const tally *t) {
    const wanted w = {trial->expected, key_of(trial, RUNS)};
    unsigned differ = t->bad < RUNS;
    if (!t->bad) {
        say(b, trial->text);
        say(b, ": ");
        say_number(b, trial->expected_size);
        say(b, " bytes right in 3 runs");
        return 1;
    }
    say_wrong(b, t->wrong, trial->expected_size, t->first, t->found, t->expected);
    say(b, " (block ");
    say_number(b, t->first / NPUGEN_BEAT_BYTES / ((size_t)trial->rows * trial->cols));
    say(b, ", row ");
    say_number(b, t->first / NPUGEN_BEAT_BYTES / trial->cols % trial->rows);
    say(b, ", column ");
    say_number(b, t->first / NPUGEN_BEAT_BYTES % trial->cols);
    say(b, ", channel ");
    say_number(b, t->first % NPUGEN_BEAT_BYTES);
    say(b, "), in ");
    say_number(b, t->bad);
    say(b, " of 3 runs");
    if (t->as_before)
        return fail(b,
                    "memory is as the host had left it: its cache is not invalidated before it reads, or the machine's "
                    "writes do not arrive",
                    "check that the back end invalidates the cache, and the memory port's write channels");
    if (t->as_earlier)
        return fail(b, "the machine read what was there before: the host's cache is not written back",
                    "check that the back end flushes the cache");
    /* What the last run left is still there. */
    if (t->bad == RUNS && trial->source >= 0) {
        blame(b, "of the machine's writes, ");
        if (blame_pattern(b, &w, last, trial->expected_size)) return fail(b, "", PORT);
        b->finding.wrong[0] = '\0';
    }
    for (unsigned run = 1; run < RUNS; ++run) differ |= t->errors[run] != t->errors[0];
    if (differ)
        return fail(b,
                    "errors differ between runs: bits flip now and then: the clock is too fast for the design as it is "
                    "placed, or for the memory",
                    SLOWER);
    blame_place(b, trial, t);
    return fail(b, trial->source >= 0 ? "the same in each run: the load engine, the input buffer or the store engine"
                                      : "the same in each run: this engine's logic, a block of memory or a multiplier",
                SLOWER);
}

static int check_engine(bench *b, const npugen_trial *trial) {
    const size_t before = (size_t)trial->write_start * NPUGEN_BEAT_BYTES;
    const npugen_image image = {
        trial->name, trial->code, trial->data, trial->code_size, trial->data_size < before ? trial->data_size : before,
        trial->data_beats, trial->write_start, NULL, NULL, 0, 0, NULL, NULL};
    const size_t output = (size_t)trial->output * NPUGEN_BEAT_BYTES;
    tally t = {0};
    npugen_program program;
    npugen_status status = npugen_load(&b->device, &program, &image, 1);
    int ok;
    if (status != NPUGEN_OK) return fail_status(b, status);
    t.as_before = t.as_earlier = 1;
    status = run_trial(b, trial, &program, &t);
    ok = status == NPUGEN_OK ? judge(b, trial, program.regions[0].data + output, &t) : blame_outcome(b, status);
    (void)npugen_unload(&b->device, &program);
    return ok;
}

/* -- the ladder ---------------------------------------------------------------------------------------------------- */

static const struct check {
    const char *name;
    int (*run)(bench *b);
} ladder[] = {{"identity", check_identity}, {"rest", check_rest},   {"registers", check_registers},
              {"memory", check_memory},     {"fetch", check_fetch}, {"interrupt", check_interrupt}};

static void begin(bench *b, const char *check) {
    memset(&b->finding, 0, sizeof b->finding);
    b->finding.check = check;
    b->finding.next = "";
}

static int end(bench *b, int ok) {
    b->finding.ok = ok;
    b->doctor->report(b->doctor->context, &b->finding);
    return ok;
}

int npugen_examine(const npugen_doctor *doctor) {
    bench b;
    memset(&b, 0, sizeof b);
    b.doctor = doctor;
    for (unsigned number = 0; number < sizeof ladder / sizeof *ladder; ++number) {
        begin(&b, ladder[number].name);
        if (!end(&b, ladder[number].run(&b))) return 0;
    }
    for (unsigned number = 0; number < doctor->trial_count; ++number) {
        begin(&b, doctor->trials[number].name);
        if (!end(&b, check_engine(&b, &doctor->trials[number]))) return 0;
    }
    return 1;
}

void npugen_put_finding(const npugen_finding *finding, void (*put)(void *context, const char *text, size_t size),
                        void *context) {
    const char *const parts[] = {finding->ok ? "ok     " : "FAILED ", finding->check, ": ", finding->found,
                                 "; most likely ", finding->wrong, "; next: ", finding->next};
    const unsigned count = finding->ok ? 4 : sizeof parts / sizeof *parts;
    for (unsigned part = 0; part < count; ++part) put(context, parts[part], strlen(parts[part]));
    put(context, "\n", 1);
}
