// What this process knows and owes: the host page, the ledger, and the tables of its own memory and
// contexts. One per copy of the library.
#ifndef VGPU_LIMITER_ACCOUNT_H
#define VGPU_LIMITER_ACCOUNT_H

#include <atomic>
#include <cstdint>

#include "limiter/context_table.h"
#include "limiter/doubt.h"
#include "limiter/host_page.h"
#include "limiter/ledger.h"
#include "limiter/pointer_table.h"

namespace vgpu::limiter {

class Account {
 public:
  // Where the two files are: what the container sees, and nothing that a program could choose.
  void use_files(const char* host, const char* usage);

  // Maps both files, the first time; cheap afterwards. Nothing else of this class is used before it
  // has answered kNone.
  Doubt prepare();
  // The terms of the card named `uuid`. For a card that the page does not name: kNone, and a limit
  // of zero.
  Doubt terms(const char* uuid, DeviceTerms* terms);

  // Reserves `bytes` before the driver is asked for them. Waits, at most a dead process's time of
  // grace, when nothing but the bytes of the dead stands in the way. `refused` is set when the
  // limit does, `device` is whose ledger line was charged.
  Doubt charge(const char* uuid, std::uint64_t bytes, std::uint32_t* device, bool* refused);
  void uncharge(unsigned device, std::uint64_t bytes) { ledger_.uncharge(device, bytes); }
  void uncharge(const BytesPerDevice& bytes);
  bool charge_always(unsigned device, std::uint64_t bytes) {
    return ledger_.charge_always(device, bytes);
  }

  // Bytes in use on the card: the ledger's or, if larger, what the host sees.
  std::uint64_t used(const DeviceTerms& terms);

  PointerTable pointers;
  ContextTable contexts;
  SpinLock naming;  // guards what is known of the cards by those who ask the driver

 private:
  static void begin_child();

  const char* host_path_ = VGPU_HOST_PATH;
  const char* usage_path_ = VGPU_USAGE_PATH;
  std::atomic<bool> ready_{false};
  bool host_open_ = false;
  std::atomic<bool> child_handler_set_{false};
  SpinLock preparing_;
  HostPage host_;
  Ledger ledger_;
};

Account& account();

}  // namespace vgpu::limiter

#endif
