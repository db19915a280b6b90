/* UIO and u-dma-buf under the driver in C. See npugen_uio.h. */
#define _POSIX_C_SOURCE 200809L

#include "npugen_uio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define LINE 64u /* bytes of a cache line, at least as many as any processor here has */
#define PATH_SIZE 512
#define PAGE 0x1000u /* bytes of a page of registers */
#define POLL_NS 100000L /* between two looks at a device without interrupt */
#define TOO_LARGE "more than this process can address"

/* The files of u-dma-buf that say which bytes, in the order in which they are written. */
static const char *const controls[NPUGEN_UIO_CONTROLS] = {"sync_offset", "sync_size", "sync_direction",
                                                         "sync_for_device", "sync_for_cpu"};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A number in a file of sysfs; 0 where there is none, or one that 64 bits do not hold. */
static int number_in(const char *path, uint64_t *value) {
    char text[64], *end = text;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    errno = 0;
    if (fgets(text, sizeof text, file) && text[0] >= '0' && text[0] <= '9') *value = strtoull(text, &end, 0);
    fclose(file);
    return end != text && (*end == '\n' || !*end) && !errno;
}

/* A register; NULL in a page that this process does not have. The limits may be a device of their own. */
static volatile uint32_t *word_at(npugen_uio *uio, uint32_t address) {
    if (address < uio->registers_size) return &uio->registers[address / 4];
    if (uio->limits && address >= PAGE && address - PAGE < uio->limits_size) return &uio->limits[(address - PAGE) / 4];
    return NULL;
}

static uint32_t read32(void *context, uint32_t address) {
    volatile uint32_t *word = word_at(context, address);
    return word ? *word : 0;
}

static void write32(void *context, uint32_t address, uint32_t value) {
    volatile uint32_t *word = word_at(context, address);
    if (word) *word = value;
}

static npugen_status allocate(void *context, size_t size, size_t alignment, npugen_buffer *buffer) {
    return npugen_memory_take(&((npugen_uio *)context)->memory, size, alignment, buffer);
}

static void give_back(void *context, npugen_buffer *buffer) {
    npugen_memory_give(&((npugen_uio *)context)->memory, buffer);
}

static int write_number(const npugen_uio *uio, unsigned control, size_t value) {
    char text[32];
    const int size = snprintf(text, sizeof text, "%llu\n", (unsigned long long)value);
    return pwrite(uio->controls[control], text, (size_t)size, 0) == (ssize_t)size;
}

static npugen_status sync_range(npugen_uio *uio, const npugen_buffer *buffer, size_t offset, size_t size,
                                int to_device) {
    size_t first, end;
    int good;
    NPUGEN_BARRIER();
    if (uio->coherent || !size) return NPUGEN_OK;
    npugen_memory_lines(&uio->memory, buffer, offset, size, &first, &end);
    good = write_number(uio, 0, first) && write_number(uio, 1, end - first) && write_number(uio, 2, to_device ? 1 : 2)
        && write_number(uio, to_device ? 3 : 4, 1);
    return good ? NPUGEN_OK : NPUGEN_IO;
}

static npugen_status to_device(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    return sync_range(context, buffer, offset, size, 1);
}

static npugen_status to_host(void *context, const npugen_buffer *buffer, size_t offset, size_t size) {
    return sync_range(context, buffer, offset, size, 0);
}

static npugen_status wait_interrupt(void *context, uint32_t microseconds) {
    npugen_uio *uio = context;
    struct pollfd file = {uio->interrupt, POLLIN, 0};
    const uint32_t enable = 1;
    uint32_t count;
    /* The kernel masks it each time it comes. A node of the device tree that names none answers EIO. */
    if (uio->interrupt >= 0 && write(uio->interrupt, &enable, sizeof enable) != (ssize_t)sizeof enable) {
        if (errno != EIO) return NPUGEN_IO;
        uio->interrupt = -1;
    }
    if (uio->interrupt < 0) {
        const long wanted = microseconds < POLL_NS / 1000 ? (long)microseconds * 1000 : POLL_NS;
        const struct timespec pause = {0, wanted};
        nanosleep(&pause, NULL);
        return NPUGEN_OK;
    }
    if (poll(&file, 1, (int)(microseconds / 1000u) + 1) < 0) return errno == EINTR ? NPUGEN_OK : NPUGEN_IO;
    if ((file.revents & POLLIN) && read(uio->interrupt, &count, sizeof count) < 0) return NPUGEN_IO;
    return NPUGEN_OK;
}

static uint64_t now(void *context) {
    struct timespec time;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_nsec / 1000u;
}

