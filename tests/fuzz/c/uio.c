/* The back end for Linux under libFuzzer: files of sysfs that say anything, or are not there.
 *
 * Files are in a folder of its own, which stands for /sys/class and /dev; a case writes some of them anew. What is opened
 * is used, and closed again: no file stays open.
 */
#define _POSIX_C_SOURCE 200809L

#include "case.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npugen_uio.h"

#define ROOM 512
#define PAGES 8192

static unsigned long opened, refused; /* of this process */
static char folder[64];

static uint32_t anything(void) { return word(); }

static const char *const folders[] = {"", "/uio", "/uio/uio0", "/uio/uio0/maps", "/uio/uio0/maps/map0", "/uio/uio1",
                                      "/uio/uio1/maps", "/uio/uio1/maps/map0", "/u-dma-buf", "/u-dma-buf/udmabuf0"};
/* Their usual content; of the last ones, devices, it is as long as memory. */
static const struct file {
    const char *name, *text;
} files[] = {
    {"/uio/uio0/name", "npu\n"}, {"/uio/uio1/name", "npu-limits\n"},
    {"/uio/uio0/maps/map0/size", "0x1000\n"}, {"/uio/uio1/maps/map0/size", "0x1000\n"},
    {"/u-dma-buf/udmabuf0/size", "8192\n"}, {"/u-dma-buf/udmabuf0/phys_addr", "0x10000000\n"},
    {"/u-dma-buf/udmabuf0/dma_coherent", "0\n"}, {"/u-dma-buf/udmabuf0/sync_offset", ""},
    {"/u-dma-buf/udmabuf0/sync_size", ""}, {"/u-dma-buf/udmabuf0/sync_direction", ""},
    {"/u-dma-buf/udmabuf0/sync_for_device", ""}, {"/u-dma-buf/udmabuf0/sync_for_cpu", ""},
    {"/uio0", NULL}, {"/uio1", NULL}, {"/udmabuf0", NULL}};
#define FILES (sizeof files / sizeof *files)

static void write_file(const char *name, const void *content, size_t size) {
    char path[ROOM];
    int file;
    snprintf(path, sizeof path, "%s%s", folder, name);
    file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || (content ? write(file, content, size) != (ssize_t)size : ftruncate(file, (off_t)size)))
        stop("a file cannot be written");
    close(file);
}

static void usual(const struct file *file) {
    write_file(file->name, file->text, file->text ? strlen(file->text) : PAGES);
}

/* Numbers of all kinds, or bytes. */
static size_t content(char *text, size_t room) {
    static const char *const kinds[] = {"%u", "0x%x\n", "%u\n", "-%u\n", "0%o\n", "%u %%u", "0x%x99999999999999999"};
    const uint32_t kind = byte() % 12, value = byte() % 2 ? byte() * 4096u : anything();
    size_t size = 0;
    if (kind < sizeof kinds / sizeof *kinds) {
        size = (size_t)snprintf(text, room, kinds[kind], value);
        return size < room ? size : room;
    }
    if (kind == 7) return (size_t)snprintf(text, room, "npu%s\n", byte() % 2 ? "-limits" : "");
    if (kind == 8) { /* longer than any line that is wanted */
        memset(text, byte() % 2 ? '9' : 'a', room);
        return room;
    }
    while (size < room && left) text[size++] = (char)byte();
    return size;
}

static void change(unsigned number, int *there) {
    char text[300];
    char path[ROOM];
    if (byte() % 4 == 0) {
        snprintf(path, sizeof path, "%s%s", folder, files[number].name);
        unlink(path);
    } else if (files[number].text) {
        write_file(files[number].name, text, content(text, sizeof text));
    }
    *there = 0;
}

/* A page that a mapping has and its file has not ends a process; a device's does not. */
static int lacking(uint32_t address, size_t mapped) { return address >= PAGES && address < mapped; }

