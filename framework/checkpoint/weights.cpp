#include "framework/checkpoint/weights.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <span>
#include <system_error>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/text.h"
#include "framework/collectives/message.h"
#include "framework/formats/json_text.h"
#include "framework/storage/checkpoint_folder.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/file.h"
#include "framework/storage/safetensors.h"
#include "framework/training/process_generator.h"
#include "framework/training/state.h"

namespace fs = std::filesystem;

namespace lockstep {

namespace {

// Elements that are converted at once.
constexpr std::int64_t kPart = std::int64_t{1} << 20;

std::optional<at::ScalarType> type_named(const std::string& dtype) {
  const auto type = stored_type(dtype);
  return type ? collectives::find_scalar_type(*type) : std::nullopt;
}

// Adds all tensors of a file, or those of `names`.
void add_file(Weights::Entries& entries, const fs::path& path,
              const std::optional<std::set<std::string>>& names = {}) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw DataError(
        str(path.string(), error ? ": " + text_of_errno(error.value()) : " is no regular file"));
  }
  const auto file = std::make_shared<storage::SafetensorsFile>(path);
  for (const storage::StoredTensor& tensor : file->header().tensors) {
    if (names && !names->contains(tensor.name)) continue;
    const auto read = [file, &tensor](std::uint64_t element, Bytes to) {
      file->read(tensor, element * storage::element_bytes(tensor.dtype), to);
    };
    entries[tensor.name] = {tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}, read};
  }
}

void add_checkpoint(Weights::Entries& entries, const fs::path& folder, ParameterValues which) {
  const auto reader = std::make_shared<storage::CheckpointReader>(folder);
  // Later ones replace earlier ones of the same name.
  std::vector<std::string> prefixes{training::kParameters, training::kBuffers};
  if (which == ParameterValues::averaged) prefixes.push_back(training::kAverages);
  for (const std::string& prefix : prefixes) {
    for (const storage::ManifestTensor& tensor : reader->manifest().tensors) {
      if (!tensor.name.starts_with(prefix)) continue;
      const auto read = [reader, &tensor](std::uint64_t element, Bytes to) {
        reader->read(tensor, element, to);
      };
      entries[tensor.name.substr(prefix.size())] = {
          tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}, read};
    }
  }
}

// The files that an index names, by file, with the tensors that it says they have.
std::map<std::string, std::set<std::string>> read_index(const fs::path& path) {
  constexpr std::uint64_t kLongest = 32'000'000;
  const File in(path, O_RDONLY);
  if (in.size() > kLongest) throw DataError(str(path.string(), " is no index: too long"));
  std::string text(in.size(), '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  const auto json = formats::parse_json<nlohmann::json>(text);
  const auto check = [&](bool is_right) {
    require<DataError>(is_right, path.string(),
                       " is no index: expected JSON with a weight_map of tensors to files");
  };
  check(json.is_object() && json.contains("weight_map"));
  const auto& map = json.at("weight_map");
  check(map.is_object() && !map.empty());
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, file] : map.items()) {
    check(file.is_string());
    const auto name = file.get<std::string>();
    check(!name.empty());
    require<DataError>(fs::path(name).filename() == name, path.string(), " names the file '",
                       cut(name), "': files must be beside the index");
    files[name].insert(tensor);
  }
  return files;
}

Weights::Entries open_weights(const fs::path& named, ParameterValues which) {
  const fs::path path = storage::CheckpointFolder::resolved(named);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  require<DataError>(fs::exists(status), path.string(), ": ", text_of_errno(error.value()));
  Weights::Entries entries;
  if (fs::is_directory(status)) {
    add_checkpoint(entries, path, which);
    return entries;
  }
  if (!fs::is_regular_file(status)) throw DataError(str(path.string(), " is no regular file"));
  if (!path.string().ends_with(".index.json")) {
    add_file(entries, path);
    return entries;
  }
  for (const auto& [file, tensors] : read_index(path)) {
    add_file(entries, path.parent_path() / file, tensors);
    for (const std::string& tensor : tensors) {
      require<DataError>(entries.contains(tensor), path.string(), " says that '", cut(tensor),
                         "' is in ", file, ", which does not have it");
    }
  }
  return entries;
}

