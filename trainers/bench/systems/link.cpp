#include "trainers/bench/systems/link.h"

#include <chrono>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "framework/base/control_groups.h"
#include "framework/base/errors.h"
#include "framework/base/memory.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

std::int64_t now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
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

}  // namespace

std::int64_t resident_bytes(const std::string& name) {
  const auto bytes = field_of("/proc/self/status", name + ":");
  if (!bytes) throw Error(str("bench: /proc/self/status has no ", name));
  return static_cast<std::int64_t>(*bytes);
}

void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

void serve(ReplicaTask& task, const std::filesystem::path& folder, std::int64_t rank) {
  std::ofstream answers(folder / "answers");
  if (!answers) throw Error(str("bench: cannot open ", folder, "/answers"));
  std::ifstream commands(folder / str("commands.", rank));
  if (!commands) throw Error(str("bench: cannot open ", folder, "/commands.", rank));
  // Flushed, a line is written at once: lines of several replicas arrive whole.
  const auto answer = [&](const std::string& text) {
    answers << rank << ' ' << text << '\n' << std::flush;
    if (!answers) throw Error("bench: the driver does not listen");
  };
  answer("hello");
  for (std::string line; std::getline(commands, line);) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "prepare") {
      std::string operation;
      std::int64_t bytes = 0;
      words >> operation >> bytes;
      answer(str("prepared ", task.prepare(operation, bytes)));
    } else if (verb == "run") {
      std::int64_t calls = 0;
      words >> calls;
      answer(run(task, calls));
    } else if (verb == "memory") {
      answer(str("memory ", ::getpid(), ' ', resident_bytes("VmHWM") / 1024, ' ',
                 resident_memory() / 1024));
    } else {
      throw Error(str("bench: the driver said '", line, "'"));
    }
  }
}

}  // namespace lockstep::bench
