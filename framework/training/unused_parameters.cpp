#include "framework/training/unused_parameters.h"

#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"

namespace lockstep {

void UnusedParameters::tell(const std::vector<std::size_t>& indices,
                            const std::vector<std::string>& names, std::int64_t step,
                            const AxisNames& axis_name) {
  std::vector<std::string> fresh;
  for (const std::size_t index : indices) {
    if (told_.insert(index).second) fresh.push_back("'" + names[index] + "'");
  }
  if (fresh.empty()) return;
  log_warning(str("replica ", axis_index(axis_name), ", step ", step,
                  ": the loss does not depend on ", join(fresh),
                  ": a gradient of zeros (said once)"));
}

}  // namespace lockstep
