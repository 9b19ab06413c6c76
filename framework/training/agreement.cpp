#include "framework/training/agreement.h"

#include <cstdint>
#include <functional>
#include <string_view>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/message.h"

namespace lockstep {

void start_alike(const std::vector<at::Tensor>& tensors, const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.detach();
    const at::Tensor message = values.contiguous();
    pbroadcast_(message, axis_name, 0);
    if (!message.is_same(values)) values.copy_(message);
  }
}

void check_agreement(const std::vector<std::string>& names, const std::vector<at::Tensor>& tensors,
                     const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  const auto count = static_cast<std::int64_t>(tensors.size());
  const at::Tensor hashes = at::empty({count}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor values = as_message(tensors[static_cast<std::size_t>(i)].detach());
    const auto bytes = bytes_of(values);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    hashes.data_ptr<std::int64_t>()[i] =
        static_cast<std::int64_t>(std::hash<std::string_view>{}(text));
  }
  const at::Tensor all = all_gather(hashes, axis_name);  // (replicas, tensors)
  const auto* const values = all.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> different;
    for (std::int64_t replica = 1; replica < all.size(0); ++replica) {
      if (values[replica * count + i] != values[i]) different.push_back(replica);
    }
    if (different.empty()) continue;
    throw Error(lockstep::str("parameter '", names[static_cast<std::size_t>(i)],
                              different.size() == 1 ? "': replica " : "': replicas ",
                              join(different), different.size() == 1 ? " differs" : " differ",
                              " from replica 0: the replicas have fallen apart"));
  }
}

}  // namespace lockstep
