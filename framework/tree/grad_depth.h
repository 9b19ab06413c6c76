#pragma once

namespace lockstep {

/// How many functions this thread is running for value_and_grad, one inside another.
[[nodiscard]] int grad_depth() noexcept;

/// While it lives this thread's grad_depth is `depth`. Code that runs a caller's function on other
/// threads sets the caller's depth there, so that derivatives inside know that they are nested.
class GradDepthScope {
 public:
  explicit GradDepthScope(int depth) noexcept;
  ~GradDepthScope();
  GradDepthScope(const GradDepthScope&) = delete;
  GradDepthScope& operator=(const GradDepthScope&) = delete;

 private:
  int outer_;
};

}  // namespace lockstep
