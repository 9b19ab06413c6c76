#include "framework/storage/manifest.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/json_text.h"
#include "framework/base/text.h"
#include "framework/storage/checksum.h"
#include "framework/storage/json_value.h"
#include "framework/storage/safetensors.h"

namespace lockstep::storage {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "lockstep-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kDigits = 16;  // of a Checksum

std::string checksum_of(std::string_view text) {
  return hexadecimal(storage::checksum_of(std::as_bytes(std::span(text))), kDigits);
}

// The end of a manifest with this checksum.
std::string ending(const std::string& checksum) {
  return ",\n  \"checksum\": \"" + checksum + "\"\n}\n";
}

// The rule that a file breaks; "" for none.
std::string rule_broken_by(const ManifestFile& file) {
  if (file.name.empty() || file.name == "." || file.name == ".." || file.name == kManifestName ||
      file.name.find('/') != std::string::npos || file.name.find('\0') != std::string::npos) {
    return str("a file can't have the name ", in_quotes(file.name));
  }
  if (file.checksum.size() != kDigits ||
      file.checksum.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return str("file ", in_quotes(file.name), " has the checksum ", in_quotes(file.checksum));
  }
  return "";
}

// The same for a tensor. `users` has, for each file, the last tensor with a piece in it.
std::string rule_broken_by(const ManifestTensor& tensor,
                           std::vector<const ManifestTensor*>& users) {
  const auto broken = [&](const auto&... rule) {
    return str("tensor ", in_quotes(tensor.name), " ", rule...);
  };
  const std::uint64_t element = element_bytes(tensor.dtype);
  if (element == 0) return broken("has the dtype ", in_quotes(tensor.dtype));
  const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
  if (!bytes) return broken("is too large");
  const std::uint64_t elements = *bytes / element;
  std::uint64_t end = 0;
  for (const ManifestPiece& piece : tensor.pieces) {
    if (piece.file >= users.size()) {
      return broken("has a piece in file ", piece.file, " of ", users.size());
    }
    if (std::exchange(users[piece.file], &tensor) == &tensor) {
      return broken("has two pieces in file ", piece.file);
    }
    if (piece.size == 0) return broken("has a piece without elements at ", piece.offset);
    if (piece.offset != end || piece.size > elements - end) {
      return broken("has a piece of elements ", piece.offset, " to ", piece.offset, " + ",
                    piece.size, " where one from ", end, " to ", elements, " at most should be");
    }
    end += piece.size;
  }
  if (end != elements) return broken("has pieces for ", end, " of its ", elements, " elements");
  return "";
}

// The same for all of a manifest.
std::string rule_broken_by(const Manifest& manifest) {
  if (manifest.step < 0) return str("its step is ", manifest.step);
  if (manifest.replicas < 1) return str("its replicas are ", manifest.replicas);
  for (const auto& [name, figure] : manifest.figures) {
    if (!std::isfinite(figure)) return str("figure ", in_quotes(name), " is ", figure);
  }
  std::set<std::string_view> names;
  for (const ManifestFile& file : manifest.files) {
    if (std::string rule = rule_broken_by(file); !rule.empty()) return rule;
    if (!names.insert(file.name).second) return str("file ", in_quotes(file.name), " stands twice");
  }
  std::vector<const ManifestTensor*> users(manifest.files.size());
  const ManifestTensor* before = nullptr;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (std::string rule = rule_broken_by(tensor, users); !rule.empty()) return rule;
    if (before != nullptr && before->name >= tensor.name) {
      return str("tensor ", in_quotes(tensor.name), " follows ", in_quotes(before->name),
                 ": names should be in their order, each once");
    }
    before = &tensor;
  }
  return "";
}

// The same for the line of a file or tensor.
std::string rule_broken_by_line(std::size_t bytes) {
  constexpr std::size_t kLongest = std::size_t{1} << 20;
  if (bytes <= kLongest) return "";
  return str("a line has ", bytes, " bytes, and the most are ", kLongest);
}

template <typename Value>
std::string json_of(const Value& value) {
  return nlohmann::json(value).dump();
}

// A text, of which JSON takes UTF-8 alone: another one, such as a path's, is the list of its bytes.
std::string json_of(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return nlohmann::json(std::vector<std::uint8_t>(text.begin(), text.end())).dump();
  }
}

// A name, which must be UTF-8: otherwise nlohmann::json::type_error.
std::string json_of_name(const std::string& name) {
  return nlohmann::json(name).dump();
}

std::string line_of(const ManifestFile& file) {
  return str(R"({"name": )", json_of_name(file.name), R"(, "bytes": )", file.bytes,
             R"(, "checksum": ")", file.checksum, "\"}");
}