static void use(npugen_uio *uio, npugen_backend *backend) {
    npugen_buffer buffers[3];
    const uint32_t reach[] = {0, (uint32_t)uio->registers_size & ~3u, 0x1000, 0x1FFC, UINT32_MAX - 3u, anything() & ~3u};
    unsigned count = 0;
    for (unsigned number = 0; number < sizeof reach / sizeof *reach; ++number)
        if (!lacking(reach[number], uio->registers_size) && !lacking(reach[number] - 0x1000u, uio->limits_size))
            (void)backend->read32(uio, reach[number]);
    for (; count < 3; ++count)
        if (backend->allocate(uio, byte() % 4 ? byte() * 16u : anything(), (size_t)1 << byte() % 14, &buffers[count]))
            break;
    for (unsigned number = 0; number < count; ++number) {
        const npugen_buffer *one = &buffers[number];
        const size_t begin = (size_t)(one->data - uio->memory.data);
        if (begin > uio->memory.size || one->size > uio->memory.size - begin) stop("a block beyond the memory");
        for (unsigned other = 0; other < number; ++other)
            if (one->data < buffers[other].data + buffers[other].size && buffers[other].data < one->data + one->size)
                stop("two blocks share bytes");
        if (begin + one->size <= PAGES && one->size) {
            memset(one->data, 1, one->size);
            (void)backend->to_device(uio, one, 0, one->size);
            (void)backend->to_host(uio, one, byte() % one->size, 1);
        }
    }
    while (count) backend->free(uio, &buffers[--count]);
    if (uio->memory.block_count) stop("memory is not given back");
}

static void clear(void) {
    char path[ROOM];
    for (size_t number = 0; number < FILES; ++number) {
        snprintf(path, sizeof path, "%s%s", folder, files[number].name);
        unlink(path);
    }
    for (size_t number = sizeof folders / sizeof *folders; number-- > 0;) {
        snprintf(path, sizeof path, "%s%s", folder, folders[number]);
        rmdir(path);
    }
    printf("%lu devices opened, %lu refused\n", opened, refused);
}

static void begin(void) {
    char path[ROOM];
    snprintf(folder, sizeof folder, "%.40s/npugen-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder)) stop("no folder");
    for (size_t number = 1; number < sizeof folders / sizeof *folders; ++number) {
        snprintf(path, sizeof path, "%s%s", folder, folders[number]);
        if (mkdir(path, 0700)) stop("no folder");
    }
    atexit(clear);
}

/* A bit for each of the first ones. */
static uint32_t open_files(void) {
    uint32_t found = 0;
    for (int file = 0; file < 32; ++file) found |= (uint32_t)(fcntl(file, F_GETFD) >= 0) << file;
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int there[FILES];
    static char device[300];
    npugen_uio_names names = {NULL, NULL, folder, folder};
    npugen_backend backend;
    npugen_uio uio;
    const uint32_t before = open_files();
    if (!*folder) begin();
    bytes = data;
    left = size;
    for (size_t number = 0; number < FILES; ++number)
        if (!there[number]) {
            usual(&files[number]);
            there[number] = 1;
        }
    for (unsigned changes = byte() % 4; changes > 0; --changes) {
        const unsigned number = byte() % FILES;
        change(number, &there[number]);
    }
    if (byte() % 8 == 0) names.device = byte() % 2 ? "uio0" : "uio1";
    if (byte() % 16 == 0) {
        device[content(device, sizeof device - 1)] = '\0';
        if (byte() % 2) names.device = device;
        else names.buffer = device;
    }
    if (npugen_uio_open(&uio, &backend, &names) == NPUGEN_OK) {
        ++opened;
        use(&uio, &backend);
        npugen_uio_close(&uio);
    } else {
        ++refused;
        if (!memchr(uio.message, 0, sizeof uio.message) || !*uio.message) stop("nothing is said");
    }
    if (open_files() != before) stop("a file stays open");
    return 0;
}
