#include "trainers/bench/own_systems.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/collectives/all_gather.h"
#include "framework/collectives/axis_index.h"
#include "framework/collectives/in_place.h"
#include "framework/collectives/psum.h"
#include "framework/collectives/psum_scatter.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/pmap.h"
#include "trainers/bench/link.h"
#include "trainers/bench/operation.h"

namespace lockstep::bench {
namespace {

constexpr const char* kAxis = "replicas";

// The public functions on tensors as anyone has them.
class OrdinaryTensors : public Task {
 public:
  std::string prepare(const std::string& name, std::int64_t bytes) override {
    operation_ = parse_operation(name);
    const std::int64_t replicas = axis_size(kAxis);
    const std::int64_t index = axis_index(kAxis);
    const std::int64_t floats = bytes / static_cast<std::int64_t>(sizeof(float));
    input_ = output_ = Tensor();
    input_ = at::full({operation_ == Operation::all_gather ? floats / replicas : floats},
                      static_cast<float>(index + 1));
    call();
    check(replicas);
    return "";
  }

  void barrier() override { (void)psum(token_, kAxis); }

  void call() override {
    output_ = Tensor();  // as in x = psum(f(x)), where nobody needs the result of the step before
    switch (operation_) {
      case Operation::all_reduce:
        output_ = psum(input_, kAxis);
        break;
      case Operation::reduce_scatter:
        output_ = psum_scatter(input_, kAxis, {.tiled = true});
        break;
      case Operation::all_gather:
        output_ = all_gather(input_, kAxis, {.tiled = true});
        break;
    }
  }

 private:
  void check(std::int64_t replicas) const {
    const Tensor each = at::arange(1, replicas + 1, at::kFloat);
    const Tensor expected = operation_ == Operation::all_gather ? each.unsqueeze(1) : each.sum();
    const Tensor found =
        operation_ == Operation::all_gather ? output_.view({replicas, -1}) : output_;
    if (!found.eq(expected).all().item<bool>())
      throw Error(str(name_of(operation_), ": the result is wrong"));
  }

  Operation operation_ = Operation::all_reduce;
  Tensor input_;
  Tensor output_;
  Tensor token_ = at::zeros({1});
};

// Tensors that the replicas of a host share, reduced and gathered where they are: how gradients and
// parameters live.
class SymmetricTensors : public Task {
 public:
  std::string prepare(const std::string& name, std::int64_t bytes) override {
    operation_ = parse_operation(name);
    const std::int64_t replicas = axis_size(kAxis);
    const std::int64_t index = axis_index(kAxis);
    const std::int64_t part = bytes / static_cast<std::int64_t>(sizeof(float)) / replicas;
    whole_ = own_ = Tensor();
    whole_ = symmetric_zeros({bytes / static_cast<std::int64_t>(sizeof(float))}, at::kFloat, kAxis);
    own_ = whole_.narrow(0, index * part, part);
    (operation_ == Operation::all_gather ? own_ : whole_).fill_(static_cast<float>(index + 1));
    call();
    const Tensor each = at::arange(1, replicas + 1, at::kFloat);
    switch (operation_) {
      case Operation::all_reduce:
        check(whole_.eq(each.sum()));
        break;
      case Operation::reduce_scatter:
        check(own_.eq(each.sum()));
        break;
      case Operation::all_gather:
        check(whole_.view({replicas, -1}).eq(each.unsqueeze(1)));
        break;
    }
    barrier();       // nobody clears what another still reads
    whole_.zero_();  // what is summed in place again and again must stay finite
    return "";
  }

  void barrier() override { psum_(token_, kAxis); }

  void call() override {
    switch (operation_) {
      case Operation::all_reduce:
        psum_(whole_, kAxis);
        break;
      case Operation::reduce_scatter:
        psum_scatter_into(own_, whole_, kAxis);
        break;
      case Operation::all_gather:
        all_gather_into(whole_, own_, kAxis);
        break;
    }
  }

 private:
  void check(const Tensor& right) const {
    if (!right.all().item<bool>()) throw Error(str(name_of(operation_), ": the result is wrong"));
  }

  Operation operation_ = Operation::all_reduce;
  Tensor whole_;
  Tensor own_;  // this replica's part of it
  Tensor token_ = at::zeros({1});
};

struct OwnSystem {
  const char* name;
  Backend backend;
  bool maps;  // pmap, not launch
  std::function<std::unique_ptr<Task>()> make_task;
};

template <typename T>
std::unique_ptr<Task> make() {
  return std::make_unique<T>();
}

const std::vector<OwnSystem>& own_systems() {
  static const std::vector<OwnSystem> systems{
      {"symmetric", Backend::automatic, false, make<SymmetricTensors>},
      {"psum", Backend::automatic, false, make<OrdinaryTensors>},
      {"pmap", Backend::automatic, true, make<OrdinaryTensors>},
      {"gloo", Backend::gloo, false, make<OrdinaryTensors>},
  };
  return systems;
}

const OwnSystem& find_own(const std::string& name) {
  for (const OwnSystem& system : own_systems()) {
    if (name == system.name) return system;
  }
  throw ValueError(str("bench worker: unknown system '", name, "'"));
}

}  // namespace

std::vector<std::string> own_collective_systems() {
  std::vector<std::string> names;
  for (const OwnSystem& system : own_systems()) names.emplace_back(system.name);
  return names;
}

void add_own_collective_system(const std::string& name, const std::vector<LaunchMode>& modes,
                               std::vector<System>& systems) {
  const bool maps = find_own(name).maps;
  for (const LaunchMode mode : modes) {
    const bool threads = mode == LaunchMode::threads;
    systems.push_back(
        {.name = name,
         .label = threads && !maps ? name + " threads" : name,
         .version = libtorch_version(),
         .own = true,
         .programs = [name, threads](std::int64_t replicas, const std::filesystem::path& folder) {
           return std::vector<Program>{
               {{"/proc/self/exe", "worker", name, threads ? "threads" : "processes", str(replicas),
                 folder}}};
         }});
    if (maps) break;
  }
}

int run_own_worker(const std::vector<std::string>& arguments) {
  if (arguments.size() != 4) throw ValueError("bench worker is started by bench alone");
  const OwnSystem& system = find_own(arguments[0]);
  const std::int64_t replicas = std::stoll(arguments[2]);
  const std::filesystem::path folder = arguments[3];
  set_quiet(true);
  const auto replica = [&] {
    const std::unique_ptr<Task> task = system.make_task();
    serve(*task, folder, axis_index(kAxis));
  };
  // One math thread each, as peers are told.
  if (system.maps) {
    pmap(replica, {.axis_name = kAxis, .axis_size = replicas, .threads_per_replica = 1})();
    return 0;
  }
  return launch(replica,
                {.replicas = replicas,
                 .mode = arguments[1] == "threads" ? LaunchMode::threads : LaunchMode::processes,
                 .backend = system.backend,
                 .axis_name = kAxis,
                 .threads_per_replica = 1});
}

}  // namespace lockstep::bench
