#include "test/fakes/nvidia/cuda/driver.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "test/fakes/nvidia/state/visible.h"

namespace vgpu::sim {
namespace {

void after_fork_in_child() {
  // The parent's threads, and whatever they held, are not here.
  new (&driver().lock) std::mutex;
  if (driver().initialized)
    driver().forked = true;
}

// CUDA_VISIBLE_DEVICES: indices or UUID prefixes, in the order in which they become devices; the
// first that fits no card ends the list.
std::vector<unsigned> chosen_cards(const State& node, const std::vector<unsigned>& cards) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read once, as the real library reads its variables
  const char* list = getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr)
    return cards;
  std::vector<unsigned> chosen;
  while (*list != '\0') {
    size_t length = strcspn(list, ",");
    const unsigned* found = nullptr;
    for (size_t i = 0; i < cards.size() && length != 0; ++i) {
      char index[24];
      snprintf(index, sizeof index, "%zu", i);
      bool by_index = strlen(index) == length && strncmp(index, list, length) == 0;
      if (by_index || (length > 4 && strncmp(node.file().cards[cards[i]].uuid, list, length) == 0))
        found = &cards[i];
    }
    if (found == nullptr)
      break;
    chosen.push_back(*found);
    list += length + (list[length] == ',' ? 1 : 0);
  }
  return chosen;
}

CUresult initialize() {
  Driver& me = driver();
  SIM_LOCK();
  if (me.initialized)
    return me.forked ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
  State* node = state();
  if (node == nullptr)
    return CUDA_ERROR_NO_DEVICE;
  std::vector<unsigned> cards = chosen_cards(*node, visible_cards(*node));
  if (cards.empty())
    return CUDA_ERROR_NO_DEVICE;
  if (!node->attach())
    return CUDA_ERROR_OPERATING_SYSTEM;
  for (unsigned card : cards)
    me.devices.push_back(
        Device{.card = card, .primary = nullptr, .primary_uses = 0, .primary_flags = 0});
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  me.state = node;
  me.initialized = true;
  return CUDA_SUCCESS;
}

}  // namespace

// Never destroyed: programs call the driver from their own destructors.
Driver& driver() {
  static auto* instance = new Driver;
  return *instance;
}

State* state() {
  static State* node = State::open(State::default_path());
  return node;
}

CUresult enter_early(const char* function) {
  State* node = state();
  if (node == nullptr || node->file().rule_count == 0)
    return CUDA_SUCCESS;
  return static_cast<CUresult>(node->apply_rules(function));
}

CUresult enter(const char* function) {
  if (!driver().initialized || driver().forked)
    return CUDA_ERROR_NOT_INITIALIZED;
  return enter_early(function);
}

Device* find_device(CUdevice device) {
  std::vector<Device>& devices = driver().devices;
  if (device < 0 || static_cast<size_t>(device) >= devices.size())
    return nullptr;
  return &devices[static_cast<size_t>(device)];
}

Card& card_of(const Device& device) {
  return driver().state->file().cards[device.card];
}

}  // namespace vgpu::sim

using vgpu::sim::state;

extern "C" {

CUresult cuInit(unsigned int flags) {
  SIM_ENTER_EARLY(cuInit);
  if (flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return vgpu::sim::initialize();
}

CUresult cuDriverGetVersion(int* version) {
  SIM_ENTER_EARLY(cuDriverGetVersion);
  if (version == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *version = state() == nullptr ? 13000 : state()->file().options.cuda_version;
  return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  SIM_ENTER_EARLY(cuGetExportTable);
  if (table == nullptr || id == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;  // undocumented tables are not imitated
}

}  // extern "C"
