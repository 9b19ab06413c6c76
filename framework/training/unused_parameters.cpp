#include "framework/training/unused_parameters.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"

namespace lockstep {
namespace {

std::string quoted(const std::string& name) {
  return "'" + name + "'";
}

constexpr const char* kSaidOnce = ": a gradient of zeros (said once)";

}  // namespace

void UnusedParameters::add(const std::vector<std::size_t>& indices) {
  const std::set<std::size_t> now(indices.begin(), indices.end());
  if (!unused_) {
    unused_ = now;
    return;
  }
  std::erase_if(*unused_, [&](std::size_t index) { return !now.contains(index); });
}

void UnusedParameters::end_step(const std::vector<std::string>& names, std::int64_t step,
                                const AxisNames& axis_name) {
  if (!unused_) unused_.emplace();  // a replica without samples
  if (is_first_) {
    tell_for_all(names, axis_name);
    is_first_ = false;
  }
  std::vector<std::string> fresh;
  for (const std::size_t index : *unused_) {
    if (told_.insert(index).second) fresh.push_back(quoted(names[index]));
  }
  unused_.reset();
  if (fresh.empty()) return;
  log_warning(str("replica ", axis_index(axis_name), ", step ", step,
                  ": the loss does not depend on ", join(fresh), kSaidOnce));
}

void UnusedParameters::tell_for_all(const std::vector<std::string>& names,
                                    const AxisNames& axis_name) {
  const c10::AutoGradMode no_grad(false);
  at::Tensor replicas = at::zeros({static_cast<std::int64_t>(names.size())}, at::kInt);
  std::int32_t* const counts = replicas.data_ptr<std::int32_t>();
  for (const std::size_t index : *unused_) counts[index] = 1;
  psum_(replicas, axis_name);
  const std::int64_t all = axis_size(axis_name);
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (counts[i] == 0) continue;
    told_.insert(i);
    unused.push_back(counts[i] == all
                         ? quoted(names[i])
                         : str(quoted(names[i]), " (on ", counts[i], " of ", all, " replicas)"));
  }
  if (unused.empty() || axis_index(axis_name) != 0) return;
  log_warning(str("the loss does not depend on ", join(unused), kSaidOnce));
}

}  // namespace lockstep
