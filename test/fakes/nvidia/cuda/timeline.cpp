#include "test/fakes/nvidia/cuda/timeline.h"

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <map>
#include <thread>

namespace vgpu::sim {
namespace {

constexpr uint64_t kLookInterval = 50000;  // ns between looks at a word

struct Streams {
  std::set<CUstream_st*> all;                  // that ever were
  std::map<CUctx_st*, CUstream_st*> defaults;  // the null stream of each context
  size_t waiting = 0;                          // operations that wait on a word
  std::condition_variable has_waiting;
  bool has_watcher = false;
};

Streams& streams() {
  static auto* instance = new Streams;
  return *instance;
}

CUstream_st* new_stream(CUctx_st* context) {
  auto* stream = new CUstream_st{};
  stream->context = context;
  stream->alive = true;
  streams().all.insert(stream);
  return stream;
}

CUstream_st* default_stream(std::map<CUctx_st*, CUstream_st*>& defaults, CUctx_st* context) {
  CUstream_st*& stream = defaults[context];
  if (stream == nullptr || !stream->alive)
    stream = new_stream(context);
  return stream;
}

// Takes `duration` of the card's time, not before `from`; returns when the kernel ends.
uint64_t take_card(CUctx_st* context, uint64_t from, uint64_t duration) {
  Card& card = card_of(*find_device(context->device));
  __atomic_fetch_add(&card.busy_ns, duration, __ATOMIC_RELAXED);
  if (driver().state->file().options.serialize == 0)
    return from + duration;
  uint64_t busy_until = __atomic_load_n(&card.busy_until, __ATOMIC_RELAXED);
  uint64_t end = 0;
  do {
    end = std::max(busy_until, from) + duration;
  } while (!__atomic_compare_exchange_n(&card.busy_until, &busy_until, end, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  return end;
}

void watch() {
  std::unique_lock<std::mutex> lock(driver().lock);
  for (;;) {
    streams().has_waiting.wait(lock, [] { return streams().waiting != 0; });
    for (CUstream_st* stream : streams().all)
      if (stream->alive)
        advance(*stream, now_ns());
    lock.unlock();
    sleep_until(now_ns() + kLookInterval);
    lock.lock();
  }
}

}  // namespace

void sleep_until(uint64_t ns) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(ns / 1000000000U);
  time.tv_nsec = static_cast<int64_t>(ns % 1000000000U);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
}

CUresult find_stream(CUstream handle, bool per_thread, CUstream_st** stream) {
  thread_local std::map<CUctx_st*, CUstream_st*> thread_defaults;
  auto number = reinterpret_cast<uintptr_t>(handle);
  if (number <= 2) {  // null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
    CUctx_st* context = nullptr;
    CUresult result = current_context(&context);
    if (result != CUDA_SUCCESS)
      return result;
    bool own = number == 2 || (number == 0 && per_thread);
    *stream = default_stream(own ? thread_defaults : streams().defaults, context);
    return CUDA_SUCCESS;
  }
  if (!streams().all.contains(handle) || !handle->alive)
    return CUDA_ERROR_INVALID_HANDLE;
  *stream = handle;
  return CUDA_SUCCESS;
}

void advance(CUstream_st& stream, uint64_t now) {
  while (!stream.queue.empty()) {
    Operation& operation = stream.queue.front();
    uint64_t from = std::max(operation.not_before, stream.ready_at);
    uint64_t end = from;
    if (operation.kind == Operation::Kind::kKernel) {
      if (!operation.on_card) {
        // Launched behind a kernel that waited on a word: only now is it known when it could start.
        operation.not_before =
            take_card(stream.context, from, operation.duration) - operation.duration;
        operation.on_card = true;
        from = operation.not_before;
      }
      end = from + operation.duration;
      if (end > now)
        return;
    } else if (operation.kind == Operation::Kind::kWaitWord) {
      if (__atomic_load_n(operation.word, __ATOMIC_ACQUIRE) == 0)
        return;
      --streams().waiting;
      end = std::max(from, now);
    } else {
      operation.event->pending = false;
      operation.event->at = end;
    }
    stream.ready_at = end;
    stream.planned_to = std::max(stream.planned_to, end);
    stream.queue.pop_front();
  }
  stream.unplanned = false;
}

void enqueue_kernel(CUstream_st& stream, uint64_t duration_ns) {
  uint64_t from = std::max(now_ns(), stream.planned_to);
  Operation operation{};
  operation.kind = Operation::Kind::kKernel;
  operation.duration = duration_ns;
  operation.not_before = from;
  operation.on_card = !stream.unplanned;
  if (operation.on_card) {
    uint64_t end = take_card(stream.context, from, duration_ns);
    operation.not_before = end - duration_ns;
    stream.planned_to = end;
  }
  stream.queue.push_back(operation);
}

void enqueue_wait(CUstream_st& stream, const volatile uint32_t* word) {
  Operation operation{};
  operation.kind = Operation::Kind::kWaitWord;
  operation.not_before = now_ns();
  operation.word = word;
  stream.queue.push_back(operation);
  stream.unplanned = true;
  ++streams().waiting;
  if (!streams().has_watcher) {
    streams().has_watcher = true;
    std::thread(watch).detach();
  }
  streams().has_waiting.notify_one();
}

void enqueue_record(CUstream_st& stream, CUevent_st* event) {
  event->recorded = true;
  event->pending = true;
  event->stream = &stream;
  Operation operation{};
  operation.kind = Operation::Kind::kRecord;
  operation.not_before = now_ns();
  operation.event = event;
  stream.queue.push_back(operation);
}

uint64_t next_look(const CUstream_st& stream, uint64_t now) {
  const Operation& operation = stream.queue.front();
  if (operation.kind == Operation::Kind::kWaitWord)
    return now + kLookInterval;
  return std::max(operation.not_before, stream.ready_at) + operation.duration;
}

namespace {

void destroy(CUstream_st& stream) {
  for (const Operation& operation : stream.queue) {
    if (operation.kind == Operation::Kind::kWaitWord)
      --streams().waiting;
    if (operation.kind == Operation::Kind::kRecord) {
      operation.event->pending = false;
      operation.event->at = now_ns();
    }
  }
  stream.queue.clear();
  stream.alive = false;
}

// Waits, without the lock, until nothing that is queued now is left.
CUresult synchronize(CUstream handle, bool per_thread) {
  std::unique_lock<std::mutex> lock(driver().lock);
  CUstream_st* stream = nullptr;
  CUresult result = find_stream(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  for (;;) {
    uint64_t now = now_ns();
    advance(*stream, now);
    if (stream->queue.empty())
      return CUDA_SUCCESS;
    uint64_t next = next_look(*stream, now);
    lock.unlock();
    sleep_until(next);
    lock.lock();
  }
}

CUresult query(CUstream handle, bool per_thread) {
  SIM_LOCK();
  CUstream_st* stream = nullptr;
  CUresult result = find_stream(handle, per_thread, &stream);
  if (result != CUDA_SUCCESS)
    return result;
  advance(*stream, now_ns());
  return stream->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUstream_st* busy_stream(CUctx_st* context) {
  for (CUstream_st* stream : streams().all) {
    if (!stream->alive || stream->context != context)
      continue;
    advance(*stream, now_ns());
    if (!stream->queue.empty())
      return stream;
  }
  return nullptr;
}

}  // namespace

void destroy_streams(CUctx_st* context) {
  for (CUstream_st* stream : streams().all)
    if (stream->alive && stream->context == context)
      destroy(*stream);
}

}  // namespace vgpu::sim

using vgpu::sim::driver;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  SIM_ENTER(cuStreamCreate);
  if (stream == nullptr || flags > 1)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* context = nullptr;
  CUresult result = vgpu::sim::current_context(&context);
  if (result == CUDA_SUCCESS)
    *stream = vgpu::sim::new_stream(context);
  return result;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_ENTER(cuStreamDestroy_v2);
  SIM_LOCK();
  if (!vgpu::sim::streams().all.contains(stream) || !stream->alive)
    return CUDA_ERROR_INVALID_HANDLE;
  vgpu::sim::destroy(*stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream) {
  SIM_ENTER(cuStreamQuery);
  return vgpu::sim::query(stream, false);
}

CUresult cuStreamQuery_ptsz(CUstream stream) {
  SIM_ENTER(cuStreamQuery_ptsz);
  return vgpu::sim::query(stream, true);
}

CUresult cuStreamSynchronize(CUstream stream) {
  SIM_ENTER(cuStreamSynchronize);
  return vgpu::sim::synchronize(stream, false);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  SIM_ENTER(cuStreamSynchronize_ptsz);
  return vgpu::sim::synchronize(stream, true);
}

CUresult cuCtxSynchronize(void) {
  SIM_ENTER(cuCtxSynchronize);
  std::unique_lock<std::mutex> lock(driver().lock);
  CUctx_st* context = nullptr;
  CUresult result = vgpu::sim::current_context(&context);
  if (result != CUDA_SUCCESS)
    return result;
  while (CUstream_st* stream = vgpu::sim::busy_stream(context)) {
    uint64_t next = vgpu::sim::next_look(*stream, vgpu::sim::now_ns());
    lock.unlock();
    vgpu::sim::sleep_until(next);
    lock.lock();
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
