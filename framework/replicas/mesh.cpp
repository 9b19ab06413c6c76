#include "framework/replicas/mesh.h"

#include <algorithm>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {

Mesh::Mesh(Axes axes) : axes_(std::move(axes)) {
  if (axes_.empty()) throw ValueError("Mesh: at least one axis is needed");
  for (auto axis = axes_.begin(); axis != axes_.end(); ++axis) {
    if (axis->first.empty()) throw ValueError("Mesh: an axis name must not be empty");
    if (axis->second < 1) {
      throw ValueError(
          str("Mesh: axis '", axis->first, "' has size ", axis->second, "; it must be at least 1"));
    }
    if (std::any_of(axes_.begin(), axis,
                    [&](const auto& other) { return other.first == axis->first; })) {
      throw ValueError(str("Mesh: axis '", axis->first, "' stands twice"));
    }
  }
}

std::int64_t Mesh::size() const noexcept {
  std::int64_t size = 1;
  for (const auto& axis : axes_) size *= axis.second;
  return size;
}

}  // namespace lockstep