static npugen_status failed(npugen_uio *uio, const char *what, const char *why) {
    snprintf(uio->message, sizeof uio->message, "%.120s: %.120s", what, why);
    npugen_uio_close(uio);
    return NPUGEN_IO;
}

/* What the device tree calls a UIO device. */
static int device_name(const char *sysfs, const char *entry, char *name, size_t size) {
    char path[PATH_SIZE];
    FILE *file;
    int found;
    snprintf(path, sizeof path, "%.200s/uio/%.64s/name", sysfs, entry);
    file = fopen(path, "r");
    if (!file) return 0;
    found = fgets(name, (int)size, file) != NULL;
    if (found) name[strcspn(name, "\n")] = '\0';
    fclose(file);
    return found;
}

/* The file of the UIO device that the device tree calls so: how many there are, the first of them in found. */
static unsigned find_device(const char *sysfs, const char *wanted, char *found, size_t size) {
    char path[PATH_SIZE], name[64];
    unsigned count = 0;
    struct dirent *entry;
    DIR *folder;
    snprintf(path, sizeof path, "%.200s/uio", sysfs);
    folder = opendir(path);
    while (folder && (entry = readdir(folder)) != NULL)
        if (device_name(sysfs, entry->d_name, name, sizeof name) && !strcmp(name, wanted) && ++count == 1)
            snprintf(found, size, "%.60s", entry->d_name);
    if (folder) closedir(folder);
    return count;
}

static npugen_status open_device(npugen_uio *uio, const char *dev, const char *sysfs, const char *wanted) {
    char path[PATH_SIZE], name[64];
    const char *base = base_name(wanted);
    uint64_t size = 0;
    void *mapped;
    snprintf(name, sizeof name, "%.60s", base);
    if (strncmp(base, "uio", 3) || base[3] < '0' || base[3] > '9') {
        const unsigned count = find_device(sysfs, wanted, name, sizeof name);
        if (count != 1) return failed(uio, wanted, count ? "several UIO devices are called so" : "no such UIO device");
    }
    snprintf(path, sizeof path, "%.200s/uio/%s/maps/map0/size", sysfs, name);
    if (!number_in(path, &size) || !size) return failed(uio, path, "no registers");
    if (size > SIZE_MAX) return failed(uio, path, TOO_LARGE);
    uio->registers_size = (size_t)size;
    snprintf(path, sizeof path, "%.200s/%s", dev, name);
    uio->device = uio->interrupt = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
    if (uio->device < 0) return failed(uio, path, strerror(errno));
    if (flock(uio->device, LOCK_EX | LOCK_NB)) return failed(uio, path, "another process uses the device");
    mapped = mmap(NULL, uio->registers_size, PROT_READ | PROT_WRITE, MAP_SHARED, uio->device, 0);
    if (mapped == MAP_FAILED) return failed(uio, path, strerror(errno));
    uio->registers = mapped;
    return NPUGEN_OK;
}

/* The page of the limits, called as the device and "-limits", if there is one that this process may open. */
static npugen_status open_limits(npugen_uio *uio, const char *dev, const char *sysfs, const char *device) {
    char path[PATH_SIZE], wanted[80], name[64];
    uint64_t size = 0;
    void *mapped;
    /* A device that is named by its file is called otherwise in the device tree. */
    snprintf(wanted, sizeof wanted, "%.64s-limits",
             device_name(sysfs, base_name(device), name, sizeof name) ? name : base_name(device));
    if (find_device(sysfs, wanted, name, sizeof name) != 1) return NPUGEN_OK;
    snprintf(path, sizeof path, "%.200s/%s", dev, name);
    uio->limits_file = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
    if (uio->limits_file < 0) return NPUGEN_OK;
    if (flock(uio->limits_file, LOCK_EX | LOCK_NB)) return failed(uio, path, "another process uses the limits");
    snprintf(path, sizeof path, "%.200s/uio/%s/maps/map0/size", sysfs, name);
    if (!number_in(path, &size) || !size || size > SIZE_MAX) return failed(uio, path, "no registers");
    mapped = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, uio->limits_file, 0);
    if (mapped == MAP_FAILED) return failed(uio, path, strerror(errno));
    uio->limits = mapped;
    uio->limits_size = (size_t)size;
    return NPUGEN_OK;
}

