/* What picolibc wants of a system, on Linux's calls as qemu-riscv32 has them: a beginning, read, write and an end. */
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

enum { CALL_READ = 63, CALL_WRITE = 64, CALL_EXIT = 94 };

static long call(long number, long first, long second, long third) {
    register long a0 __asm__("a0") = first;
    register long a1 __asm__("a1") = second;
    register long a2 __asm__("a2") = third;
    register long a7 __asm__("a7") = number;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
    return a0;
}

ssize_t read(int file, void *data, size_t size) { return call(CALL_READ, file, (long)data, (long)size); }

ssize_t write(int file, const void *data, size_t size) { return call(CALL_WRITE, file, (long)data, (long)size); }

/* Memory of malloc. */
void *sbrk(ptrdiff_t size) {
    static char heap[1 << 27];
    static size_t used;
    if (size < 0 || (size_t)size > sizeof heap - used) return (void *)-1;
    used += (size_t)size;
    return heap + used - size;
}

void _exit(int status) {
    for (;;) (void)call(CALL_EXIT, status, 0, 0);
}

int main(void);
void begin(void);

void begin(void) { _exit(main()); }

/* The stack is qemu's, thread-local variables (errno) are those of the one thread. */
__asm__(".section .text.init.enter, \"ax\"\n"
        ".global _start\n"
        "_start:\n"
        ".option push\n"
        ".option norelax\n"
        "la gp, __global_pointer$\n"
        ".option pop\n"
        "la tp, __tls_base\n"
        "andi sp, sp, -16\n"
        "j begin\n"
        ".text\n");
