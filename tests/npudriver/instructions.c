/* A plugin of qemu that counts how often each block of instructions ran: lines "address instructions times".
 *
 * The prototypes are those of version 1 of the interface, of which distributions have no header.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qemu_plugin_tb;
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
extern uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *ptr, uint64_t imm);
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*cb)(uint64_t, struct qemu_plugin_tb *));
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*cb)(uint64_t, void *), void *userdata);
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);

int qemu_plugin_version = 1;

/* A block that is translated once more is another one here. */
struct block {
    struct block *next;
    uint64_t address, instructions, times;
};

static struct block *blocks;
static char path[4096];

static void translated(uint64_t id, struct qemu_plugin_tb *tb) {
    struct block *block = calloc(1, sizeof *block);
    (void)id;
    if (!block) abort();
    *block = (struct block){blocks, qemu_plugin_tb_vaddr(tb), qemu_plugin_tb_n_insns(tb), 0};
    blocks = block;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, 0, &block->times, 1);
}

static void ended(uint64_t id, void *data) {
    FILE *file = fopen(path, "w");
    (void)id;
    (void)data;
    if (!file) abort();
    for (const struct block *block = blocks; block; block = block->next)
        fprintf(file, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", block->address, block->instructions, block->times);
    fclose(file);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
    (void)info;
    if (argc != 1 || strncmp(argv[0], "to=", 3) || strlen(argv[0] + 3) >= sizeof path) return 1;
    strcpy(path, argv[0] + 3);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
