#include "framework/training/unused_parameters.h"

#include <cstdint>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"

namespace lockstep {

void UnusedParameters::add(const std::vector<std::size_t>& indices) {
  const std::set<std::size_t> now(indices.begin(), indices.end());
  if (!unused_) {
    unused_ = now;
    return;
  }
  std::erase_if(*unused_, [&](std::size_t index) { return !now.contains(index); });
}

std::vector<bool> UnusedParameters::agree(const std::vector<std::string>& names,
                                          const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  at::Tensor replicas = at::zeros({static_cast<std::int64_t>(names.size())}, at::kInt);
  std::int32_t* const counts = replicas.data_ptr<std::int32_t>();
  for (std::size_t i = 0; i < names.size(); ++i) {
    counts[i] = !unused_ || unused_->contains(i) ? 1 : 0;
  }
  psum_(replicas, axis_name);
  const std::int64_t all = axis_size(axis_name);
  std::vector<bool> on_all(names.size());
  std::vector<std::string> nowhere;
  std::vector<std::string> somewhere;
  for (std::size_t i = 0; i < names.size(); ++i) {
    on_all[i] = counts[i] == all;
    if (counts[i] == 0 || !told_.insert(i).second) continue;
    if (on_all[i]) {
      nowhere.push_back(str("'", names[i], "'"));
    } else {
      somewhere.push_back(str("'", names[i], "' (on ", counts[i], " of ", all, " replicas)"));
    }
  }
  if (axis_index(axis_name) != 0) return on_all;
  if (!nowhere.empty()) {
    log_warning(str("the loss does not depend on ", join(nowhere), ": the optimizer leaves ",
                    nowhere.size() == 1 ? "it" : "them", " as is (said once)"));
  }
  if (!somewhere.empty()) {
    log_warning(str("the loss does not depend on ", join(somewhere),
                    ": a gradient of zeros there (said once)"));
  }
  return on_all;
}

}  // namespace lockstep
