#include "common/base/json.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

namespace vgpu {

// Receives the parser's events and builds the tree; refuses depth and duplicate keys on the way.
class JsonBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override {
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return add(Json(static_cast<std::uint64_t>(value)));
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    return add(Json(Json::Number{text}));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(std::size_t /*size*/) override { return open(Json::object()); }
  bool start_array(std::size_t /*size*/) override { return open(Json::array()); }
  bool key(string_t& value) override {
    keys_.push_back(std::move(value));
    return true;
  }
  bool end_object() override {
    const Json::Object& members = *open_.back().members();
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const auto& member : members)
      names.emplace_back(member.first);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      return refuse("key '" + std::string(*twice) + "' appears twice");
    return close();
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return refuse("not valid JSON in UTF-8 at byte " + std::to_string(position));
  }

  Json take() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

 private:
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Json::Array* items = open_.back().items()) {
      items->push_back(std::move(value));
    } else {
      open_.back().members()->emplace_back(std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }
  bool open(Json value) {
    if (open_.size() == Json::kMaxDepth) {
      return refuse("nested deeper than " + std::to_string(Json::kMaxDepth) + " levels");
    }
    open_.push_back(std::move(value));
    return true;
  }
  bool close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    return add(std::move(done));
  }

  std::vector<Json> open_;         // containers whose end has not been seen, outermost first
  std::vector<std::string> keys_;  // keys whose value has not been seen
  Json root_;
  std::string reason_;
};

namespace {

void append_string(std::string& out, std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4U];
      out += kHex[byte & 15U];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

Result<Json> Json::parse(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    return fail(Code::kInvalidArgument, "JSON text is larger than " + std::to_string(max_bytes) +
                                            " bytes (" + std::to_string(text.size()) + ")");
  }
  // The library skips a byte order mark; the runtimes below us do not.
  if (text.starts_with("\xEF\xBB\xBF")) {
    return fail(Code::kInvalidArgument, "JSON text starts with a byte order mark");
  }
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return fail(Code::kInvalidArgument, builder.reason());
  }
  return builder.take();
}

Json Json::strings(std::initializer_list<std::string_view> values) {
  Array array;
  for (const std::string_view value : values)
    array.emplace_back(value);
  return Json(std::move(array));
}

std::optional<bool> Json::boolean() const {
  if (const bool* value = std::get_if<bool>(&value_))
    return *value;
  return std::nullopt;
}

std::optional<std::int64_t> Json::integer() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_))
    return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) {
    if (*value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return static_cast<std::int64_t>(*value);
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Json::natural() const {
  if (const auto* value = std::get_if<std::uint64_t>(&value_))
    return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) {
    if (*value >= 0)
      return static_cast<std::uint64_t>(*value);
  }
  return std::nullopt;
}

const Json* Json::find(std::string_view key) const {
  const Object* object = members();
  if (object == nullptr)
    return nullptr;
  for (const auto& member : *object) {
    if (member.first == key)
      return &member.second;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) {
  return const_cast<Json*>(std::as_const(*this).find(key));
}

const Json* Json::at(std::initializer_list<std::string_view> path) const {
  const Json* here = this;
  for (const std::string_view key : path) {
    if (here == nullptr)
      return nullptr;
    here = here->find(key);
  }
  return here;
}

void Json::set(std::string_view key, Json value) {
  if (Json* existing = find(key)) {
    *existing = std::move(value);
    return;
  }
  if (is_null())
    value_ = Object{};
  if (Object* object = members())
    object->emplace_back(std::string(key), std::move(value));
}

void Json::remove(std::string_view key) {
  if (Object* object = members()) {
    std::erase_if(*object, [&](const auto& member) { return member.first == key; });
  }
}

// Appends one value's text; an overload per kind of value.
struct JsonWriter {
  std::string& out;

  void operator()(std::monostate /*null*/) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { out += std::to_string(value); }
  void operator()(std::uint64_t value) const { out += std::to_string(value); }
  void operator()(const Json::Number& value) const { out += value.text; }
  void operator()(const std::string& value) const { append_string(out, value); }
  void operator()(const Json::Array& items) const {
    out += '[';
    for (const Json& item : items) {
      if (&item != items.data())
        out += ',';
      std::visit(*this, item.value_);
    }
    out += ']';
  }
  void operator()(const Json::Object& members) const {
    out += '{';
    for (const auto& member : members) {
      if (&member != members.data())
        out += ',';
      append_string(out, member.first);
      out += ':';
      std::visit(*this, member.second.value_);
    }
    out += '}';
  }
};

std::string Json::text() const {
  std::string out;
  std::visit(JsonWriter{out}, value_);
  return out;
}

}  // namespace vgpu
