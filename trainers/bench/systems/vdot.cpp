#include <cmath>
#include <functional>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/rand.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/pmap.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

// How far float32 results may be from float64's, relatively: LibTorch's dot of all 30,000,000
// products adds up more rounding errors than one of an eighth of them.
constexpr double kOwnTolerance = 1e-5;
constexpr double kTolerance = 1e-3;

using Dot = std::function<Tensor(const Tensor& x, const Tensor& y)>;

Tensor flat_dot(const Tensor& x, const Tensor& y) {
  return at::dot(x.flatten(), y.flatten());
}

// The arrays come as (8, 1250000, 3): replica i has slice i.
Tensor mapped_dot(const Tensor& x, const Tensor& y) {
  const auto part = [](const Tensor& own_x, const Tensor& own_y) {
    return psum(flat_dot(own_x, own_y), "i");
  };
  return pmap(part, {.axis_name = "i", .in_axes = {0, 0}, .out_axes = std::nullopt})(x, y);
}

class Vdot : public ReplicaTask {
 public:
  Vdot(Dot dot, double tolerance) : dot_(std::move(dot)), tolerance_(tolerance) {}

  std::string prepare(const std::string&, std::int64_t) override {
    x_ = at::rand({kVdotReplicas, kVdotRows / kVdotReplicas, kVdotColumns});
    y_ = at::rand({kVdotReplicas, kVdotRows / kVdotReplicas, kVdotColumns});
    call();
    const double expected = flat_dot(x_.to(at::kDouble), y_.to(at::kDouble)).item<double>();
    const double found = result_.item<double>();
    const double error = std::abs(found / expected - 1);
    if (!(error <= tolerance_)) {
      throw Error(str("vdot: the result is ", found, " where float64 gives ", expected));
    }
    return str("the result differs from float64's by ", error, " of it");
  }
  void barrier() override {}
  void call() override { result_ = dot_(x_, y_); }

 private:
  Dot dot_;
  double tolerance_;
  Tensor x_;
  Tensor y_;
  Tensor result_;
};

}  // namespace

std::vector<System> vdot_systems() {
  const std::vector<std::pair<std::string, std::string>> ways{
      {"pmap", "at::dot in a pmap over 8 replicas, then psum"},
      {"serial", "at::dot in one thread"},
      {"libtorch", "at::dot on all cores"}};
  std::vector<System> systems;
  for (const auto& [way, what] : ways) {
    const std::string version =
        str(replicas::libtorch_version(), ", ", replicas::blas().name, ", ", what);
    systems.push_back(own_system("vdot", way, way, LaunchMode::processes, version));
    systems.back().facts.own = way == "pmap";
    systems.back().one_controller = true;
  }
  return systems;
}

std::unique_ptr<ReplicaTask> make_vdot(const std::string& way) {
  replicas::set_math_threads(way == "libtorch" ? replicas::host_cores() : 1);
  if (way == "pmap") return std::make_unique<Vdot>(mapped_dot, kOwnTolerance);
  return std::make_unique<Vdot>(flat_dot, kTolerance);
}

}  // namespace lockstep::bench
