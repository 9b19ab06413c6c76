// Searches LibTorch's convolutions for accesses outside of their memory and for wrong numbers.
//
//   overruns [--seconds N] [--seed S] [--safe]
//
// Runs shapes of models/ and a pairwise sample on each instruction set of this CPU, one set after
// another, again and again. --safe: as training computes them, not in LibTorch's own way. Exit
// status: 0; 1 if a finding is of another kind than training/safe_convolutions.h knows, or if
// there is one at all with --safe.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "tests/overruns/convolution_cases.h"
#include "tests/overruns/guarded_memory.h"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::int64_t seconds = 60;
  std::uint64_t seed = 0;
  bool safe = false;
};

struct Counts {
  std::size_t runs = 0;
  std::size_t known = 0;
  std::size_t others = 0;
};

// The cases of one instruction set, drawn anew when all of a kind are done.
class Supply {
 public:
  explicit Supply(std::uint64_t seed) : random_(seed) {}

  // Alternates between the shapes of models/ and the pairwise sample.
  std::vector<ConvolutionCase> next(std::size_t count) {
    is_model_ = !is_model_;
    std::vector<ConvolutionCase>& stock = is_model_ ? models_ : pairs_;
    if (stock.empty()) {
      stock = is_model_ ? model_convolutions(random_) : pairwise_convolutions(random_);
      ++(is_model_ ? model_rounds : pair_rounds);
    }
    const std::size_t left = stock.size() - std::min(count, stock.size());
    std::vector<ConvolutionCase> cases(stock.begin() + static_cast<std::ptrdiff_t>(left),
                                       stock.end());
    stock.resize(left);
    return cases;
  }

  [[nodiscard]] std::string progress() const {
    return "models round " + std::to_string(model_rounds) + " (" + std::to_string(models_.size()) +
           " left), pairs round " + std::to_string(pair_rounds) + " (" +
           std::to_string(pairs_.size()) + " left)";
  }

 private:
  std::mt19937_64 random_;
  std::vector<ConvolutionCase> models_;
  std::vector<ConvolutionCase> pairs_;
  bool is_model_ = false;
  int model_rounds = 0;
  int pair_rounds = 0;
};

int search(const Options& options) {
  const auto end = Clock::now() + std::chrono::seconds(options.seconds);
  const std::vector<std::string> sets = instruction_sets();
  std::map<std::string, Supply> supplies;
  std::map<std::string, Counts> counts;
  for (const std::string& set : sets) supplies.emplace(set, Supply(options.seed));
  std::cout << "seed " << options.seed << ", " << options.seconds << " s" << std::endl;
  while (Clock::now() < end) {
    for (const std::string& set : sets) {
      const std::vector<ConvolutionCase> cases = supplies.at(set).next(100);
      const auto run = [&](std::size_t i) { return run_held_to(set, cases[i], options.safe); };
      Counts& count = counts[set];
      run_guarded(cases.size(), run, [&](std::size_t i, const std::string& finding) {
        ++count.runs;
        if (!finding.empty()) {
          const bool known = is_known(cases[i]);
          ++(known ? count.known : count.others);
          std::cout << (known ? "known: " : "NEW: ") << set << ": " << describe(cases[i]) << ": "
                    << finding << std::endl;
        }
        return Clock::now() < end;
      });
      if (Clock::now() >= end) break;
    }
  }
  std::size_t bad = 0;
  for (const std::string& set : sets) {
    const Counts& count = counts[set];
    bad += count.others + (options.safe ? count.known : 0);
    std::cout << set << ": " << count.runs << " convolutions, " << count.known
              << " of the known kind found, " << count.others << " others; "
              << supplies.at(set).progress() << '\n';
  }
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  lockstep::testing::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--safe") {
      options.safe = true;
    } else if (flag == "--seconds" && i + 1 < argc) {
      options.seconds = std::strtoll(argv[++i], nullptr, 10);
    } else if (flag == "--seed" && i + 1 < argc) {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::cerr << "overruns [--seconds N] [--seed S] [--safe], not " << flag << '\n';
      return 2;
    }
  }
  try {
    // Threads that wait give way to those that work, of this program and of others. OpenMP reads
    // the variable when it is loaded.
    if (setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0) == 0 &&
        std::getenv("OVERRUNS_STARTED") == nullptr) {
      setenv("OVERRUNS_STARTED", "1", 1);
      execv("/proc/self/exe", argv);
    }
    return lockstep::testing::search(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
