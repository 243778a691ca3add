#pragma once

#include <cstdint>
#include <deque>

#include "test/fakes/nvidia/cuda/driver.h"

// Kernels as durations. A stream is a queue that is worked off in order on CLOCK_MONOTONIC, by
// whoever looks at it; while a kernel waits on a word, a thread looks. With `serialize` in the
// scenario one kernel at a time runs on a card, whoever launched it, in the order of launches. A
// null stream has an order of its own: it does not wait for other streams, nor they for it.

struct CUevent_st {
  bool alive;
  bool timed;
  bool recorded;
  bool pending;
  uint64_t at;  // ns
  CUstream_st* stream;
};

struct CUfunc_st {
  enum class Work { kNone, kSleep, kWaitWord } work;
  CUmod_st* module;
};

namespace vgpu::sim {

struct Operation {
  enum class Kind { kKernel, kWaitWord, kRecord } kind;
  uint64_t not_before;  // ns
  uint64_t duration;    // ns
  bool on_card;         // its time is already taken from the card
  const volatile uint32_t* word;
  CUevent_st* event;
};

}  // namespace vgpu::sim

struct CUstream_st {
  CUctx_st* context;
  bool alive;
  uint64_t ready_at;    // ns: end of the last operation that is done
  uint64_t planned_to;  // ns: end of the last operation whose end is known
  bool unplanned;       // an operation ahead waits on a word
  std::deque<vgpu::sim::Operation> queue;
};

namespace vgpu::sim {

// With driver().lock held.
CUresult find_stream(CUstream handle, bool per_thread, CUstream_st** stream);
// Takes off what is done by now.
void advance(CUstream_st& stream, uint64_t now);
void enqueue_kernel(CUstream_st& stream, uint64_t duration_ns);
void enqueue_wait(CUstream_st& stream, const volatile uint32_t* word);
void enqueue_record(CUstream_st& stream, CUevent_st* event);
// The end of the stream's first operation, or the next moment to look when it waits on a word.
uint64_t next_look(const CUstream_st& stream, uint64_t now);
void sleep_until(uint64_t ns);

}  // namespace vgpu::sim