// Whether it has the shape, and values that can become ones of the tensor's dtype.
bool fits(const Weights::Entry& entry, const at::Tensor& tensor) {
  const auto stored = type_named(entry.dtype);
  return stored && tensor.sizes() == entry.shape &&
         (*stored == tensor.scalar_type() ||
          (at::isFloatingType(*stored) && tensor.is_floating_point()));
}

std::string misfit_text(const std::string& name, const Weights::Entry& entry,
                        const at::Tensor& tensor) {
  if (!type_named(entry.dtype)) {
    return lockstep::str("'", cut(name), "' is ", cut(entry.dtype), ", a dtype that can't be read");
  }
  const auto type = collectives::find_element_type(tensor.scalar_type());
  return lockstep::str(
      "'", cut(name), "' is ", entry.dtype, " (", join(entry.shape), "), not ",
      type ? std::string(names_of(*type).stored) : lockstep::str(tensor.scalar_type()), " (",
      join(tensor.sizes()), ")");
}

// The names in the weights, by the module's names for them. Those that are passed over have none.
std::map<std::string, std::vector<std::string>> stored_names(const Weights& weights,
                                                             const torch::nn::Module& module) {
  const auto* const renamed = dynamic_cast<const StoredNames*>(&module);
  std::map<std::string, std::vector<std::string>> stored;
  for (const auto& [name, entry] : weights.entries()) {
    const std::optional<std::string> own = renamed == nullptr ? name : renamed->own_name(name);
    if (own && !weights.leaves_out(*own)) stored[*own].push_back(name);
  }
  return stored;
}

// A tensor of a module, with all of its names, and those that some weights have it under.
struct ModuleTensor {
  at::Tensor tensor;
  std::vector<std::string> names;
  std::vector<std::string> stored{};
};

std::vector<ModuleTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<ModuleTensor> tensors;
  std::map<const void*, std::size_t> known;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [place, is_new] = known.emplace(tensor.unsafeGetTensorImpl(), tensors.size());
    if (is_new) tensors.push_back({tensor, {}});
    tensors[place->second].names.push_back(name);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return tensors;
}

std::vector<ModuleTensor> found_tensors(const Weights& weights, const torch::nn::Module& module) {
  const auto stored = stored_names(weights, module);
  std::vector<ModuleTensor> tensors = tensors_of(module);
  for (ModuleTensor& found : tensors) {
    for (const std::string& name : found.names) {
      const auto names = stored.find(name);
      if (names != stored.end()) std::ranges::copy(names->second, std::back_inserter(found.stored));
    }
  }
  return tensors;
}

// What of a tensor a file is to have.
storage::TensorSource source_of(const ModuleTensor& each) {
  const at::Tensor& tensor = each.tensor;
  const std::string& name = each.names.front();
  const auto check = [&](bool holds, const auto&... rule) {
    lockstep::require(holds, "save_safetensors: '", cut(name), "' ", rule...);
  };
  check(!tensor.is_meta(),
        "is on the meta device, without values: of a trainer's module call it while "
        "ZeroTrainer::whole_parameters() lives");
  check(tensor.layout() == at::kStrided, "is sparse, which the format has not");
  const auto type = collectives::find_element_type(tensor.scalar_type());
  check(type.has_value(), "is ", c10::toString(tensor.scalar_type()), ", which the format has not");
  const auto write = [tensor = tensor](const NewFile& file) {
    const at::Tensor whole = tensor.detach().cpu().contiguous();
    const ConstBytes bytes = collectives::bytes_of(whole);
    file.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  return {{.name = name,
           .dtype = std::string(names_of(*type).stored),
           .shape = {tensor.sizes().begin(), tensor.sizes().end()}},
          write};
}

// Fills `to`, which the weights have under all of these names.
void read_alike(const Weights& weights, const std::vector<std::string>& names,
                const at::Tensor& to) {
  weights.read(names.front(), to);
  for (std::size_t i = 1; i < names.size(); ++i) {
    const at::Tensor other = at::empty(to.sizes(), to.dtype());
    weights.read(names[i], other);
    lockstep::require<DataError>(other.equal(to), "weights: '", cut(names.front()), "' and '",
                                 cut(names[i]),
                                 "' are one tensor of the module, but their values differ");
  }
}

}  // namespace

Weights::Weights(const fs::path& path, ParameterValues which) {
  try {
    entries_ = open_weights(path, which);
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(error.what());
  }
}

