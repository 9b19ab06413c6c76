// Tasks whose replicas or lanes are threads of one process: a call of them is all replicas.

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include "framework/base/cores.h"
#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/psum.h"
#include "framework/maps/machine.h"
#include "framework/maps/pmap.h"
#include "framework/maps/shard_map.h"
#include "framework/maps/vmap.h"
#include "trainers/bench/systems/tasks.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

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

// Replica i has slice i.
Tensor mapped_dot(const Tensor& x, const Tensor& y) {
  const auto part = [](const Tensor& own_x, const Tensor& own_y) {
    return psum(dot_of_parts(own_x, own_y), "i");
  };
  return pmap(part, {.axis_name = "i", .in_axes = {0, 0}, .out_axes = std::nullopt})(x, y);
}

// Arrays of (replicas, rows, 3). How far float32 results may be from float64's is relative:
// LibTorch's dot of all products has more rounding errors than the sum of many short ones.
class Vdot : public ReplicaTask {
 public:
  Vdot(Dot dot, double tolerance) : dot_(std::move(dot)), tolerance_(tolerance) {}

  std::string prepare(const std::string&, std::int64_t bytes) override {
    constexpr std::int64_t kReplicas = 8;
    const std::int64_t rows = bytes / kFloat / 3 / kReplicas;
    x_ = at::rand({kReplicas, rows, 3});
    y_ = at::rand({kReplicas, rows, 3});
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
  Tensor x_, y_, result_;
};

class Lanes : public ReplicaTask {
 public:
  std::string prepare(const std::string& operation, std::int64_t lanes) override {
    constexpr std::int64_t kValues = 64;
    vectors_ = at::rand({lanes, kValues});
    const Tensor matrix = at::rand({kValues, kValues}) * 0.1;
    const bool sums = operation == "psum";
    mapped_ = vmap(
        [matrix, sums](const Tensor& vector) {
          const Tensor values = at::tanh(at::mv(matrix, vector));
          return sums ? values - psum(values, "lane") : values;
        },
        {.axis_name = "lane", .in_axes = {0}});
    call();
    Tensor expected = at::tanh(at::matmul(vectors_, matrix.t()));
    if (sums) expected = expected - expected.sum(0);
    require<Error>(result_.allclose(expected, 1e-4, 1e-4), "vmap: the result is wrong");
    return "";
  }
  void call() override { result_ = mapped_(vectors_); }

 private:
  std::function<Tensor(const Tensor&)> mapped_;
  Tensor vectors_, result_;
};

class Replicated : public ReplicaTask {
 public:
  explicit Replicated(bool checked)
      : mapped_(shard_map([this] { return copies_[static_cast<std::size_t>(axis_index(kAxis))]; },
                          Mesh({{kAxis, kReplicas}}), {}, P(),
                          {.check_replicated = checked, .threads_per_replica = 1})) {}

  std::string prepare(const std::string&, std::int64_t bytes) override {
    copies_ = {at::rand({bytes / kFloat})};
    while (std::ssize(copies_) < kReplicas) copies_.push_back(copies_[0].clone());
    call();
    require<Error>(at::equal(result_, copies_[0]), "shard_map: the result is wrong");
    return "";
  }
  void call() override { result_ = mapped_(); }

 private:
  static constexpr std::int64_t kReplicas = 2;
  std::vector<Tensor> copies_;  // one for each replica
  std::function<Tensor()> mapped_;
  Tensor result_;
};

}  // namespace

std::unique_ptr<ReplicaTask> make_vdot(const std::string& way) {
  maps::set_math_threads(way == "libtorch" ? usable_cores() : 1);
  if (way == "pmap") return std::make_unique<Vdot>(mapped_dot, 1e-5);
  return std::make_unique<Vdot>(flat_dot, 1e-3);
}

std::unique_ptr<ReplicaTask> make_vmap() {
  maps::set_math_threads(1);
  return std::make_unique<Lanes>();
}

std::unique_ptr<ReplicaTask> make_replicated(const std::string& way) {
  return std::make_unique<Replicated>(way == "shard_map");
}

}  // namespace lockstep::bench
