#include "framework/storage/export.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "framework/base/errors.h"
#include "framework/base/non_copyable.h"
#include "framework/base/text.h"
#include "framework/storage/file.h"
#include "framework/storage/safetensors.h"

namespace fs = std::filesystem;

namespace lockstep::storage {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
// Bytes of a tensor that are in memory at once: whole elements of any type.
constexpr std::uint64_t kPartInMemory = std::uint64_t{4} << 20;

struct NamedTensor {
  std::string name;  // in the file
  const ManifestTensor* tensor;
  std::uint64_t bytes;
};

// Returns the tensors to export, in the order of their names.
std::vector<NamedTensor> chosen(const CheckpointReader& reader, const ExportOptions& options) {
  const std::string folder = reader.folder().string();
  std::map<std::string, const ManifestTensor*> by_name;
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    for (const std::string& prefix : options.prefixes) {
      if (!tensor.name.starts_with(prefix)) continue;
      const auto [entry, is_new] = by_name.emplace(tensor.name.substr(prefix.size()), &tensor);
      require<DataError>(is_new, folder, ": '", cut(entry->second->name), "' and '",
                         cut(tensor.name), "' would have one name in the file");
    }
  }
  require<DataError>(!by_name.empty(), folder, " has no tensor whose name begins with ",
                     join(options.prefixes, " or "));
  bool has_others = options.instead.empty();
  for (const ManifestTensor& tensor : reader.manifest().tensors) {
    if (options.instead.empty() || !tensor.name.starts_with(options.instead)) continue;
    by_name[tensor.name.substr(options.instead.size())] = &tensor;
    has_others = true;
  }
  require<DataError>(has_others, folder, " has no tensor whose name begins with ", options.instead);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : by_name) {
    // The manifest has no tensor of more bytes than fit.
    tensors.push_back({name, tensor, *tensor_bytes(tensor->dtype, tensor->shape)});
  }
  return tensors;
}

using FileTensors = std::vector<NamedTensor>;

std::vector<FileTensors> cut_into_shards(const std::vector<NamedTensor>& tensors,
                                         std::uint64_t most) {
  std::vector<FileTensors> shards(1);
  std::uint64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) {
    if (most > 0 && !shards.back().empty() && tensor.bytes > most - std::min(bytes, most)) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor.bytes;
  }
  return shards;
}

fs::path shard_path(const fs::path& to, std::size_t index, std::size_t count) {
  if (count == 1) return to;
  const std::string number = formatted("-%05zu-of-%05zu", index + 1, count);
  return to.parent_path() / str(to.stem().string(), number, kSuffix);
}

[[noreturn]] void refuse_existing(const fs::path& path) {
  throw ValueError(
      str(path.string(), " exists already: name another file, or replace it with --force"));
}

// Files that are removed again unless keep() is called. With `replaces` they get their names there.
class NewFiles : private NonCopyable {
 public:
  explicit NewFiles(bool replaces) : replaces_(replaces) {}
  ~NewFiles() {
    std::error_code ignored;
    for (const fs::path& path : published_) fs::remove(path, ignored);
  }

  // Takes a file that is whole.
  void add(std::unique_ptr<NewFile> file, const fs::path& path) {
    if (replaces_) {
      whole_.push_back(std::move(file));
      return;
    }
    published_.reserve(published_.size() + 1);
    if (!file->publish()) refuse_existing(path);
    published_.push_back(path);
  }
  void keep() {
    for (const auto& file : whole_) file->publish_over();
    published_.clear();
  }

 private:
  bool replaces_;
  std::vector<std::unique_ptr<NewFile>> whole_;
  std::vector<fs::path> published_;
};

TensorSource source_of(const CheckpointReader& reader, const NamedTensor& named) {
  const auto write = [&reader, &tensor = *named.tensor, bytes = named.bytes](const NewFile& file) {
    std::string part;
    const std::uint64_t element = element_bytes(tensor.dtype);
    for (std::uint64_t at = 0; at < bytes; at += part.size()) {
      part.resize(std::min(kPartInMemory, bytes - at));
      reader.read(tensor, at / element, std::as_writable_bytes(std::span(part)));
      file.write(part);
    }
  };
  return {{.name = named.name, .dtype = named.tensor->dtype, .shape = named.tensor->shape}, write};
}

}  // namespace

Exported export_tensors(const CheckpointReader& reader, const fs::path& to,
                        const ExportOptions& options) {
  require(to.extension() == kSuffix, "'", to.string(), "': the file's name must end in ", kSuffix);
  const std::vector<NamedTensor> tensors = chosen(reader, options);
  const std::vector<FileTensors> shards = cut_into_shards(tensors, options.most_bytes);
  std::vector<fs::path> paths;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    paths.push_back(shard_path(to, i, shards.size()));
  }
  const fs::path index = to.string() + ".index.json";
  if (shards.size() > 1) paths.push_back(index);
  // Programs that load by the name would take an earlier export for the new one.
  const fs::path& other = shards.size() > 1 ? to : index;
  std::error_code unknown;
  require(!fs::exists(other, unknown), other.string(), " is of an earlier export in ",
          shards.size() > 1 ? "one file" : "several files",
          ": remove its files first, or name another file");
  std::vector<fs::path> targets = paths;  // the files to which links lead
  for (fs::path& path : targets) {
    std::error_code missing;
    if (!fs::exists(fs::symlink_status(path, missing))) continue;
    if (!options.replaces) refuse_existing(path);
    require(fs::is_regular_file(path, missing), path.string(),
            " is no file, and only files are replaced");
    path = fs::canonical(path);
  }
  reader.verify();

  Exported exported{.files = paths, .tensors = tensors.size(), .bytes = 0};
  for (const NamedTensor& tensor : tensors) exported.bytes += tensor.bytes;
  NewFiles files(options.replaces);
  nlohmann::ordered_json places = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    auto file = std::make_unique<NewFile>(targets[i]);
    write_tensors(
        *file, mapped(shards[i], [&](const NamedTensor& each) { return source_of(reader, each); }),
        options.metadata);
    files.add(std::move(file), targets[i]);
    for (const NamedTensor& each : shards[i]) places[each.name] = paths[i].filename().string();
  }
  if (shards.size() > 1) {
    const nlohmann::ordered_json written_index{{"metadata", {{"total_size", exported.bytes}}},
                                               {"weight_map", places}};
    auto file = std::make_unique<NewFile>(targets.back());
    file->write(written_index.dump(2) + "\n");
    files.add(std::move(file), targets.back());
  }
  files.keep();
  return exported;
}

}  // namespace lockstep::storage