/* Its files of sysfs: address, size, whether caches need care, and those that care for them. */
static npugen_status read_buffer(npugen_uio *uio, const char *sysfs, const char *name) {
    char path[PATH_SIZE], folder[300];
    uint64_t size = 0, coherent = 0;
    snprintf(folder, sizeof folder, "%.200s/u-dma-buf/%.60s", sysfs, name);
    if (access(folder, R_OK)) snprintf(folder, sizeof folder, "%.200s/udmabuf/%.60s", sysfs, name);
    snprintf(path, sizeof path, "%s/size", folder);
    if (!number_in(path, &size) || !size) return failed(uio, path, "no such u-dma-buf; load its kernel module");
    if (size > SIZE_MAX) return failed(uio, path, TOO_LARGE);
    uio->memory.size = (size_t)size;
    snprintf(path, sizeof path, "%s/phys_addr", folder);
    if (!number_in(path, &uio->memory.address)) return failed(uio, path, "cannot be read");
    if (size - 1 > UINT64_MAX - uio->memory.address) return failed(uio, path, "memory that goes beyond all addresses");
    snprintf(path, sizeof path, "%s/dma_coherent", folder);
    uio->coherent = number_in(path, &coherent) && coherent;
    for (unsigned control = 0; control < NPUGEN_UIO_CONTROLS && !uio->coherent; ++control) {
        snprintf(path, sizeof path, "%s/%s", folder, controls[control]);
        uio->controls[control] = open(path, O_WRONLY | O_CLOEXEC);
        if (uio->controls[control] < 0) return failed(uio, path, strerror(errno));
    }
    return NPUGEN_OK;
}

static npugen_status open_buffer(npugen_uio *uio, const char *dev, const char *sysfs, const char *name) {
    char path[PATH_SIZE];
    void *mapped;
    const npugen_status status = read_buffer(uio, sysfs, name);
    if (status != NPUGEN_OK) return status;
    snprintf(path, sizeof path, "%.200s/%.60s", dev, name);
    uio->buffer = open(path, O_RDWR | O_CLOEXEC); /* without O_SYNC: cached */
    if (uio->buffer < 0) return failed(uio, path, strerror(errno));
    if (flock(uio->buffer, LOCK_EX | LOCK_NB)) return failed(uio, path, "another process uses the memory");
    mapped = mmap(NULL, uio->memory.size, PROT_READ | PROT_WRITE, MAP_SHARED, uio->buffer, 0);
    if (mapped == MAP_FAILED) return failed(uio, path, strerror(errno));
    uio->memory.data = mapped;
    return NPUGEN_OK;
}

static const char *or_usual(const char *given, const char *usual) { return given ? given : usual; }

npugen_status npugen_uio_open(npugen_uio *uio, npugen_backend *backend, const npugen_uio_names *names) {
    static const npugen_uio_names usual = {NULL, NULL, NULL, NULL};
    const char *dev, *sysfs;
    npugen_status status;
    if (!names) names = &usual;
    dev = or_usual(names->dev, "/dev");
    sysfs = or_usual(names->sysfs, "/sys/class");
    memset(uio, 0, sizeof *uio);
    uio->memory.line = LINE;
    uio->device = uio->interrupt = uio->buffer = uio->limits_file = -1;
    for (unsigned control = 0; control < NPUGEN_UIO_CONTROLS; ++control) uio->controls[control] = -1;
    status = open_device(uio, dev, sysfs, or_usual(names->device, "npu"));
    if (status == NPUGEN_OK) status = open_limits(uio, dev, sysfs, or_usual(names->device, "npu"));
    if (status == NPUGEN_OK) status = open_buffer(uio, dev, sysfs, base_name(or_usual(names->buffer, "udmabuf0")));
    if (status != NPUGEN_OK) return status;
    *backend = (npugen_backend){uio, read32, write32, allocate, give_back, to_device, to_host,
                wait_interrupt, now, NULL};
    return NPUGEN_OK;
}

void npugen_uio_close(npugen_uio *uio) {
    if (uio->registers) munmap((void *)uio->registers, uio->registers_size);
    if (uio->limits) munmap((void *)uio->limits, uio->limits_size);
    if (uio->memory.data) munmap(uio->memory.data, uio->memory.size);
    for (unsigned control = 0; control < NPUGEN_UIO_CONTROLS; ++control) {
        if (uio->controls[control] >= 0) close(uio->controls[control]);
        uio->controls[control] = -1;
    }
    if (uio->device >= 0) close(uio->device);
    if (uio->limits_file >= 0) close(uio->limits_file);
    if (uio->buffer >= 0) close(uio->buffer);
    uio->registers = NULL;
    uio->limits = NULL;
    uio->memory.data = NULL;
    uio->device = uio->interrupt = uio->buffer = uio->limits_file = -1;
}
