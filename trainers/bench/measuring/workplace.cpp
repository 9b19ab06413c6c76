#include "trainers/bench/measuring/workplace.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/control_groups.h"
#include "framework/base/waited.h"
#include "framework/replicas/worker_process.h"
#include "trainers/bench/testing/child_program.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr int kLookAround = 100;  // milliseconds

// The children of a killed process become children of this one, and are killed next.
void end_children() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (std::chrono::steady_clock::now() < deadline) {
    std::error_code error;  // what ends the look, too: a destructor must not throw
    for (fs::directory_iterator process("/proc", error), end; process != end;
         process.increment(error)) {
      const auto parent = field_of(process->path() / "status", "PPid:");
      if (parent == static_cast<std::size_t>(::getpid()))
        ::kill(std::stoi(process->path().filename()), SIGKILL);
    }
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

std::string ProgramEnd::last_line() const {
  if (silent) return "it has not ended in time";
  const std::string text = output.substr(0, output.find_last_not_of('\n') + 1);
  return text.substr(text.rfind('\n') + 1);
}

Workplace::Workplace() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Workplace::~Workplace() {
  end_children();
}

int Workplace::wait_for(std::vector<pollfd>& polled) const {
  polled.push_back({signals_.descriptor(), POLLIN, 0});
  int count = 0;
  for (Waited waited; count == 0 && waited.look() < kSilence;) {
    count = ::poll(polled.data(), polled.size(), kLookAround);
    if (signals_.signal() != 0) throw Stopped(signals_.signal());
    if (count < 0 && errno == EINTR) count = 0;
  }
  polled.pop_back();
  return count;
}

ProgramEnd Workplace::run(const Program& program,
                          const std::function<void(const std::string& output)>& look) const {
  auto [output, input] = replicas::make_pipe();
  const pid_t pid = start(program, input.get());
  input.close();
  ProgramEnd end;
  while (true) {
    std::vector<pollfd> polled{{output.get(), POLLIN, 0}};
    end.silent = wait_for(polled) == 0;
    std::array<char, 4096> buffer{};
    const ssize_t size = end.silent ? 0 : ::read(output.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    end.output.append(buffer.data(), static_cast<std::size_t>(size));
    look(end.output);
  }
  if (end.silent) ::kill(pid, SIGKILL);
  ::waitpid(pid, &end.status, 0);
  return end;
}

fs::path file_of_bench(const fs::path& built, const fs::path& installed) {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  return fs::exists(folder / built) ? folder / built : folder.parent_path() / installed;
}

pid_t start(const Program& program, int output) {
  return testing::fork_child(output, output, SIGTERM, [&] {
    for (const auto& [name, value] : program.environment) ::setenv(name.c_str(), value.c_str(), 1);
    testing::become(program.arguments);
  });
}

}  // namespace lockstep::bench
