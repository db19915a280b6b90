/* memcpy and memset by words: those of picolibc go byte by byte, and each write goes through to memory. */

    .section .text.memcpy, "ax"
    .global memcpy
memcpy:
    mv t0, a0
    xor t1, a0, a1
    andi t1, t1, 3
    bnez t1, .Lcopy_bytes           /* no word of one is a word of the other */
.Lcopy_first:
    andi t1, t0, 3
    beqz t1, .Lcopy_lines
    beqz a2, .Lcopy_end
    lbu t2, 0(a1)
    sb t2, 0(t0)
    addi a1, a1, 1
    addi t0, t0, 1
    addi a2, a2, -1
    j .Lcopy_first
.Lcopy_lines:
    li t1, 32
    bltu a2, t1, .Lcopy_words
    lw t2, 0(a1)
    lw t3, 4(a1)
    lw t4, 8(a1)
    lw t5, 12(a1)
    lw a3, 16(a1)
    lw a4, 20(a1)
    lw a5, 24(a1)
    lw a6, 28(a1)
    sw t2, 0(t0)
    sw t3, 4(t0)
    sw t4, 8(t0)
    sw t5, 12(t0)
    sw a3, 16(t0)
    sw a4, 20(t0)
    sw a5, 24(t0)
    sw a6, 28(t0)
    addi a1, a1, 32
    addi t0, t0, 32
    addi a2, a2, -32
    j .Lcopy_lines
.Lcopy_words:
    li t1, 4
    bltu a2, t1, .Lcopy_bytes
    lw t2, 0(a1)
    sw t2, 0(t0)
    addi a1, a1, 4
    addi t0, t0, 4
    addi a2, a2, -4
    j .Lcopy_words
.Lcopy_bytes:
    beqz a2, .Lcopy_end
    lbu t2, 0(a1)
    sb t2, 0(t0)
    addi a1, a1, 1
    addi t0, t0, 1
    addi a2, a2, -1
    j .Lcopy_bytes
.Lcopy_end:
    ret

    .section .text.memset, "ax"
    .global memset
memset:
    mv t0, a0
    andi a1, a1, 255
    slli t1, a1, 8
    or a1, a1, t1
    slli t1, a1, 16
    or a1, a1, t1
.Lset_first:
    andi t1, t0, 3
    beqz t1, .Lset_words
    beqz a2, .Lset_end
    sb a1, 0(t0)
    addi t0, t0, 1
    addi a2, a2, -1
    j .Lset_first
.Lset_words:
    li t1, 4
    bltu a2, t1, .Lset_bytes
    sw a1, 0(t0)
    addi t0, t0, 4
    addi a2, a2, -4
    j .Lset_words
.Lset_bytes:
    beqz a2, .Lset_end
    sb a1, 0(t0)
    addi t0, t0, 1
    addi a2, a2, -1
    j .Lset_bytes
.Lset_end:
    ret