std::string line_of(const ManifestTensor& tensor) {
  TextStream line;
  line << R"({"name": )" << json_of_name(tensor.name) << R"(, "dtype": ")" << tensor.dtype
       << R"(", "shape": [)" << join(tensor.shape) << R"(], "pieces": [)";
  const char* before = "[";
  for (const ManifestPiece& piece : tensor.pieces) {
    line << before << piece.file << ", " << piece.offset << ", " << piece.size << "]";
    before = ", [";
  }
  line << "]}";
  return line.str();
}

template <typename Value>
std::string line_of(const std::pair<const std::string, Value>& entry) {
  return json_of_name(entry.first) + ": " + json_of(entry.second);
}

// A field with a list or an object, whichever the brackets are of, of items with a line for each.
template <typename Items>
void add_lines(std::string& text, const char* field, const char* brackets, const Items& items) {
  text += str(",\n  \"", field, "\": ", brackets[0]);
  const char* before = "\n    ";
  for (const auto& item : items) {
    const std::string line = line_of(item);
    const std::string rule = brackets[0] == '[' ? rule_broken_by_line(line.size()) : "";
    require(rule.empty(), "manifest: ", rule);
    text += before + line;
    before = ",\n    ";
  }
  if (!items.empty()) text += "\n  ";
  text += brackets[1];
}

// The lines of a manifest, from its front, each without the comma behind it.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  // Lines that were taken.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool at_end() const noexcept { return rest_.empty(); }
  void expect(std::string_view line) { check(next(), line); }
  // The value of the field in the next line.
  template <typename T>
  [[nodiscard]] T field(const char* name) {
    const std::string_view line = next();
    const Json object = json_in(str("{", line, "}"));
    const Json& value = json_at(object, name);
    check(line, str("  \"", name, "\": ", value.dump()));
    return exactly<T>(value);
  }
  // The field with a line for each item of a list or an object, whichever the brackets are of.
  // `take` returns the line that its item has as write_manifest() has it.
  template <typename Take>
  void items(const char* name, std::string_view brackets, const Take& take) {
    const std::string begin = str("  \"", name, "\": ", brackets[0]);
    if (rest_.starts_with(begin + brackets[1])) return expect(begin + brackets[1]);
    expect(begin);
    while (rest_.starts_with("    ")) {
      const std::string_view item = next().substr(4);
      const std::string rule = brackets == "[]" ? rule_broken_by_line(item.size()) : "";
      require<DataError>(rule.empty(), rule);
      check(item, take(json_in(brackets == "[]" ? std::string(item) : str("{", item, "}")), item));
    }
    expect(str("  ", brackets[1]));
  }

 private:
  std::string_view next() {
    ++count_;
    std::string_view line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    if (line.ends_with(',')) line.remove_suffix(1);
    return line;
  }
  static void check(std::string_view line, std::string_view right) {
    const auto [at, right_at] = std::ranges::mismatch(line, right);
    require<DataError>(line == right, in_quotes({at, line.end()}), " stands at byte ",
                       at - line.begin(), " where ", in_quotes({right_at, right.end()}),
                       " should be");
  }
  static Json json_in(const std::string& text) {
    Json json = parse_json<Json>(text);
    require<DataError>(!json.is_discarded(), in_quotes(text), " is no JSON in UTF-8");
    return json;
  }

  std::string_view rest_;
  std::size_t count_ = 0;
};

// Adds the entry of an object that has one, and returns it.
template <typename Value>
const auto& add_entry(std::map<std::string, Value>& entries, const Json& object) {
  require<DataError>(object.size() == 1, in_quotes(object.dump()), " is not one entry");
  const auto [entry, is_new] = entries.try_emplace(object.begin().key());
  require<DataError>(is_new, in_quotes(entry->first), " stands twice");
  const Json& value = *object.begin();
  if constexpr (std::is_same_v<Value, std::string>) {
    if (value.is_array()) {  // a text that is no UTF-8
      const auto bytes = exactly<std::vector<std::uint8_t>>(value);
      entry->second.assign(bytes.begin(), bytes.end());
      return *entry;
    }
  }
  entry->second = exactly<Value>(value);
  return *entry;
}

ManifestFile file_of(const Json& json) {
  return {.name = exactly<std::string>(json_at(json, "name")),
          .bytes = exactly<std::uint64_t>(json_at(json, "bytes")),
          .checksum = exactly<std::string>(json_at(json, "checksum"))};
}

