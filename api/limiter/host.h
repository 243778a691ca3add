/* The host page: what the host tells the limiter inside one container. An ABI between separately upgraded programs.
 *
 * Written by the host only (wrapper at create, device plugin later); the container sees it through a read-only mount at
 * VGPU_HOST_PATH. Written in place, never renamed, so that a mapping stays valid while the pod runs and is resized.
 *
 * Two copies and one word: the writer fills the copy that `current` does not name, then stores `current`. A reader loads
 * `current` (acquire), checks the named copy's generation and checksum, and reads `current` again. A copy that does not check is
 * never used: the reader tries again, and with no good copy treats every limit as zero.
 *
 * Layout is append-only: a reader accepts a newer `version` whose `size` is at least what it knows, and refuses an older magic.
 */
#ifndef VGPU_API_LIMITER_HOST_H
#define VGPU_API_LIMITER_HOST_H

/* Plain C: the linter's C++ rules do not apply. */
/* NOLINTBEGIN(modernize-*,readability-*,clang-analyzer-core.uninitialized.Assign): a structure zeroed as a whole is read by bytes */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define VGPU_LAYOUT_ASSERT(condition) static_assert(condition, #condition)
#else
#define VGPU_LAYOUT_ASSERT(condition) _Static_assert(condition, #condition)
#endif

/* The private directory, as the container sees it. No other mount may lie at or below it. */
#define VGPU_PRIVATE_DIRECTORY "/usr/lib/vgpu"
#define VGPU_HOST_PATH VGPU_PRIVATE_DIRECTORY "/host"
#define VGPU_USAGE_PATH VGPU_PRIVATE_DIRECTORY "/usage"
/* Slot n (0..7) of the real driver: VGPU_PRIVATE_DIRECTORY "/driver/cuda.<n>" and "/driver/nvml.<n>". */
#define VGPU_DRIVER_SLOTS 8

#define VGPU_HOST_MAGIC "VGPUHOST"
#define VGPU_HOST_VERSION 1u
#define VGPU_MAX_DEVICES 16u
#define VGPU_UUID_SIZE 48u /* "GPU-" or "MIG-" and 36 characters, NUL-terminated, zero-filled */

enum vgpu_policy {
  VGPU_POLICY_OFF = 0,     /* compute is not limited */
  VGPU_POLICY_DEFAULT = 1, /* limited while others want the card */
  VGPU_POLICY_FORCE = 2    /* always limited */
};

enum vgpu_on_limit { VGPU_ON_LIMIT_ERROR = 0, VGPU_ON_LIMIT_KILL = 1 };

enum vgpu_device_flags {
  VGPU_DEVICE_HOLD = 1u /* no new memory until the ledger has been rebuilt */
};

struct vgpu_host_device {
  char uuid[VGPU_UUID_SIZE];
  uint64_t
      memory_limit; /* bytes, gross: everything the driver holds for the container on this card */
  uint64_t
      context_bytes; /* bytes charged for one context on this card, measured by the host; 0 = unknown */
  uint64_t
      observed_bytes; /* bytes the driver holds for the whole container, by NVML; 0 = not observed */
  uint32_t cores;     /* per cent of the card's compute time, 0 = unlimited */
  uint32_t
      dilation; /* 16.16 fixed point: measured GPU time / time the limiter counted; 0x10000 = equal */
  uint32_t flags; /* enum vgpu_device_flags */
  uint32_t reserved;
};

struct vgpu_host_copy {
  uint64_t generation;            /* of this copy; equals current >> 1 when it is the current one */
  uint64_t allocation_generation; /* "gen" of the signed allocation it was made from */
  uint32_t policy;                /* enum vgpu_policy */
  uint32_t priority;              /* 0 high, 1 low */
  uint32_t on_limit;              /* enum vgpu_on_limit */
  uint32_t oversubscribe;         /* 0 or 1 */
  uint32_t device_count;          /* 0..VGPU_MAX_DEVICES */
  uint32_t reserved;
  struct vgpu_host_device devices[VGPU_MAX_DEVICES];
  uint64_t checksum; /* vgpu_checksum of every byte of this copy before it */
};

struct vgpu_host_page {
  char magic[8]; /* VGPU_HOST_MAGIC, no NUL */
  uint32_t version;
  uint32_t size;    /* bytes of this structure as the writer knows it */
  uint64_t current; /* atomic: generation << 1 | index of the copy to read */
  uint64_t
      heartbeat; /* atomic: CLOCK_BOOTTIME in ns of the last observation; 0 = nobody observes */
  uint64_t priority_epoch; /* atomic: odd = lower priorities yield */
  uint64_t reserved[3];
  struct vgpu_host_copy copies[2];
};

VGPU_LAYOUT_ASSERT(sizeof(struct vgpu_host_device) == 88);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_device, memory_limit) == 48);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_device, context_bytes) == 56);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_device, observed_bytes) == 64);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_device, cores) == 72);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_device, dilation) == 76);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_device, flags) == 80);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_copy, allocation_generation) == 8);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_copy, policy) == 16);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_copy, device_count) == 32);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_copy, devices) == 40);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_copy, checksum) == 40 + 16 * 88);
VGPU_LAYOUT_ASSERT(sizeof(struct vgpu_host_copy) == 48 + 16 * 88);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_page, current) == 16);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_page, heartbeat) == 24);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_page, priority_epoch) == 32);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_host_page, copies) == 64);
VGPU_LAYOUT_ASSERT(sizeof(struct vgpu_host_page) == 64 + 2 * (48 + 16 * 88));

/* FNV-1a, 64 bit. It tells a torn copy from a whole one; it is no protection against anybody. */
static inline uint64_t vgpu_checksum(const void* bytes, size_t size) {
  const unsigned char* p = (const unsigned char*)bytes;
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size; ++i) {
    hash ^= p[i];
    hash *= UINT64_C(0x100000001b3);
  }
  return hash;
}

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*,readability-*,clang-analyzer-core.uninitialized.Assign) */

#endif
