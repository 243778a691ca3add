#include "common/gpu/node.h"

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/gpu/allocation.h"

namespace vgpu::gpu {
namespace {

constexpr std::size_t kMaxNodeBytes = std::size_t{64} * 1024;
constexpr std::size_t kMaxCards = 256;

Result<NodeCard> parse_card(const Json& json) {
  const Json* uuid = json.find("uuid");
  const Json* minor = json.find("minor");
  const Json* context = json.find("contextBytes");
  if (uuid == nullptr || uuid->string() == nullptr || !is_card_uuid(*uuid->string())) {
    return fail(Code::kInvalidArgument, "a card has no 'uuid'");
  }
  const auto number = minor != nullptr ? minor->natural() : std::nullopt;
  if (!number || *number >= 255) {
    return fail(Code::kInvalidArgument, "card '" + *uuid->string() + "' has no 'minor' below 255");
  }
  const auto bytes = context != nullptr ? context->natural() : std::nullopt;
  return NodeCard{*uuid->string(), static_cast<std::uint32_t>(*number), Bytes{bytes.value_or(0)}};
}

Result<NodeFacts> parse_node(const Json& json) {
  NodeFacts node;
  const Json* version = json.find("v");
  if (version == nullptr || version->natural() != 1U) {
    return fail(Code::kInvalidArgument, "not of version 1");
  }
  const Json* name = json.find("name");
  if (name == nullptr || name->string() == nullptr) {
    return fail(Code::kInvalidArgument, "'name' is missing");
  }
  node.name = *name->string();
  if (const Json* runtime = json.find("runtime"); runtime != nullptr && runtime->string()) {
    node.runtime = *runtime->string();
  }
  if (const Json* mode = json.find("toolkitMode")) {
    const std::string text = mode->string() != nullptr ? *mode->string() : "";
    if (text != "legacy" && text != "cdi") {
      return fail(Code::kInvalidArgument, "'toolkitMode' is not legacy or cdi");
    }
    node.toolkit_mode = text == "cdi" ? ToolkitMode::kCdi : ToolkitMode::kLegacy;
  }
  const Json* cards = json.find("gpus");
  if (cards == nullptr || cards->items() == nullptr || cards->items()->size() > kMaxCards) {
    return fail(Code::kInvalidArgument, "'gpus' is not a list of cards");
  }
  for (const Json& item : *cards->items()) {
    auto card = parse_card(item);
    if (!card)
      return fail(card.error());
    node.cards.push_back(std::move(*card));
  }
  return node;
}

}  // namespace

const NodeCard* NodeFacts::find(std::string_view uuid) const {
  for (const NodeCard& card : cards) {
    if (card.uuid == uuid)
      return &card;
  }
  return nullptr;
}

Result<NodeFacts> load_node(const std::string& path) {
  TRY(const std::string text, read_file(path, kMaxNodeBytes, Owner::kRoot), "read node facts");
  TRY(const Json json, Json::parse(text, kMaxNodeBytes), "read node facts '" + path + "'");
  TRY(NodeFacts node, parse_node(json), "read node facts '" + path + "'");
  return node;
}

}  // namespace vgpu::gpu
