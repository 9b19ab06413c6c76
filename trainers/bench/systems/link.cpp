#include "trainers/bench/systems/link.h"

#include <chrono>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

class Answers {
 public:
  Answers(const std::filesystem::path& folder, std::int64_t rank)
      : out_(folder / "answers"), rank_(rank) {
    if (!out_) throw Error(str("bench: cannot open ", folder, "/answers"));
  }

  // Flushed, a line is written at once: lines of several replicas arrive whole.
  void send(const std::string& text) {
    out_ << rank_ << ' ' << text << '\n' << std::flush;
    if (!out_) throw Error("bench: the driver does not listen");
  }

 private:
  std::ofstream out_;
  std::int64_t rank_;
};

std::int64_t now() {
  const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot).count();
}

std::string run(ReplicaTask& task, std::int64_t calls) {
  task.barrier();
  (void)task.parts();
  const std::int64_t begin = now();
  for (std::int64_t i = 0; i < calls; ++i) task.call();
  task.finish();
  const std::int64_t end = now();
  std::string answer = str("ran ", begin, ' ', end);
  for (const double part : task.parts()) answer += str(' ', part);
  return answer;
}

// The number of KiB in the line "name:   123 kB" of a file in /proc.
std::int64_t kilobytes(const std::string& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoll(line.substr(name.size() + 1));
  }
  throw Error(str("bench: ", file, " has no ", name));
}

}  // namespace

std::int64_t resident_bytes(const std::string& name) {
  return kilobytes("/proc/self/status", name) * 1024;
}

void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

void serve(ReplicaTask& task, const std::filesystem::path& folder, std::int64_t rank) {
  Answers answers(folder, rank);
  std::ifstream commands(folder / str("commands.", rank));
  if (!commands) throw Error(str("bench: cannot open ", folder, "/commands.", rank));
  answers.send("hello");
  for (std::string line; std::getline(commands, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "prepare") {
      std::string operation;
      std::int64_t bytes = 0;
      words >> operation >> bytes;
      answers.send(str("prepared ", task.prepare(operation, bytes)));
    } else if (verb == "run") {
      std::int64_t calls = 0;
      words >> calls;
      answers.send(run(task, calls));
    } else if (verb == "memory") {
      answers.send(str("memory ", ::getpid(), ' ', kilobytes("/proc/self/status", "VmHWM"), ' ',
                       kilobytes("/proc/self/smaps_rollup", "Pss")));
    } else {
      throw Error(str("bench: the driver said '", line, "'"));
    }
  }
}

}  // namespace lockstep::bench
