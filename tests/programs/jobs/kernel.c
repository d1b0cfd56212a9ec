// A kernel for the emulated machine. It fills 192 MiB with numbers, exchanges them in a scattered order,
// writes sums to the first serial port, and ends the machine with the exit status 33.
typedef unsigned int u32;

// A loader identifies the kernel by this header (Multiboot), which must be in the first 8 KiB of
// the file.
__asm__(".text\n.balign 4\n.long 0x1BADB002, 0, -0x1BADB002\n");

static void out(unsigned short port, unsigned char value) {
  __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static void show(u32 value) {
  for (int shift = 28; shift >= 0; shift -= 4) { out(0x3F8, "0123456789abcdef"[value >> shift & 15]); }
  out(0x3F8, '\n');
}

#define WORDS (192u << 18)

void start(void) {
  volatile u32* words = (volatile u32*)(16u << 20);
  u32 state = 7, sum = 0;
  for (u32 i = 0; i < WORDS; i += 4) { words[i] = state = state * 1664525u + 1013904223u; }
  for (u32 i = 0; i < WORDS; i += 16) { sum = sum * 31 + words[i]; }
  show(sum);
  for (u32 i = 0; i < 20000; ++i) {  // Visits pages in a scattered order.
    volatile u32* from = words + i * 7919u % (WORDS / 1024) * 1024;
    volatile u32* to = words + i * 104729u % (WORDS / 1024) * 1024;
    for (u32 j = 0; j < 1024; j += 64) { to[j] ^= from[1020 - j] + i; }
  }
  sum = 0;
  for (u32 i = 0; i < WORDS; i += 16) { sum = sum * 31 + words[i]; }
  show(sum);
  __asm__ volatile("outl %0, %1" : : "a"(16u), "Nd"((unsigned short)0xF4));
  for (;;) { __asm__ volatile("hlt"); }
}
