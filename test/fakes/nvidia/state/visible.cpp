#include "test/fakes/nvidia/state/visible.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace vgpu::sim {
namespace {

bool can_open(uint32_t minor) {
  char path[32];
  snprintf(path, sizeof path, "/dev/nvidia%u", minor);
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) {
    close(fd);
    return true;
  }
  return errno != ENOENT && errno != EPERM && errno != EACCES;
}

}  // namespace

std::vector<unsigned> visible_cards(const State& node) {
  std::vector<unsigned> cards;
  for (unsigned card = 0; card < node.file().card_count; ++card)
    if (node.file().options.check_nodes == 0 || can_open(node.file().cards[card].minor))
      cards.push_back(card);
  return cards;
}

}  // namespace vgpu::sim
