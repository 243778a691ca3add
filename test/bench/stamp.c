/* Stands where the next runtime would: its first instruction reads the clock, its second tells the
 * benchmark. No libc, so that nothing of its own start-up is counted. The descriptor is inherited.
 */
#define STAMP_DESCRIPTOR 200
#define CLOCK_MONOTONIC_ID 1

struct Time {
  long seconds;
  long nanoseconds;
};

#if defined(__x86_64__)
static long call(long number, long a, long b, long c) {
  long result = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}
enum { kWrite = 1, kExit = 60, kClockGettime = 228 };
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
enum { kWrite = 64, kExit = 93, kClockGettime = 113 };
#endif

void _start(void) {
  struct Time now;
  call(kClockGettime, CLOCK_MONOTONIC_ID, (long)&now, 0);
  call(kWrite, STAMP_DESCRIPTOR, (long)&now, sizeof now);
  call(kExit, 0, 0, 0);
}
