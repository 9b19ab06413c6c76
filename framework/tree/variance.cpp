#include "framework/tree/variance.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/from_blob.h>

#include "framework/base/text.h"

namespace lockstep::tree {
namespace {

thread_local Variance* this_thread_variance = nullptr;

constexpr std::size_t kMostAxes = 64;

// Returns nullptr for a tensor without memory of its own.
const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

Variance::Variance(std::vector<std::string> axes, std::source_location where)
    : axes_(std::move(axes)), where_(where) {
  require(axes_.size() <= kMostAxes, "shard_map: check_vma follows at most ", kMostAxes,
          " axes, not ", axes_.size());
}

AxisSet Variance::all() const noexcept {
  return axes_.size() == kMostAxes ? ~AxisSet{0} : (AxisSet{1} << axes_.size()) - 1;
}

AxisSet Variance::set_of(const std::vector<std::string>& names) const {
  AxisSet set = 0;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if (std::find(names.begin(), names.end(), axes_[a]) != names.end()) set |= AxisSet{1} << a;
  }
  return set;
}

std::vector<std::string> Variance::names_of(AxisSet axes) const {
  std::vector<std::string> names;
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    if ((axes >> a & 1) != 0) names.push_back(axes_[a]);
  }
  return names;
}

AxisSet Variance::of(const at::Tensor& tensor) const {
  AxisSet axes = 0;
  const auto* storage = storage_of(tensor);
  while (storage != nullptr) {
    const auto found = entries_.find(storage);
    if (found == entries_.end()) break;
    axes |= found->second.axes;
    storage = found->second.aliased;
  }
  return axes;
}

bool Variance::knows(const at::Tensor& tensor) const {
  return entries_.count(storage_of(tensor)) > 0;
}

Variance::Entry& Variance::entry_of(const at::Tensor& tensor) {
  require(tensor.has_storage(), "shard_map (", where_.file_name(), ":", where_.line(),
          "): check_vma follows dense tensors only, not ", at::toString(tensor.layout()));
  if (entries_.size() >= swept_) {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.storage.expired(); });
    swept_ = std::max(swept_, 2 * entries_.size());
  }
  const auto* storage = storage_of(tensor);
  const auto found = entries_.find(storage);
  if (found != entries_.end()) return found->second;
  return entries_.emplace(storage, Entry{tensor.storage().getWeakStorageImpl()}).first->second;
}

void Variance::add(const at::Tensor& tensor, AxisSet axes) {
  if (tensor.defined()) entry_of(tensor).axes |= axes;
}

void Variance::add_written(const at::Tensor& tensor, AxisSet axes) {
  if (!tensor.defined()) return;
  for (Entry* entry = &entry_of(tensor);;) {
    entry->axes |= axes;
    const auto found = entries_.find(entry->aliased);
    if (found == entries_.end()) return;
    entry = &found->second;
  }
}

at::Tensor Variance::alias(const at::Tensor& tensor, AxisSet axes) {
  const Untracked untracked;
  const at::Tensor source = tensor.detach().resolve_conj().resolve_neg();
  const AxisSet own = of(tensor);
  (void)entry_of(source);  // an entry for writes through the alias
  const at::Tensor alias = at::from_blob(
      source.data_ptr(), source.sizes(), source.strides(), [source](void*) {}, source.options());
  alias.unsafeGetTensorImpl()->set_version_counter(source.unsafeGetTensorImpl()->version_counter());
  Entry& entry = entry_of(alias);
  entry.axes = own | axes;
  entry.aliased = storage_of(source);
  return alias;
}

Variance* current_variance() noexcept {
  return this_thread_variance;
}

VarianceScope::VarianceScope(Variance& variance) noexcept
    : ScopedValue(this_thread_variance, &variance), included_(kVarianceKey) {}

Untracked::Untracked() noexcept
    : ScopedValue(this_thread_variance, nullptr), excluded_(kVarianceKey) {}

}  // namespace lockstep::tree
