#include "test/fakes/nvidia/cuda/timeline.h"

namespace vgpu::sim {
namespace {

constexpr unsigned kDisableTiming = 2;

std::set<CUevent_st*>& events() {
  static auto* instance = new std::set<CUevent_st*>;
  return *instance;
}

bool is_event(CUevent event) {
  return events().contains(event) && event->alive;
}

CUresult record(CUevent event, CUstream handle, bool per_thread) {
  SIM_LOCK();
  if (!is_event(event))
    return CUDA_ERROR_INVALID_HANDLE;
  CUstream_st* stream = nullptr;
  CUresult result = find_stream(handle, per_thread, &stream);
  if (result == CUDA_SUCCESS) {
    enqueue_record(*stream, event);
    advance(*stream, now_ns());
  }
  return result;
}

}  // namespace
}  // namespace vgpu::sim

using vgpu::sim::driver;
using vgpu::sim::is_event;
using vgpu::sim::now_ns;

extern "C" {

CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  SIM_ENTER(cuEventCreate);
  if (event == nullptr || flags > 7)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  CUctx_st* context = nullptr;
  CUresult result = vgpu::sim::current_context(&context);
  if (result != CUDA_SUCCESS)
    return result;
  *event = new CUevent_st{};
  (*event)->alive = true;
  (*event)->timed = (flags & vgpu::sim::kDisableTiming) == 0;
  vgpu::sim::events().insert(*event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  SIM_ENTER(cuEventDestroy_v2);
  SIM_LOCK();
  if (!is_event(event))
    return CUDA_ERROR_INVALID_HANDLE;
  event->alive = false;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  SIM_ENTER(cuEventRecord);
  return vgpu::sim::record(event, stream, false);
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
  SIM_ENTER(cuEventRecord_ptsz);
  return vgpu::sim::record(event, stream, true);
}

// An event that was never recorded counts as done.
CUresult cuEventQuery(CUevent event) {
  SIM_ENTER(cuEventQuery);
  SIM_LOCK();
  if (!is_event(event))
    return CUDA_ERROR_INVALID_HANDLE;
  if (event->pending)
    vgpu::sim::advance(*event->stream, now_ns());
  return event->pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
  SIM_ENTER(cuEventSynchronize);
  std::unique_lock<std::mutex> lock(driver().lock);
  if (!is_event(event))
    return CUDA_ERROR_INVALID_HANDLE;
  while (event->pending) {
    uint64_t now = now_ns();
    vgpu::sim::advance(*event->stream, now);
    if (!event->pending)
      break;
    uint64_t next = vgpu::sim::next_look(*event->stream, now);
    lock.unlock();
    vgpu::sim::sleep_until(next);
    lock.lock();
  }
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIM_ENTER(cuEventElapsedTime);
  if (milliseconds == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  SIM_LOCK();
  for (CUevent event : {start, end}) {
    if (!is_event(event) || !event->timed || !event->recorded)
      return CUDA_ERROR_INVALID_HANDLE;
    if (event->pending)
      vgpu::sim::advance(*event->stream, now_ns());
    if (event->pending)
      return CUDA_ERROR_NOT_READY;
  }
  *milliseconds =
      static_cast<float>((static_cast<double>(end->at) - static_cast<double>(start->at)) / 1e6);
  return CUDA_SUCCESS;
}

}  // extern "C"