ManifestTensor tensor_of(const Json& json) {
  ManifestTensor tensor{.name = exactly<std::string>(json_at(json, "name")),
                        .dtype = exactly<std::string>(json_at(json, "dtype")),
                        .shape = exactly<std::vector<std::uint64_t>>(json_at(json, "shape"))};
  for (const auto& piece :
       exactly<std::vector<std::vector<std::uint64_t>>>(json_at(json, "pieces"))) {
    require<DataError>(piece.size() == 3, "a piece has ", piece.size(), " numbers in place of 3");
    tensor.pieces.push_back({piece[0], piece[1], piece[2]});
  }
  return tensor;
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  const std::string rule = rule_broken_by(manifest);
  require(rule.empty(), "manifest: ", rule);
  std::string text =
      str("{\n  \"format\": \"", kFormat, "\",\n  \"format_version\": ", kVersion,
          ",\n  \"step\": ", manifest.step, ",\n  \"replicas\": ", manifest.replicas);
  try {
    add_lines(text, "counts", "{}", manifest.counts);
    add_lines(text, "figures", "{}", manifest.figures);
    add_lines(text, "texts", "{}", manifest.texts);
    add_lines(text, "files", "[]", manifest.files);
    add_lines(text, "tensors", "[]", manifest.tensors);
  } catch (const nlohmann::json::type_error&) {
    throw ValueError("manifest: a name is no UTF-8");
  }
  text += ending(checksum_of(text));
  require(text.size() <= kLongestManifest, "manifest: it takes ", text.size(),
          " bytes, and the most are ", kLongestManifest);
  return text;
}

void add_parts(Manifest& manifest, const std::vector<std::string>& parts) {
  std::map<std::string, ManifestTensor> tensors;
  for (const std::string& part : parts) {
    auto [file, its_tensors] = decode<ManifestPart>(part, "what a replica has written");
    for (ManifestTensor& tensor : its_tensors) {
      for (ManifestPiece& piece : tensor.pieces) piece.file = manifest.files.size();
      const auto [whole, is_new] = tensors.try_emplace(tensor.name, tensor);
      if (!is_new) std::ranges::copy(tensor.pieces, std::back_inserter(whole->second.pieces));
    }
    manifest.files.push_back(file);
  }
  for (auto& [name, tensor] : tensors) {
    std::ranges::sort(tensor.pieces, {}, &ManifestPiece::offset);
    manifest.tensors.push_back(std::move(tensor));
  }
}

Manifest parse_manifest(std::string_view text) {
  const auto refuse = [](const auto&... rule) {
    throw DataError(str("not a checkpoint's manifest: ", rule...));
  };
  const std::size_t end =
      text.size() - std::min(text.size(), ending(std::string(kDigits, '0')).size());
  const std::string checksum = checksum_of(text.substr(0, end));
  if (text.substr(end) != ending(checksum)) {
    refuse("it is damaged or cut short: it does not end with ", checksum,
           ", the checksum of its bytes");
  }
  Manifest manifest;
  Lines in(text.substr(0, end));
  try {
    in.expect("{");
    const auto format = in.field<std::string>("format");
    require<DataError>(format == kFormat, "its format is ", in_quotes(format));
    const auto version = in.field<std::uint64_t>("format_version");
    require<DataError>(version <= kVersion, "its format_version is ", version,
                       ", and this Lockstep reads ", kVersion,
                       ": it was written by a newer Lockstep");
    require<DataError>(version == kVersion, "its format_version is ", version);
    manifest.step = in.field<std::int64_t>("step");
    manifest.replicas = in.field<std::int64_t>("replicas");
    in.items("counts", "{}", [&](const Json& json, std::string_view /*line*/) {
      return line_of(add_entry(manifest.counts, json));
    });
    in.items("figures", "{}", [&](const Json& json, std::string_view line) {
      add_entry(manifest.figures, json);
      return std::string(line);  // other versions of the JSON library may write other digits
    });
    in.items("texts", "{}", [&](const Json& json, std::string_view /*line*/) {
      return line_of(add_entry(manifest.texts, json));
    });
    in.items("files", "[]", [&](const Json& json, std::string_view /*line*/) {
      return line_of(manifest.files.emplace_back(file_of(json)));
    });
    in.items("tensors", "[]", [&](const Json& json, std::string_view /*line*/) {
      return line_of(manifest.tensors.emplace_back(tensor_of(json)));
    });
    require<DataError>(in.at_end(), "more lines follow");
  } catch (const DataError& error) {
    refuse("line ", in.count(), ": ", error.what());
  }
  if (const std::string rule = rule_broken_by(manifest); !rule.empty()) refuse(rule);
  return manifest;
}

}  // namespace lockstep::storage
