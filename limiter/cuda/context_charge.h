// What a context costs, charged once for each that lives.
#ifndef VGPU_LIMITER_CUDA_CONTEXT_CHARGE_H
#define VGPU_LIMITER_CUDA_CONTEXT_CHARGE_H

#include "limiter/cuda/device.h"

namespace vgpu::limiter {

// The serial number of a context that holds memory. One that was made behind our back (through an
// export table) is charged now, whether it fits or not. 0 when there is no room in our table.
std::uint64_t serial_of(const Place& place);

// Charges a context that is to be made; its record has no handle yet. `serial` 0 with CUDA_SUCCESS:
// the primary context is there already.
CUresult charge_context(CUdevice ordinal, bool primary, std::uint64_t* serial);

// The context is gone, and with it all memory that was allocated in it.
void discharge_context(const ContextRecord& record);

// After anything that may have ended or made the primary context: makes our record agree with the
// driver's word.
void settle_primary(CUdevice ordinal, CUcontext made);

}  // namespace vgpu::limiter

#endif
