#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/hosts/test_network.h"
#include "tests/support/programs.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/train_program.h"

namespace lockstep::testing {

/// One job of `train` on all hosts of a network: the same command on each, with its own node rank,
/// in a folder of its own. They share a secret; host 0 serves the rendezvous. The destructor kills
/// what runs.
class JobOnHosts {
 public:
  static constexpr std::uint16_t kPort = 29500;

  /// Of `replicas` in all, with a config's text and further flags. Nothing is started yet.
  JobOnHosts(const TestNetwork& network, const std::string& config, std::size_t replicas,
             const Flags& flags = {});

  /// One host's flags differ: they have another value for one of them, or more of them.
  void replace(std::size_t host, const std::string& flag, const std::string& value);
  /// The same on all hosts.
  void replace(const std::string& flag, const std::string& value);
  void add(std::size_t host, const Flags& flags);

  /// One host's launcher runs beside another's, as if both were one machine.
  void run_beside(std::size_t host, std::size_t other);
  /// One host runs another program in place of `train`.
  void run_as(std::size_t host, const std::filesystem::path& program);
  /// One host's `train` gets a library with functions of its own.
  void preload(std::size_t host, const std::filesystem::path& library);

  void start(std::size_t host);
  void start();
  /// How many steps host 0 has logged.
  [[nodiscard]] std::size_t steps() const;
  /// Waits until host 0 has logged this many steps; throws with all output if a host ends first.
  void wait_for_steps(std::size_t steps) const;
  /// Waits for all that have been started, and returns how each host's ended. Throws with all
  /// output if one still runs at the deadline.
  std::vector<Ended> wait(std::chrono::seconds deadline = std::chrono::seconds(60));
  std::vector<Ended> run();

  [[nodiscard]] bool running(std::size_t host) { return programs_.at(host)->running(); }
  [[nodiscard]] pid_t launcher(std::size_t host) const { return programs_.at(host)->pid(); }
  /// The processes of a host's replicas, in the order of their start.
  [[nodiscard]] std::vector<pid_t> replicas(std::size_t host) const;
  /// A file in a host's output folder; host 0's has the job's.
  [[nodiscard]] std::filesystem::path output(std::size_t host, const std::string& file) const;
  /// A new secret's file, which no other job has.
  [[nodiscard]] std::string new_secret(const std::string& name) const;
  /// What all hosts have written, for a test that fails.
  [[nodiscard]] std::string all_output() const;

 private:
  [[nodiscard]] std::filesystem::path folder(std::size_t host) const;

  const TestNetwork& network_;
  TemporaryFolder folder_;
  std::vector<Flags> flags_;                      // host by host
  std::vector<std::size_t> place_;                // the host of the network where it runs
  std::vector<std::vector<std::string>> before_;  // what stands before them
  std::vector<std::unique_ptr<ChildProgram>> programs_;
};

/// A config of a few steps with something of everything.
inline constexpr const char* kPerceptron = R"(
model: {name: mlp, hidden: [32, 9]}
data: {name: fashion_mnist, batch_size: 8}
optimizer: {name: adam, lr: 0.001}
parallel: {threads_per_replica: 1, bucket_mb: 0.05}
trainer: {steps: 6, seed: 0, accumulate: 2, clip_norm: 1.0, log_every: 1, eval_every: 0}
)";

/// What runs of one config have in common, wherever their replicas are.
struct Result {
  std::string digest;
  std::vector<nlohmann::json> losses;  // step by step

  bool operator==(const Result&) const = default;
};

[[nodiscard]] Result result_in(const std::filesystem::path& output);
/// Of one host with as many replicas.
[[nodiscard]] Result on_one_host(std::size_t replicas, const Flags& flags = {},
                                 const std::string& config = kPerceptron);

/// All hosts have ended well, with this result.
void check_all_well(JobOnHosts& job, const std::vector<Ended>& ended, const Result& expected);

/// The last line of a text, which for `train` says why it has ended; empty without one.
[[nodiscard]] std::string last_line(const std::string& text);

}  // namespace lockstep::testing
