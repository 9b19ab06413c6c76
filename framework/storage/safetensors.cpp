#include "framework/storage/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>

#include "framework/base/element_type.h"
#include "framework/base/errors.h"
#include "framework/base/range.h"
#include "framework/base/stream_copy.h"
#include "framework/base/text.h"
#include "framework/storage/json_scanner.h"

namespace lockstep::storage {
namespace {

static_assert(std::endian::native == std::endian::little);

// The format's own limit.
constexpr std::uint64_t kLongestHeader = 100'000'000;
// Data begin at a multiple of this, so that they can be used where they are mapped.
constexpr std::size_t kAlignment = 64;
constexpr const char* kMetadata = "__metadata__";

constexpr const char* kNoFile = "not a safetensors file";

[[noreturn]] void refuse(const std::string& what) {
  throw DataError(str(kNoFile, ": ", what));
}

StoredTensor take_tensor(JsonScanner& in, const std::string& name) {
  StoredTensor tensor{.name = name};
  std::vector<std::uint64_t> offsets;
  int fields = 0;
  in.members([&](const std::string& field) {
    ++fields;
    if (field == "dtype") {
      tensor.dtype = in.next<std::string>();
    } else if (field == "shape") {
      tensor.shape = in.next<std::vector<std::uint64_t>>();
    } else if (field == "data_offsets") {
      offsets = in.next<std::vector<std::uint64_t>>();
    } else {
      refuse(str("tensor ", in_quotes(name), " has a field ", in_quotes(field)));
    }
  });
  if (fields != 3 || offsets.size() != 2) {
    refuse(str("tensor ", in_quotes(name), " lacks one of dtype, shape, two data_offsets"));
  }
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  return tensor;
}

// Puts tensors into the order of their bytes and checks that these fill the file.
void check_places(std::vector<StoredTensor>& tensors, std::uint64_t data_bytes) {
  std::ranges::stable_sort(
      tensors, {}, [](const StoredTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  std::uint64_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    // The file alone says how many bytes a tensor of an unknown dtype takes.
    const bool is_known = element_bytes(tensor.dtype) > 0;
    const auto bytes =
        is_known ? tensor_bytes(tensor.dtype, tensor.shape) : std::optional(tensor.bytes());
    if (tensor.begin != end || tensor.end < tensor.begin || bytes != tensor.bytes()) {
      refuse(str("tensor ", in_quotes(tensor.name), " is at bytes ", tensor.begin, " to ",
                 tensor.end, "; by its shape and dtype, and those before it, it should be at ", end,
                 " to ", bytes ? str(end + *bytes) : "beyond all files"));
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    refuse(str("its tensors take ", end, " bytes, and it has ", data_bytes));
  }
}

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  const auto type = stored_type(dtype);
  return type ? size_of(*type) : 0;
}

std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                          std::span<const std::uint64_t> shape) {
  return product_of(shape, element_bytes(dtype));
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

void write_tensors(const NewFile& file, std::vector<TensorSource> tensors,
                   std::map<std::string, std::string> metadata) {
  std::ranges::stable_sort(tensors, std::ranges::greater(), [](const TensorSource& source) {
    return element_bytes(source.tensor.dtype);
  });
  SafetensorsHeader header{.metadata = std::move(metadata),
                           .tensors = mapped(tensors, &TensorSource::tensor)};
  header.metadata["format"] = "pt";
  file.write(write_header(header));
  for (const TensorSource& source : tensors) source.write(file);
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes) {
  if (!text.starts_with('{')) refuse("its header does not begin with {");
  JsonScanner in(text, kNoFile);
  SafetensorsHeader header;
  in.members([&](const std::string& name) {
    if (name == kMetadata) {
      if (in.take("null")) return;  // MLX writes null for none
      in.members([&](const std::string& key) { header.metadata[key] = in.next<std::string>(); });
    } else {
      header.tensors.push_back(take_tensor(in, name));
    }
  });
  in.expect("");
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
