#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>

#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/collectives/axis_index.h"
#include "framework/replicas/shard_map.h"
#include "models/layers.h"
#include "trainers/bench/systems/own.h"

namespace lockstep::bench {
namespace {

constexpr const char* kChecked = "shard_map";
constexpr const char* kUnchecked = "shard_map without its check";

class Replicated : public ReplicaTask {
 public:
  explicit Replicated(bool checked)
      : mapped_(shard_map([this] { return copies_[static_cast<std::size_t>(axis_index(kAxis))]; },
                          Mesh({{kAxis, kReplicatedOver}}), {}, P(),
                          {.check_replicated = checked, .threads_per_replica = 1})) {}

  std::string prepare(const std::string&, std::int64_t bytes) override {
    copies_ = {uniform({bytes / static_cast<std::int64_t>(sizeof(float))}, 1, Key(0))};
    while (std::ssize(copies_) < kReplicatedOver) copies_.push_back(copies_[0].clone());
    call();
    if (!at::equal(result_, copies_[0])) throw Error("shard_map: the result is wrong");
    return "";
  }
  void call() override { result_ = mapped_(); }

 private:
  std::vector<Tensor> copies_;  // one for each replica
  std::function<Tensor()> mapped_;
  Tensor result_;
};

}  // namespace

System replicated_system(bool checked) {
  System system = own_system("replicated", "shard_map", checked ? kChecked : kUnchecked);
  system.one_controller = true;
  return system;
}

std::unique_ptr<ReplicaTask> make_replicated(const std::string& way) {
  return std::make_unique<Replicated>(way == kChecked);
}

}  // namespace lockstep::bench
