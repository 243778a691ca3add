// Which card a call is about, and what may be used of it.
#ifndef VGPU_LIMITER_CUDA_DEVICE_H
#define VGPU_LIMITER_CUDA_DEVICE_H

#include "api/limiter/cuda_abi.h"
#include "limiter/account.h"

namespace vgpu::limiter {

// The current context and its card.
struct Place {
  CUcontext context = nullptr;
  CUdevice ordinal = 0;
  const char* uuid = nullptr;  // static
};

// Both answer the driver's own error when it has one.
CUresult current_place(Place* place);
CUresult uuid_of(CUdevice ordinal, const char** uuid);

// The terms of a card. For a card that the host page does not name, and when the page has no whole
// copy: CUDA_SUCCESS, and a limit of zero.
CUresult terms_of(const char* uuid, DeviceTerms* terms);

// Reserves `bytes` for new memory on a card, before the driver is asked; `device` is whose ledger
// line was charged.
CUresult charge(const char* uuid, std::uint64_t bytes, std::uint32_t* device);

}  // namespace vgpu::limiter

#endif