bool Weights::leaves_out(const std::string& own_name) const {
  return std::ranges::any_of(
      left_out_, [&](const auto& pattern) { return matches_pattern(pattern, own_name); });
}

void Weights::read(const std::string& name, const at::Tensor& to) const {
  const auto entry = entries().find(name);
  require(entry != entries().end(), "weights: there is no '", cut(name), "'");
  require(fits(entry->second, to), "weights: ", misfit_text(name, entry->second, to));
  const c10::AutoGradMode no_grad(false);
  const at::Tensor target = to.is_contiguous() ? to : at::empty(to.sizes(), to.dtype());
  const at::Tensor flat = target.view(-1);
  const auto type = *type_named(entry->second.dtype);
  for (std::int64_t at = 0; at < flat.numel(); at += kPart) {
    const at::Tensor part = flat.narrow(0, at, std::min(kPart, flat.numel() - at));
    const at::Tensor stored =
        type == part.scalar_type() ? part : at::empty(part.sizes(), part.options().dtype(type));
    entry->second.read(static_cast<std::uint64_t>(at), collectives::bytes_of(stored));
    if (!stored.is_same(part)) part.copy_(stored);
  }
  if (!target.is_same(to)) to.copy_(target);
}

std::string WeightDifferences::text() const {
  std::string all;
  const auto add = [&](const char* title, const std::vector<std::string>& names) {
    if (!names.empty()) all += lockstep::str(all.empty() ? "" : "; ", title, ": ", listed(names));
  };
  add("missing", missing);
  add("unexpected", unexpected);
  add("of another shape or dtype", misshapen);
  return all;
}

WeightDifferences compare_weights(const Weights& weights, const torch::nn::Module& module) {
  WeightDifferences differences;
  auto unknown = stored_names(weights, module);
  for (const auto& [tensor, names, stored] : found_tensors(weights, module)) {
    for (const std::string& own : names) unknown.erase(own);
    const bool is_wanted =
        std::ranges::none_of(names, [&](const auto& own) { return weights.leaves_out(own); });
    if (stored.empty() && is_wanted) differences.missing.push_back(names.front());
    for (const std::string& name : stored) {
      const auto& entry = weights.entries().at(name);
      if (fits(entry, tensor)) continue;
      differences.misshapen.push_back(misfit_text(name, entry, tensor));
    }
  }
  for (const auto& [own, stored] : unknown) {
    for (const std::string& name : stored) differences.unexpected.push_back(cut(name));
  }
  return differences;
}

void copy_weights(const Weights& weights, torch::nn::Module& module) {
  bool has_all = true;
  for (const auto& [tensor, names, stored] : found_tensors(weights, module)) {
    has_all = has_all && !stored.empty();
    if (tensor.is_meta() || stored.empty()) continue;
    read_alike(weights, stored, tensor);
  }
  // Nothing is left of what the module was initialized with.
  if (has_all) DrawWatch::note_initialization();
}

at::Tensor weight_of(const Weights& weights, const torch::nn::Module& module,
                     const std::string& name) {
  for (const auto& [tensor, names, stored] : found_tensors(weights, module)) {
    if (stored.empty() || std::ranges::count(names, name) == 0) continue;
    const bool is_wide = tensor.scalar_type() == at::kDouble;
    const at::Tensor values = at::empty(tensor.sizes(), is_wide ? at::kDouble : at::kFloat);
    read_alike(weights, stored, values);
    return values;
  }
  return {};
}

void load_safetensors(const fs::path& file, torch::nn::Module& module, ParameterValues which) {
  const Weights weights(file, which);
  const fs::path checkpoint = storage::CheckpointFolder::resolved(file);
  std::error_code missing;
  if (fs::is_directory(checkpoint, missing)) storage::CheckpointReader(checkpoint).verify();
  const WeightDifferences differences = compare_weights(weights, module);
  lockstep::require<DataError>(differences.empty(), file.string(),
                               " does not fit the module: ", differences.text());
  copy_weights(weights, module);
}

void save_safetensors(const torch::nn::Module& module, const fs::path& file) {
  std::vector<storage::TensorSource> sources = mapped(tensors_of(module), source_of);
  NewFile made(file);
  storage::write_tensors(made, std::move(sources));
  made.publish_over();
}

}  // namespace lockstep
