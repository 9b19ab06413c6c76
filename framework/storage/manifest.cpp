#include "framework/storage/manifest.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/storage/checksum.h"
#include "framework/storage/json_scanner.h"
#include "framework/storage/safetensors.h"

namespace lockstep::storage {
namespace {

constexpr const char* kFormat = "lockstep-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kDigits = 16;  // of a Checksum

constexpr const char* kNoManifest = "not a checkpoint's manifest";

std::string checksum_of(std::string_view text) {
  return hexadecimal(storage::checksum_of(std::as_bytes(std::span(text))), kDigits);
}

// Returns the end of a manifest with this checksum.
std::string ending(const std::string& checksum) {
  return ",\n  \"checksum\": \"" + checksum + "\"\n}\n";
}

// Returns the rule that a file breaks; "" for none.
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

// Takes a text, which is the list of its bytes if it is no UTF-8.
std::string take_text(JsonScanner& in) {
  if (!in.is_next("[")) return in.next<std::string>();
  const auto bytes = in.next<std::vector<std::uint8_t>>();
  return {bytes.begin(), bytes.end()};
}

ManifestFile take_file(JsonScanner& in) {
  ManifestFile file;
  in.field("{", "name", file.name);
  in.field(",", "bytes", file.bytes);
  in.field(",", "checksum", file.checksum);
  in.expect("}");
  return file;
}

ManifestTensor take_tensor(JsonScanner& in) {
  ManifestTensor tensor;
  in.field("{", "name", tensor.name);
  in.field(",", "dtype", tensor.dtype);
  in.field(",", "shape", tensor.shape);
  in.field(",", "pieces");
  in.items("[]", [&] {
    ManifestPiece& piece = tensor.pieces.emplace_back();
    in.expect("[");
    piece.file = in.next<std::size_t>();
    in.expect(",");
    piece.offset = in.next<std::uint64_t>();
    in.expect(",");
    piece.size = in.next<std::uint64_t>();
    in.expect("]");
  });
  in.expect("}");
  return tensor;
}

template <typename Items, typename Take>
void take_lines(JsonScanner& in, const char* field, Items& items, const Take& take) {
  in.field(",", field);
  in.items("[]", [&] {
    (void)in.is_next("");  // blanks before a line are no part of it
    const std::size_t begin = in.taken();
    items.push_back(take(in));
    const std::string rule = rule_broken_by_line(in.taken() - begin);
    if (!rule.empty()) in.refuse(rule);
  });
}

template <typename Value>
std::string json_of(const Value& value) {
  return nlohmann::json(value).dump();
}

// Returns a text as JSON, which takes UTF-8 alone: another text becomes the list of its bytes.
std::string json_of(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return nlohmann::json(std::vector<std::uint8_t>(text.begin(), text.end())).dump();
  }
}

// Returns a name as JSON. Throws nlohmann::json::type_error unless it is UTF-8.
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

// Adds a list or an object, as the brackets say, with a line for each item.
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
  const std::size_t end =
      text.size() - std::min(text.size(), ending(std::string(kDigits, '0')).size());
  const std::string checksum = checksum_of(text.substr(0, end));
  JsonScanner in(text.substr(0, end), kNoManifest);
  if (text.substr(end) != ending(checksum)) {
    in.refuse(str("it is damaged or cut short: it does not end with ", checksum,
                  ", the checksum of its bytes"));
  }
  Manifest manifest;
  std::string format;
  in.field("{", "format", format);
  if (format != kFormat) in.refuse(str("its format is ", in_quotes(format)));
  std::uint64_t version = 0;
  in.field(",", "format_version", version);
  if (version > kVersion) {
    in.refuse(str("its format_version is ", version, ", and this Lockstep reads ", kVersion,
                  ": it was written by a newer Lockstep"));
  }
  if (version < kVersion) in.refuse(str("its format_version is ", version));
  in.field(",", "step", manifest.step);
  in.field(",", "replicas", manifest.replicas);
  in.field(",", "counts");
  in.members([&](const auto& name) { manifest.counts[name] = in.next<std::int64_t>(); });
  in.field(",", "figures");
  in.members([&](const auto& name) { manifest.figures[name] = in.next<double>(); });
  in.field(",", "texts");
  in.members([&](const auto& name) { manifest.texts[name] = take_text(in); });
  take_lines(in, "files", manifest.files, take_file);
  take_lines(in, "tensors", manifest.tensors, take_tensor);
  in.expect("");
  if (const std::string rule = rule_broken_by(manifest); !rule.empty()) in.refuse(rule);
  return manifest;
}

}  // namespace lockstep::storage
