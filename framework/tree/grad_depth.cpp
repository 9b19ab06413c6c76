#include "framework/tree/grad_depth.h"

#include <utility>

namespace lockstep {
namespace {

thread_local int depth_here = 0;

}  // namespace

int grad_depth() noexcept {
  return depth_here;
}

GradDepthScope::GradDepthScope(int depth) noexcept : outer_(std::exchange(depth_here, depth)) {}

GradDepthScope::~GradDepthScope() {
  depth_here = outer_;
}

}  // namespace lockstep
