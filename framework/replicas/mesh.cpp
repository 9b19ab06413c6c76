#include "framework/replicas/mesh.h"

#include <algorithm>

#include "framework/base/require.h"

namespace lockstep {

Mesh::Mesh(Axes axes) : axes_(std::move(axes)) {
  require(!axes_.empty(), "Mesh: at least one axis is needed");
  for (const auto& [name, size] : axes_) {
    require(!name.empty(), "Mesh: an axis name must not be empty");
    require(size >= 1, "Mesh: axis '", name, "' has size ", size, "; it must be at least 1");
    require(std::ranges::count(axes_, name, &Axes::value_type::first) == 1, "Mesh: axis '", name,
            "' stands twice");
  }
}

std::int64_t Mesh::size() const noexcept {
  std::int64_t size = 1;
  for (const auto& axis : axes_) size *= axis.second;
  return size;
}

}  // namespace lockstep
