/* The usage file: the ledger that all processes of one container share. Writable by the tenant, so hostile: a host process reads
 * it with pread through one bounds-checked decoder and never maps it; nothing in it is believed against NVML.
 *
 * Made by the wrapper at create with VGPU_USAGE_SIZE bytes, magic, version and size set and the rest zero; mode 0666; the
 * container sees it at VGPU_USAGE_PATH. Device i is device i of the host page.
 *
 * Rules (all words are accessed atomically):
 *  - charge:   in_flight++; compare-and-add on devices[i].used, only if the sum stays within the limit; slot.used[i] += n; in_flight--.
 *  - uncharge: in_flight++; slot.used[i] -= n; devices[i].used -= n; in_flight--.
 *  - so a process that dies in between leaves devices[i].used too high, never too low.
 *  - reap: take the reap lock, set the frozen bit of every device, wait until no live slot is in flight, clear the slots of the dead, store
 *    the sum of the slots, which clears the frozen bit.
 *  - a slot is owned by whoever holds an open-file-description lock on byte VGPU_USAGE_LOCK_OFFSET + slot; it never moves.
 *  - a dead slot's bytes stay charged for VGPU_USAGE_GRACE_NS after its death was first seen: the driver frees late.
 */
#ifndef VGPU_API_LIMITER_USAGE_H
#define VGPU_API_LIMITER_USAGE_H

#include "api/limiter/host.h"

/* Plain C: the linter's C++ rules do not apply. */
/* NOLINTBEGIN(modernize-*,readability-*) */

#ifdef __cplusplus
extern "C" {
#endif

#define VGPU_USAGE_MAGIC "VGPUUSED"
#define VGPU_USAGE_VERSION 1u
#define VGPU_USAGE_SLOTS 1024u
#define VGPU_USAGE_FROZEN (UINT64_C(1) << 63)
#define VGPU_USAGE_GRACE_NS UINT64_C(2000000000)
/* Lock bytes lie beyond the data, so that they never meet a lock somebody else takes on it. */
#define VGPU_USAGE_REAP_LOCK_OFFSET (INT64_C(1) << 40)
#define VGPU_USAGE_LOCK_OFFSET ((INT64_C(1) << 40) + 1)

enum vgpu_slot_state {
  VGPU_SLOT_FREE = 0,
  VGPU_SLOT_USED = 1, /* by its owner, or by a dead one when the lock is free */
  VGPU_SLOT_DEAD = 2  /* death seen at `dead_since`, bytes still charged */
};

struct vgpu_usage_device {
  uint64_t used;    /* bytes charged to the container; VGPU_USAGE_FROZEN while being recounted */
  uint64_t refused; /* how often a charge was refused */
  uint64_t reserved[6];
};

struct vgpu_usage_slot {
  uint32_t state;         /* enum vgpu_slot_state */
  uint32_t pid;           /* as the process sees itself */
  uint64_t pid_namespace; /* inode of /proc/self/ns/pid, 0 = unknown */
  uint64_t started;       /* CLOCK_BOOTTIME in ns at registration */
  uint64_t dead_since;    /* CLOCK_BOOTTIME in ns */
  uint32_t in_flight;     /* threads between the two halves of a charge */
  uint32_t reserved;
  uint64_t used[VGPU_MAX_DEVICES]; /* bytes */
  uint64_t padding[3];
};

struct vgpu_usage_file {
  char magic[8]; /* VGPU_USAGE_MAGIC, no NUL */
  uint32_t version;
  uint32_t size; /* bytes of the file */
  uint32_t slot_count;
  uint32_t slot_size;
  uint64_t reserved[5];
  struct vgpu_usage_device devices[VGPU_MAX_DEVICES];
  struct vgpu_usage_slot slots[VGPU_USAGE_SLOTS];
};

#define VGPU_USAGE_SIZE ((uint32_t)sizeof(struct vgpu_usage_file))

VGPU_LAYOUT_ASSERT(sizeof(struct vgpu_usage_device) == 64);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_slot, pid_namespace) == 8);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_slot, started) == 16);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_slot, dead_since) == 24);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_slot, in_flight) == 32);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_slot, used) == 40);
VGPU_LAYOUT_ASSERT(sizeof(struct vgpu_usage_slot) == 192);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_file, devices) == 64);
VGPU_LAYOUT_ASSERT(offsetof(struct vgpu_usage_file, slots) == 64 + 16 * 64);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*,readability-*) */

#endif
