#include "limiter/account.h"

// The C library's own name: pthread_atfork is a function of its static part, which is newer.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the name is given
extern "C" int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(),
                                 void* object);

namespace vgpu::limiter {
namespace {

constinit Account the_account;

Doubt doubt_of(HostPage::Opening opening) {
  switch (opening) {
    case HostPage::Opening::kOk:
      return Doubt::kNone;
    case HostPage::Opening::kMissing:
      return Doubt::kNoHostPage;
    default:
      return Doubt::kBadHostPage;
  }
}

Doubt doubt_of(Ledger::Opening opening) {
  switch (opening) {
    case Ledger::Opening::kOk:
      return Doubt::kNone;
    case Ledger::Opening::kMissing:
      return Doubt::kNoUsageFile;
    default:
      return Doubt::kBadUsageFile;
  }
}

}  // namespace

Account& account() {
  return the_account;
}

void Account::use_files(const char* host, const char* usage) {
  host_path_ = host;
  usage_path_ = usage;
}

Doubt Account::prepare() {
  if (ready_.load(std::memory_order_acquire)) {
    return Doubt::kNone;
  }
  // Before any lock is taken, so that no child inherits one that is held.
  if (!child_handler_set_.exchange(true)) {
    __register_atfork(nullptr, nullptr, begin_child, nullptr);
  }
  const Locked lock(preparing_);
  if (ready_.load(std::memory_order_acquire)) {
    return Doubt::kNone;
  }
  if (!host_open_) {
    const Doubt doubt = doubt_of(host_.open(host_path_));
    if (doubt != Doubt::kNone) {
      return doubt;
    }
    host_open_ = true;
  }
  const Doubt doubt = doubt_of(ledger_.open(usage_path_));
  if (doubt != Doubt::kNone) {
    return doubt;
  }
  ready_.store(true, std::memory_order_release);
  return Doubt::kNone;
}

// A child of a fork holds none of its parent's memory and is a process of its own.
void Account::begin_child() {
  the_account.preparing_.unlock();
  the_account.naming.unlock();
  the_account.ledger_.forget_in_child();
  the_account.pointers.clear();
  the_account.contexts.clear();
  forget_what_was_said();
}

Doubt Account::terms(const char* uuid, DeviceTerms* terms) {
  *terms = DeviceTerms{};
  const Doubt doubt = prepare();
  if (doubt != Doubt::kNone) {
    return doubt;
  }
  switch (host_.find(uuid, sys::boot_time(), terms)) {
    case HostPage::Finding::kFound:
      return Doubt::kNone;
    case HostPage::Finding::kUnknownDevice:
      return Doubt::kUnknownCard;
    default:
      return Doubt::kTornHostPage;
  }
}

Doubt Account::charge(const char* uuid, std::uint64_t bytes, std::uint32_t* device, bool* refused) {
  const std::uint64_t give_up = sys::boot_time() + VGPU_USAGE_GRACE_NS + Ledger::kPatience;
  *refused = false;
  for (;;) {
    DeviceTerms now;
    const Doubt doubt = terms(uuid, &now);
    if (doubt != Doubt::kNone) {
      return doubt;
    }
    const Room room = {.limit = now.hold ? 0 : now.limit, .observed_bytes = now.observed_bytes};
    Ledger::Charge answer = Ledger::Charge::kRefused;
    if (!now.hold) {
      *device = now.index;
      answer = ledger_.charge(now.index, bytes, room);
    }
    if (answer == Ledger::Charge::kPending && sys::boot_time() < give_up) {
      const std::uint64_t next = ledger_.next_return();
      sys::sleep_until_boot_time(next < give_up ? next : give_up);
      continue;
    }
    switch (answer) {
      case Ledger::Charge::kGranted:
        return Doubt::kNone;
      case Ledger::Charge::kNoSlot:
        return Doubt::kNoSlot;
      case Ledger::Charge::kStuck:
        return Doubt::kStuckLedger;
      default:
        say_refused(uuid, bytes, used(now), now.limit, now.hold);
        *refused = true;
        return Doubt::kNone;
    }
  }
}

void Account::uncharge(const BytesPerDevice& bytes) {
  for (unsigned i = 0; i < VGPU_MAX_DEVICES; ++i) {
    if (bytes.bytes[i] != 0) {
      ledger_.uncharge(i, bytes.bytes[i]);
    }
  }
}

std::uint64_t Account::used(const DeviceTerms& terms) {
  const std::uint64_t charged = ledger_.used(terms.index);
  return charged > terms.observed_bytes ? charged : terms.observed_bytes;
}

}  // namespace vgpu::limiter
