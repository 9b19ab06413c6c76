#include "framework/storage/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/round_up.h"
#include "framework/base/stream_copy.h"
#include "framework/base/text.h"

namespace lockstep::storage {
namespace {

static_assert(std::endian::native == std::endian::little);

// The format's own limit.
constexpr std::uint64_t kLongestHeader = 100'000'000;
// Data begin at a multiple of this, so that they can be used where they are mapped.
constexpr std::size_t kAlignment = 64;
constexpr const char* kMetadata = "__metadata__";

[[noreturn]] void refuse(const std::string& what) {
  throw DataError("not a safetensors file: " + what);
}

// No more than this of a foreign text is shown.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  return text.size() <= kMost ? str("'", text, "'") : str("'", text.substr(0, kMost), "…'");
}

// Takes what the JSON parser finds, as it finds it: nothing is built from what does not belong
// there.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  [[nodiscard]] SafetensorsHeader take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ != At::numbers) unexpected("a number");
    if (field_ == "shape") {
      tensor().shape.push_back(value);
    } else {
      if (offsets_ == 2) refuse(str("tensor ", shown(tensor().name), " has more than two offsets"));
      (offsets_ == 0 ? tensor().begin : tensor().end) = value;
      ++offsets_;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::metadata_value) {
      header_.metadata[field_] = std::move(value);
      at_ = At::metadata;
    } else if (at_ == At::field && field_ == "dtype") {
      tensor().dtype = std::move(value);
      at_ = At::tensor;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool key(string_t& name) override {
    if (!(at_ == At::top ? names_ : fields_).insert(name).second) {
      refuse(str(shown(name), " stands twice"));
    }
    field_ = name;
    if (at_ == At::metadata) {
      at_ = At::metadata_value;
    } else if (at_ == At::top) {
      at_ = At::entry;
    } else if (name == "dtype" || name == "shape" || name == "data_offsets") {
      at_ = At::field;
    } else {
      refuse(str("tensor ", shown(tensor().name), " has a field ", shown(name)));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    fields_.clear();
    offsets_ = 0;
    if (at_ == At::start) {
      at_ = At::top;
    } else if (at_ == At::entry && field_ == kMetadata) {
      at_ = At::metadata;
    } else if (at_ == At::entry) {
      header_.tensors.emplace_back();
      header_.tensors.back().name = field_;
      at_ = At::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (at_ == At::tensor && (fields_.size() != 3 || offsets_ != 2)) {
      refuse(str("tensor ", shown(tensor().name), " lacks one of dtype, shape, two data_offsets"));
    }
    at_ = At::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ != At::field || field_ == "dtype") unexpected("a list");
    at_ = At::numbers;
    return true;
  }
  bool end_array() override {
    at_ = At::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    refuse(str("its header is no JSON at byte ", position));
  }

 private:
  // What is expected next: keys of an object, or the value of one.
  enum class At { start, top, entry, metadata, metadata_value, tensor, field, numbers };

  StoredTensor& tensor() { return header_.tensors.back(); }
  [[noreturn]] void unexpected(const char* what) const {
    refuse(str("its header has ", what, " as ", field_.empty() ? "a whole" : shown(field_)));
  }

  SafetensorsHeader header_;
  At at_ = At::start;
  std::string field_;                          // the last key
  std::set<std::string, std::less<>> names_;   // keys so far, of the header …
  std::set<std::string, std::less<>> fields_;  // … and of the object in it
  int offsets_ = 0;
};

// Puts tensors into the order of their bytes and checks that these fill the file.
void check_places(std::vector<StoredTensor>& tensors, std::uint64_t data_bytes) {
  std::ranges::stable_sort(
      tensors, {}, [](const StoredTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  std::uint64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    if (element_bytes(tensor.dtype) == 0) {
      refuse(str("tensor ", shown(tensor.name), " has the dtype ", shown(tensor.dtype)));
    }
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (tensor.begin != end || tensor.end < tensor.begin || bytes != tensor.bytes()) {
      refuse(str("tensor ", shown(tensor.name), " is at bytes ", tensor.begin, " to ", tensor.end,
                 "; by its shape and dtype, and those before it, it should be at ", end, " to ",
                 bytes ? str(end + *bytes) : "beyond all files"));
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    refuse(str("its tensors take ", end, " bytes, and it has ", data_bytes));
  }
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::size_t>, 15> kTypes{{{"F64", 8},
                                                                                    {"F32", 4},
                                                                                    {"F16", 2},
                                                                                    {"BF16", 2},
                                                                                    {"F8_E5M2", 1},
                                                                                    {"F8_E4M3", 1},
                                                                                    {"I64", 8},
                                                                                    {"I32", 4},
                                                                                    {"I16", 2},
                                                                                    {"I8", 1},
                                                                                    {"U64", 8},
                                                                                    {"U32", 4},
                                                                                    {"U16", 2},
                                                                                    {"U8", 1},
                                                                                    {"BOOL", 1}}};
  const auto* const found =
      std::ranges::find(kTypes, dtype, &std::pair<std::string_view, std::size_t>::first);
  return found == kTypes.end() ? 0 : found->second;
}

std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                          std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = element_bytes(dtype);
  if (std::ranges::count(shape, 0U) > 0) return 0;
  for (const std::uint64_t size : shape) {
    if (bytes > std::numeric_limits<std::int64_t>::max() / size) return std::nullopt;
    bytes *= size;
  }
  return bytes;
}

std::string write_header(SafetensorsHeader& header) {
  // Joined by hand: an ordered object looks at all of its names for each new one.
  std::string text = "{";
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& value) {
    try {
      text += str(text.size() > 1 ? "," : "", nlohmann::json(name).dump(), ":", value.dump());
    } catch (const nlohmann::json::type_error&) {
      throw ValueError("safetensors: a name or a text of the metadata is no UTF-8");
    }
  };
  if (!header.metadata.empty()) add(kMetadata, header.metadata);
  std::set<std::string, std::less<>> names;
  std::uint64_t end = 0;
  for (StoredTensor& tensor : header.tensors) {
    require(element_bytes(tensor.dtype) > 0, "safetensors: tensor '", tensor.name,
            "' has the dtype '", tensor.dtype, "'");
    require(tensor.name != kMetadata, "safetensors: a tensor can't have the name '", kMetadata,
            "'");
    require(names.insert(tensor.name).second, "safetensors: the name '", tensor.name,
            "' stands twice");
    const auto bytes = tensor_bytes(tensor.dtype, tensor.shape);
    require(bytes && *bytes <= std::numeric_limits<std::int64_t>::max() - end,
            "safetensors: tensor '", tensor.name, "' is too large");
    tensor.begin = end;
    tensor.end = end += *bytes;
    add(tensor.name, {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {tensor.begin, tensor.end}}});
  }
  text += '}';
  const std::uint64_t length = round_up(text.size() + sizeof length, kAlignment) - sizeof length;
  require(length <= kLongestHeader, "safetensors: the header of ",
          counted(static_cast<std::int64_t>(header.tensors.size()), "tensor"), " has ", length,
          " bytes, and the longest has ", kLongestHeader);
  text.resize(length, ' ');
  std::string whole(sizeof length, '\0');
  std::memcpy(whole.data(), &length, sizeof length);
  return whole + text;
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes) {
  if (!text.starts_with('{')) refuse("its header does not begin with {");
  HeaderReader reader;
  nlohmann::json::sax_parse(text, &reader);
  SafetensorsHeader header = reader.take();
  check_places(header.tensors, data_bytes);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path, O_RDONLY) {
  try {
    const std::uint64_t size = file_.size();
    std::uint64_t length = 0;
    if (size < sizeof length) refuse(str("it has ", size, " bytes"));
    file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
    if (length > size - sizeof length || length > kLongestHeader) {
      refuse(str("its header should have ", length, " bytes, and the file has ", size));
    }
    std::string text(length, '\0');
    file_.read(sizeof length, std::as_writable_bytes(std::span(text)));
    data_ = sizeof length + length;
    header_ = parse_header(text, size - data_);
    for (const StoredTensor& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
  } catch (const DataError& error) {
    throw DataError(str(path.string(), ": ", error.what()));
  }
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void SafetensorsFile::read(const StoredTensor& tensor, std::uint64_t offset, Bytes to) const {
  require(offset <= tensor.bytes() && to.size() <= tensor.bytes() - offset, "safetensors: bytes ",
          offset, " to ", offset + to.size(), " of tensor '", tensor.name, "', which has ",
          tensor.bytes());
  file_.look(data_ + tensor.begin + offset, to.size(), [&](ConstBytes part) {
    stream_copy(part, to);
    to = to.subspan(part.size());
  });
}

}  // namespace lockstep::storage
