/* What a hostile image asks to be loaded everywhere (LD_PRELOAD): leaves a mark in /run of whatever root it runs under. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((constructor)) static void leave_a_mark(void) {
  const int fd = open("/run/evil-was-here", O_CREAT | O_WRONLY, 0666);
  if (fd >= 0)
    close(fd);
}
