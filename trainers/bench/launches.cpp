#include "trainers/bench/launches.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/replicas/machine.h"
#include "framework/replicas/worker_process.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kConfig =
    "model: {name: linear}\n"
    "data: {name: pmean_example, batch_size: 4, shuffle: false}\n"
    "optimizer: {name: sgd, lr: 0.01}\n"
    "trainer: {steps: 1}\n";
constexpr const char* kFirstStep = "step 1";
constexpr const char* kResult = "w = 2.625";

// A program of its own folder, and what it prints.
class Launch {
 public:
  Launch(const Workplace& workplace, const System& system)
      : workplace_(&workplace), system_(&system) {
    std::string name = (workplace.folder() / "launch-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(str("cannot make the folder ", name, ": ", std::strerror(errno)));
    const std::vector<Program> programs = system.programs(kLaunchedReplicas, name);
    auto [output, input] = make_pipe();
    output_ = std::move(output);
    begin_ = Clock::now();
    pid_ = start(programs.at(0), input.get());
  }

  // Seconds until the first step was done; then waits for the program's end.
  double run() {
    double seconds = 0;
    while (read_more()) {
      if (seconds == 0 && text_.find(str('\n', kFirstStep)) != std::string::npos)
        seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    // PyTorch 2.15's processes abort at times when they end, long after the step.
    if (status != 0 && system_->own) fail("failed");
    if (seconds == 0) fail(status == 0 ? "made no step" : "failed");
    if (text_.find(kResult) == std::string::npos) fail(str("did not end with ", kResult));
    return seconds;
  }

 private:
  bool read_more() {
    const Read read = workplace_->read_some(output_.get(), text_);
    if (read == Read::nothing) {
      fail(str("has printed nothing for ", Workplace::kSilence.count(), " seconds"));
    }
    return read == Read::some;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw CommError(
        str(system_->label, ", ", kLaunchedReplicas, " replicas: ", what, "; it printed:", text_));
  }

  const Workplace* workplace_;
  const System* system_;
  Descriptor output_;
  Clock::time_point begin_;
  pid_t pid_ = -1;
  std::string text_ = "\n";
};

}  // namespace

System train_system() {
  return {.name = "lockstep",
          .label = "train",
          .version = libtorch_version(),
          .own = true,
          .programs = [](std::int64_t replicas, const fs::path& folder) {
            std::ofstream(folder / "config.yaml") << kConfig;
            const fs::path binary = fs::read_symlink("/proc/self/exe").parent_path() / "train";
            return std::vector<Program>{{{binary, "--config", folder / "config.yaml", "--replicas",
                                          str(replicas), "--output", folder / "run"}}};
          }};
}

std::vector<Measurement> measure_launches(const Workplace& workplace,
                                          const std::vector<System>& systems,
                                          std::int64_t repetitions, ProgressLine& progress) {
  std::vector<Measurement> measurements;
  for (const System& system : systems)
    measurements.push_back(
        {.label = system.label, .samples = {}, .seconds = {}, .calls = 1, .note = ""});
  for (std::int64_t repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < systems.size(); ++i) {
      progress.show(str("launch ", repetition + 1, " of ", systems[i].label));
      measurements[i].samples.push_back(Launch(workplace, systems[i]).run());
    }
  }
  for (Measurement& measurement : measurements)
    measurement.seconds = quartiles(measurement.samples);
  return measurements;
}

}  // namespace lockstep::bench
