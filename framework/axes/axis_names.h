#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/tree/tree.h"

namespace lockstep {

/// One axis name, or several that count as one axis, row-major: `"data"` or `{"data", "model"}`.
class AxisNames {
 public:
  AxisNames(const char* name) : names_{name} {}             // NOLINT
  AxisNames(std::string name) : names_{std::move(name)} {}  // NOLINT
  AxisNames(std::initializer_list<std::string_view> names) : names_(names.begin(), names.end()) {}
  AxisNames(std::vector<std::string> names) : names_(std::move(names)) {}  // NOLINT
  AxisNames(int) = delete;  // axes have names; 0 would be a null pointer

  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }

  /// Returns the names for messages: 'data', or ('data', 'model').
  [[nodiscard]] std::string text() const {
    if (names_.size() == 1) return "'" + names_[0] + "'";
    return names_.empty() ? "()" : "('" + join(names_, "', '") + "')";
  }

 private:
  std::vector<std::string> names_;
};

namespace axes_detail {
template <typename X>
inline constexpr bool has_axis = false;
// Called by a collective without an axis. (In a macro the error would fill a screen.)
template <typename X>
X without_axis(const X& x) {
  static_assert(has_axis<X>, "lockstep: a collective needs the name of an axis: psum(x, \"i\")");
  return x;
}
template <typename X>
concept NoTree = !tree_detail::is_known<X>;
// Called by a collective of a class that is no tree.
template <typename X>
X without_members(const X& x) {
  static_assert(tree_detail::is_known<X>, LOCKSTEP_DETAIL_UNKNOWN);
  return x;
}
}  // namespace axes_detail

}  // namespace lockstep

/// Refuses a collective that is called without an axis, or with a class that is no tree.
#define LOCKSTEP_NEEDS_AXIS(operation)                                                    \
  template <typename LockstepX>                                                           \
  LockstepX operation(const LockstepX& x) {                                               \
    return ::lockstep::axes_detail::without_axis(x);                                      \
  }                                                                                       \
  template <::lockstep::axes_detail::NoTree LockstepX, typename... More>                  \
  LockstepX operation(const LockstepX& x, const ::lockstep::AxisNames&, const More&...) { \
    return ::lockstep::axes_detail::without_members(x);                                   \
  }
