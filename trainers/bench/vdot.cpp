#include "trainers/bench/vdot.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/rand.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/collectives/psum.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/pmap.h"
#include "trainers/bench/contestants.h"
#include "trainers/bench/link.h"
#include "trainers/bench/progress_line.h"
#include "trainers/bench/report_json.h"
#include "trainers/bench/report_text.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kReplicas = 8;
constexpr std::int64_t kRows = 10'000'000;
constexpr std::int64_t kColumns = 3;
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

class VdotTask : public Task {
 public:
  VdotTask(Dot dot, double tolerance) : dot_(std::move(dot)), tolerance_(tolerance) {}

  std::string prepare(const std::string&, std::int64_t) override {
    x_ = at::rand({kReplicas, kRows / kReplicas, kColumns});
    y_ = at::rand({kReplicas, kRows / kReplicas, kColumns});
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

struct Way {
  const char* name;
  const char* what;
  bool own;
  Dot dot;
  bool all_cores;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {"pmap", "at::dot in a pmap over 8 replicas, then psum", true, mapped_dot, false},
      {"serial", "at::dot in one thread", false, flat_dot, false},
      {"libtorch", "at::dot on all cores", false, flat_dot, true}};
  return all;
}

System system_of(const Way& way) {
  return {.name = way.name,
          .label = way.name,
          .version = str(libtorch_version(), ", ", blas().name, ", ", way.what),
          .own = way.own,
          .one_controller = true,
          .programs = [name = std::string(way.name)](std::int64_t,
                                                     const std::filesystem::path& folder) {
            return std::vector<Program>{{{"/proc/self/exe", "worker", "vdot", name, folder}}};
          }};
}

}  // namespace

void run_vdot_worker(const std::vector<std::string>& arguments) {
  const auto way = std::find_if(ways().begin(), ways().end(), [&](const Way& known) {
    return arguments.size() == 2 && arguments[0] == known.name;
  });
  if (way == ways().end()) throw ValueError("bench worker is started by bench alone");
  set_math_threads(way->all_cores ? host_cores() : 1);
  VdotTask task(way->dot, way->own ? kOwnTolerance : kTolerance);
  serve(task, arguments[1], 0);
}

void run_vdot(const VdotOptions& options) {
  const Workplace workplace;
  std::vector<std::string> own;
  for (const Way& way : ways()) own.emplace_back(way.name);
  const Contestants contestants =
      find_contestants(workplace, options, own,
                       [](const std::string& name, std::vector<System>& systems) {
                         for (const Way& way : ways()) {
                           if (name == way.name) systems.push_back(system_of(way));
                         }
                       },
                       {"jax"});
  VdotReport report{.machine = machine_facts(),
                    .systems = facts_of(contestants.systems),
                    .left_out = contestants.left_out,
                    .replicas = kReplicas,
                    .bytes = kRows * kColumns * static_cast<std::int64_t>(sizeof(float)),
                    .measurements = {}};
  std::cout << heading_text(report.machine, report.systems, report.left_out) << std::endl;
  ProgressLine progress;
  progress.show("vdot");
  Crew crew(workplace, contestants.systems, kReplicas);
  report.measurements = measure(crew, "vdot", report.bytes, options.repetitions);
  crew.finish();
  progress.clear();
  std::cout << vdot_text(report) << std::flush;
  if (!options.json.empty()) write_file(options.json, to_json(report));
}

}  // namespace lockstep::bench
