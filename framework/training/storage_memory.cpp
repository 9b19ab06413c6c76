#include "framework/training/storage_memory.h"

#include <cstddef>
#include <memory>

#include <ATen/ops/from_blob.h>

namespace lockstep::training {

void set_storage_memory(const c10::Storage& storage, const at::Tensor& memory) {
  auto owner = std::make_unique<at::Tensor>(memory);
  void* const address = memory.data_ptr();
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(
      address, owner.release(), [](void* kept) { delete static_cast<at::Tensor*>(kept); },
      c10::Device(c10::kCPU)));
}

at::Tensor lent_part(const at::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes) {
  auto* const begin =
      static_cast<std::byte*>(flat.data_ptr()) + static_cast<std::size_t>(offset) * flat.itemsize();
  return at::from_blob(
      begin, sizes, [flat](void*) {}, flat.options());
}

bool leave_values(const at::Tensor& lent) {
  if (lent.use_count() == 1 && lent.storage().use_count() == 1) return false;
  set_storage_memory(lent.storage(), lent.detach().clone());
  return true;
}

}  // namespace lockstep::training
