#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/replicas/pmap.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

// How far float32 results may be from float64's, relatively: LibTorch's dot of all 30,000,000
// products has more rounding errors than the sum of many short ones.
constexpr double kOwnTolerance = 1e-5;
constexpr double kTolerance = 1e-3;

using Dot = std::function<Tensor(const Tensor& x, const Tensor& y)>;

Tensor flat_dot(const Tensor& x, const Tensor& y) {
  return at::dot(x.flatten(), y.flatten());
}

// In parts that are summed in float64: the error stays small whatever kernel the BLAS picks.
Tensor dot_of_parts(const Tensor& x, const Tensor& y) {
  constexpr std::int64_t kPart = std::int64_t{1} << 18;
  const std::vector<Tensor> parts_of_x = x.flatten().split(kPart);
  const std::vector<Tensor> parts_of_y = y.flatten().split(kPart);
  Tensor sum = at::zeros({}, at::kDouble);
  for (std::size_t i = 0; i < parts_of_x.size(); ++i) sum += at::dot(parts_of_x[i], parts_of_y[i]);
  return sum;
}

// The arrays come as (8, 1250000, 3): replica i has slice i.
Tensor mapped_dot(const Tensor& x, const Tensor& y) {
  const auto part = [](const Tensor& own_x, const Tensor& own_y) {
    return psum(dot_of_parts(own_x, own_y), "i");
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
    require<Error>(error <= tolerance_, "vdot: the result is ", found, " where float64 gives ",
                   expected);
    return str("the result differs from float64's by ", error, " of it");
  }
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
      {"pmap", "at::dot of parts in a pmap over 8 replicas, then psum"},
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
  replicas::set_math_threads(way == "libtorch" ? usable_cores() : 1);
  if (way == "pmap") return std::make_unique<Vdot>(mapped_dot, kOwnTolerance);
  return std::make_unique<Vdot>(flat_dot, kTolerance);
}

}  // namespace lockstep::bench
