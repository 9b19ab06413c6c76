#include "framework/storage/manifest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/storage/checksum.h"
#include "framework/storage/safetensors.h"

namespace lockstep::storage {
namespace {

constexpr const char* kFormat = "lockstep-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kDigits = 16;  // of a Checksum

// The fields of the manifest, of a file and of a tensor, in their order.
constexpr std::array<std::string_view, 10> kFields{"format",  "format_version", "step",  "replicas",
                                                   "counts",  "figures",        "texts", "files",
                                                   "tensors", "checksum"};
constexpr std::array<std::string_view, 3> kFileFields{"name", "bytes", "checksum"};
constexpr std::array<std::string_view, 4> kTensorFields{"name", "dtype", "shape", "pieces"};

[[noreturn]] void refuse_manifest(const std::string& rule) {
  throw DataError("not a checkpoint's manifest: " + rule);
}

// No more than a line of a foreign text is shown.
std::string in_quotes(std::string_view text) {
  return str("'", cut(text), "'");
}

std::string checksum_of(std::string_view text) {
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(text)));
  return checksum.text();
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

// Takes what the JSON parser finds, as it finds it: nothing is built from what does not belong
// there.
class ManifestParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  [[nodiscard]] Manifest take() { return std::move(manifest_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_float(number_float_t value, const string_t&) override {
    if (in_ != In::figures) unexpected("a fraction, or an integer beyond 64 bits,");
    add(manifest_.figures, value);
    return true;
  }

  bool number_integer(number_integer_t value) override {
    if (in_ != In::counts) unexpected("a negative number");
    add(manifest_.counts, value);
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (in_ == In::counts) {
      add(manifest_.counts, in_63_bits(value));
    } else if (in_ == In::bytes) {
      if (value > std::numeric_limits<std::uint8_t>::max()) unexpected("a number beyond a byte");
      manifest_.texts[field_] += static_cast<char>(value);
    } else if (in_ == In::shape) {
      tensor().shape.push_back(value);
    } else if (in_ == In::piece) {
      if (numbers_ == piece_.size()) unexpected("more than three numbers");
      piece_[numbers_++] = value;
    } else if (in_ == In::file && field_ == "bytes") {
      file().bytes = value;
    } else if (in_ == In::top && field_ == "step") {
      manifest_.step = in_63_bits(value);
    } else if (in_ == In::top && field_ == "replicas") {
      manifest_.replicas = in_63_bits(value);
    } else if (in_ == In::top && field_ == "format_version") {
      check_version(value);
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (in_ == In::texts) {
      add(manifest_.texts, std::move(value));
    } else if (in_ == In::file && field_ == "name") {
      file().name = std::move(value);
    } else if (in_ == In::file && field_ == "checksum") {
      file().checksum = std::move(value);
    } else if (in_ == In::tensor && field_ == "name") {
      tensor().name = std::move(value);
    } else if (in_ == In::tensor && field_ == "dtype") {
      tensor().dtype = std::move(value);
    } else if (in_ == In::top && field_ == "format") {
      if (value != kFormat) refuse_manifest(str("its format is ", in_quotes(value)));
    } else if (in_ != In::top || field_ != "checksum") {  // that was compared before
      unexpected("a string");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (in_ == In::top) check_order(kFields, fields_, name);
    if (in_ == In::file) check_order(kFileFields, inner_fields_, name);
    if (in_ == In::tensor) check_order(kTensorFields, inner_fields_, name);
    field_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) override {
    inner_fields_ = 0;
    if (in_ == In::start) {
      in_ = In::top;
    } else if (in_ == In::top && field_ == "counts") {
      in_ = In::counts;
    } else if (in_ == In::top && field_ == "figures") {
      in_ = In::figures;
    } else if (in_ == In::top && field_ == "texts") {
      in_ = In::texts;
    } else if (in_ == In::files) {
      manifest_.files.emplace_back();
      in_ = In::file;
    } else if (in_ == In::tensors) {
      manifest_.tensors.emplace_back();
      in_ = In::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (in_ == In::top) check_end(kFields, fields_);
    if (in_ == In::file) check_end(kFileFields, inner_fields_);
    if (in_ == In::tensor) check_end(kTensorFields, inner_fields_);
    leave();
    return true;
  }

  bool start_array(std::size_t) override {
    if (in_ == In::top && field_ == "files") {
      in_ = In::files;
    } else if (in_ == In::top && field_ == "tensors") {
      in_ = In::tensors;
    } else if (in_ == In::tensor && field_ == "shape") {
      in_ = In::shape;
    } else if (in_ == In::tensor && field_ == "pieces") {
      in_ = In::pieces;
    } else if (in_ == In::pieces) {
      numbers_ = 0;
      in_ = In::piece;
    } else if (in_ == In::texts) {
      add(manifest_.texts, std::string());
      in_ = In::bytes;
    } else {
      unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    if (in_ == In::piece) {
      if (numbers_ != piece_.size()) unexpected("fewer than three numbers");
      const auto [file, offset, size] = piece_;
      tensor().pieces.push_back({.file = file, .offset = offset, .size = size});
    }
    leave();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse_manifest(str("it is no JSON at byte ", position));
  }

 private:
  // The innermost object or list that has begun.
  enum class In {
    start,
    top,
    counts,
    figures,
    texts,
    bytes,  // of a text
    files,
    file,
    tensors,
    tensor,
    shape,
    pieces,
    piece
  };

  void leave() {
    switch (in_) {
      case In::file:
        in_ = In::files;
        break;
      case In::tensor:
        in_ = In::tensors;
        break;
      case In::shape:
      case In::pieces:
        in_ = In::tensor;
        break;
      case In::piece:
        in_ = In::pieces;
        break;
      case In::bytes:
        in_ = In::texts;
        break;
      default:
        in_ = In::top;
    }
  }

  ManifestFile& file() { return manifest_.files.back(); }
  ManifestTensor& tensor() { return manifest_.tensors.back(); }

  template <typename Map, typename Value>
  void add(Map& map, Value value) {
    if (!map.emplace(field_, std::move(value)).second) {
      refuse_manifest(str(in_quotes(field_), " stands twice"));
    }
  }

  [[nodiscard]] std::int64_t in_63_bits(std::uint64_t value) const {
    if (value > std::numeric_limits<std::int64_t>::max()) unexpected("a number beyond 63 bits");
    return static_cast<std::int64_t>(value);
  }

  static void check_version(std::uint64_t version) {
    if (version > kVersion) {
      refuse_manifest(str("its format_version is ", version, ", and this Lockstep reads ", kVersion,
                          ": it was written by a newer Lockstep"));
    }
    if (version < kVersion) refuse_manifest(str("its format_version is ", version));
  }

  // Checks that `name` is the next of an object's fields, of which `count` have come.
  void check_order(std::span<const std::string_view> fields, std::size_t& count,
                   std::string_view name) const {
    if (count == fields.size()) refuse_manifest(str("it has ", in_quotes(name), " too much"));
    if (fields[count] != name) {
      refuse_manifest(str("it has ", in_quotes(name), " where '", fields[count], "' should be"));
    }
    ++count;
  }
  void check_end(std::span<const std::string_view> fields, std::size_t count) const {
    if (count < fields.size()) refuse_manifest(str("it lacks '", fields[count], "'"));
  }

  [[noreturn]] void unexpected(const char* what) const {
    refuse_manifest(str("it has ", what, " as ", field_.empty() ? "a whole" : in_quotes(field_)));
  }

  Manifest manifest_;
  In in_ = In::start;
  std::string field_;             // the last key
  std::size_t fields_ = 0;        // so far, of the manifest …
  std::size_t inner_fields_ = 0;  // … and of the file or tensor in it
  std::array<std::uint64_t, 3> piece_{};
  std::size_t numbers_ = 0;  // of it, so far
};

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
  std::ostringstream line;
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
    text += before + line_of(item);
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

Manifest parse_manifest(std::string_view text) {
  const std::size_t end =
      text.size() - std::min(text.size(), ending(std::string(kDigits, '0')).size());
  const std::string checksum = checksum_of(text.substr(0, end));
  if (text.substr(end) != ending(checksum)) {
    refuse_manifest(str("it is damaged or cut short: it does not end with ", checksum,
                        ", the checksum of its bytes"));
  }
  ManifestParser parser;
  nlohmann::json::sax_parse(text, &parser);
  Manifest manifest = parser.take();
  if (const std::string rule = rule_broken_by(manifest); !rule.empty()) refuse_manifest(rule);
  return manifest;
}

}  // namespace lockstep::storage
