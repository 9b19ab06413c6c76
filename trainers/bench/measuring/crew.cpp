#include "trainers/bench/measuring/crew.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/limits.h"
#include "framework/base/text.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

// A system that ends by itself cleans up what it has on this machine.
constexpr std::chrono::seconds kFinishPatience{10};
constexpr std::chrono::milliseconds kStopPatience{1500};
constexpr std::chrono::seconds kTermPatience{2};
constexpr std::size_t kLastLines = 8;

// Open in both directions: neither opening nor reading then depends on who else has it open. It
// closes with this process, however that ends, which the replicas see as the end of their commands.
Descriptor make_fifo(const fs::path& path) {
  Descriptor fifo(::mkfifo(path.c_str(), 0600) == 0 ? ::open(path.c_str(), O_RDWR | O_CLOEXEC)
                                                    : -1);
  if (!fifo.open()) throw Error(str("cannot make ", path, ": ", text_of_errno(errno)));
  return fifo;
}

std::string last_lines(const fs::path& file) {
  std::ifstream in(file);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.find_first_not_of(" -") == std::string::npos) continue;
    lines.push_back("  " + line);
    if (lines.size() > kLastLines) lines.pop_front();
  }
  return join(lines, "\n");
}

}  // namespace

Workers::Workers(const Workplace& workplace, const System& system, std::int64_t replicas)
    : workplace_(&workplace),
      system_(&system),
      replicas_(system.replicas > 0 ? system.replicas : replicas),
      links_(system.one_controller ? 1 : static_cast<std::size_t>(replicas_)),
      folder_(workplace.folder()) {
  output_ = Descriptor(
      ::open(folder_.path("output").c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600));
  answers_ = make_fifo(folder_.path("answers"));
  for (std::size_t rank = 0; rank < links_; ++rank) {
    commands_.push_back(make_fifo(folder_.path(str("commands.", rank))));
  }
  for (const Program& program : system.programs(replicas_, folder_.path())) {
    const pid_t pid = start(program, output_.get());
    processes_.push_back({pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))});
    if (!processes_.back().handle.open()) fail(str("cannot be watched: ", text_of_errno(errno)));
  }
}

Workers::~Workers() {
  if (!commands_.empty()) finish(kStopPatience);
  if (!reaped_within(patience_)) {
    for (const Process& process : processes_) ::kill(process.pid, SIGTERM);
    if (!reaped_within(kTermPatience)) {
      for (const Process& process : processes_) ::kill(-process.pid, SIGKILL);
      (void)reaped_within(kTermPatience);
    }
  }
}

// Drops the processes that have ended.
bool Workers::reaped_within(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!processes_.empty()) {
    std::erase_if(processes_, [](const Process& process) {
      return ::waitpid(process.pid, nullptr, WNOHANG) == process.pid;
    });
    if (processes_.empty()) break;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    pollfd ended{processes_[0].handle.get(), POLLIN, 0};
    ::poll(&ended, 1, 10);
  }
  return true;
}

void Workers::finish(std::chrono::milliseconds patience) {
  patience_ = patience;
  commands_.clear();
}

void Workers::fail(const std::string& what) const {
  const std::string output = last_lines(folder_.path("output"));
  throw CommError(str(system_->facts.label, ", ", counted(replicas_, "replica"), ": ", what,
                      output.empty() ? "; it printed nothing" : "; the last that it printed:\n",
                      output));
}

// Until there is something to read from the replicas.
void Workers::await_input() {
  std::vector<pollfd> polled{{answers_.get(), POLLIN, 0}};
  for (const Process& process : processes_) polled.push_back({process.handle.get(), POLLIN, 0});
  const int count = workplace_->wait_for(polled);
  if (count < 0) fail(str("cannot be listened to: ", text_of_errno(errno)));
  if (count == 0) fail(str("has not answered for ", Workplace::kSilence.count(), " seconds"));
  if (polled[0].revents != 0) return;
  for (std::size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(processes_[i - 1].pid), &info, WEXITED | WNOWAIT);
    // Others may be about to say why.
    ::poll(nullptr, 0, 300);
    fail(str("process ", info.si_pid,
             info.si_code == CLD_EXITED ? " ended with status " : " was killed by signal ",
             info.si_status));
  }
}

// One answer of each replica, without its rank and the expected first word.
std::vector<std::string> Workers::await_answers(const std::string& expected) {
  std::vector<std::string> answers(links_);
  for (std::size_t missing = links_; missing > 0;) {
    const std::size_t end = received_.find('\n');
    if (end == std::string::npos) {
      await_input();
      std::array<char, 4096> buffer{};
      const ssize_t count = ::read(answers_.get(), buffer.data(), buffer.size());
      if (count > 0) received_.append(buffer.data(), static_cast<std::size_t>(count));
      continue;
    }
    std::istringstream line(received_.substr(0, end));
    received_.erase(0, end + 1);
    std::size_t rank = 0;
    std::string verb;
    line >> rank >> verb >> std::ws;
    if (!line && !line.eof()) fail("has sent what is no answer");
    if (rank >= answers.size() || verb != expected)
      fail(str("has answered '", line.str(), "', not ", expected));
    std::getline(line, answers[rank]);
    --missing;
  }
  return answers;
}

std::vector<std::string> Workers::ask(const std::string& request, const std::string& expected) {
  const std::string line = request + "\n";
  for (const Descriptor& command : commands_) {
    if (::write(command.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      fail(str("cannot be asked: ", text_of_errno(errno)));
    }
  }
  return await_answers(expected);
}

std::string Workers::prepare(const std::string& operation, std::int64_t bytes) {
  return ask(str("prepare ", operation, ' ', bytes), "prepared")[0];
}

Ran Workers::run(std::int64_t calls) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  Ran ran;
  for (const std::string& answer : ask(str("run ", calls), "ran")) {
    std::istringstream times(answer);
    std::int64_t begin = 0;
    std::int64_t end = 0;
    times >> begin >> end;
    first = std::min(first, begin);
    last = std::max(last, end);
    double part = 0;
    for (std::size_t i = 0; times >> part; ++i) {
      ran.parts.resize(std::max(ran.parts.size(), i + 1));
      ran.largest_parts.resize(ran.parts.size());
      ran.largest_parts[i] = std::max(ran.largest_parts[i], part);
      ran.parts[i] += part / static_cast<double>(links_);
    }
  }
  ran.seconds = static_cast<double>(last - first) * 1e-9;
  return ran;
}

ProcessMemory Workers::memory() {
  ProcessMemory use;
  std::set<std::int64_t> counted;  // replicas that are threads are in one process
  for (const std::string& answer : ask("memory", "memory")) {
    std::istringstream numbers(answer);
    std::int64_t pid = 0;
    std::int64_t peak = 0;
    std::int64_t share = 0;
    numbers >> pid >> peak >> share;
    if (!counted.insert(pid).second) continue;
    use.peak_bytes = std::max(use.peak_bytes, peak * 1024);
    use.host_bytes += share * 1024;
  }
  return use;
}

Crew::Crew(const Workplace& workplace, const std::vector<System>& systems, std::int64_t replicas)
    : Crew() {  // so that the destructor also ends what has started before something fails
  for (const System& system : systems) {
    members_.push_back(std::make_unique<Workers>(workplace, system, replicas));
  }
  for (const auto& member : members_) member->await_start();
}

Crew::~Crew() {
  for (const auto& member : members_) member->finish(kStopPatience);
}

void Crew::finish() {
  for (const auto& member : members_) member->finish(kFinishPatience);
  members_.clear();
}

}  // namespace lockstep::bench
