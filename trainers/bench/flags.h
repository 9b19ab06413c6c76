#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/replicas/launch.h"
#include "trainers/bench/reports/report.h"
#include "trainers/commands/command_line.h"

namespace lockstep::bench {

class Workplace;

/// What the command line asks for. Flags that a measurement does not have keep their defaults.
struct Options {
  std::string measurement;  ///< the command, such as "collectives"
  std::string text;         ///< --help or --version: to be printed, and nothing else done

  std::vector<std::string> systems;  ///< empty: all that there are
  std::vector<std::string> pythons{"python3"};
  std::int64_t repetitions = 0;  ///< 0: as many as the measurement has by default
  std::filesystem::path json;    ///< empty: none
  std::filesystem::path plot;    ///< empty: none

  /// Of what takes long: launches and checkpoints.
  [[nodiscard]] std::int64_t few_repetitions() const { return repetitions > 0 ? repetitions : 5; }

  // For collectives, training and checkpoint.
  std::vector<std::int64_t> replicas;

  // For collectives and training.
  std::vector<LaunchMode> launch{LaunchMode::processes};
  NetworkFacts network{.rate_mbit = 1000};  ///< over whose hosts each job's replicas are spread

  // For collectives.
  std::vector<Operation> operations{Operation::all_reduce, Operation::reduce_scatter,
                                    Operation::all_gather};
  std::vector<std::int64_t> sizes{8,         64,      1 << 10, 8 << 10,  64 << 10,
                                  256 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20};  ///< ascending

  // For training and parts.
  std::vector<std::string> measured;  ///< "steps", "launches", "memory"; "table", "replicated"

  [[nodiscard]] bool measures(const std::string& what) const {
    return std::ranges::count(measured, what) > 0;
  }

  // For training.
  std::vector<std::string> models{"mlp", "cnn", "resnet", "gpt"};
  std::vector<std::int64_t> stages{0, 1, 2, 3};  ///< of ZeRO
  std::vector<std::string> data{"memory"};       ///< "memory", "augmented"
  std::int64_t batch = 0;                        ///< samples a replica; 0: as the model has it
  std::int64_t steps = 2000;                     ///< over which memory is measured

  // For checkpoint.
  std::int64_t parameters = 100'000'000;
  std::vector<std::filesystem::path> folders;  ///< empty: the temporary one, and /dev/shm

  // For parts.
  std::int64_t columns = 20'000;  ///< of the table
};

/// What bench measures, by the name that its command line begins with.
struct Benchmark {
  std::string name;
  std::string help;  ///< one line
  /// Measures, prints its tables to stdout and returns its report in JSON.
  std::string (*run)(const Workplace& workplace, const Options& options);
};

[[nodiscard]] const std::vector<Benchmark>& benchmarks();

/// The flags of options.measurement, or of all if that is empty, which set `options`.
[[nodiscard]] std::vector<Flag> bench_flags(Options& options);

/// Throws ValueError for a flag that is unknown, lacks its value or breaks a rule.
[[nodiscard]] Options parse_flags(int argc, const char* const* argv);

/// The last part of `bench --help`: the systems, and how bench measures.
[[nodiscard]] std::string help_on_measuring();

}  // namespace lockstep::bench
