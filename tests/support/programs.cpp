#include "tests/support/programs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include <sys/wait.h>

namespace lockstep::testing {
namespace {

struct ProcessState {
  char letter = 'X';  // as /proc has it: R, S, D, T, Z; X is gone
  pid_t parent = -1;
  unsigned long long start_time = 0;
};

ProcessState state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  // "pid (name) state ppid …": a name may hold anything, so that the last parenthesis counts.
  const std::size_t end = text.rfind(')');
  ProcessState state;
  if (end == std::string::npos) return state;
  std::istringstream rest(text.substr(end + 1));
  rest >> state.letter >> state.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) rest >> skipped;
  rest >> state.start_time;
  return state;
}

}  // namespace

Ended run_forked(const std::function<int()>& body) {
  return ChildProgram(body).wait();
}

bool ended(pid_t pid) {
  // It may be an orphan that this process has adopted; elsewhere this does nothing.
  ::waitpid(pid, nullptr, WNOHANG);
  const char state = state_of(pid).letter;
  if (state != 'Z') return state == 'X';
  // A process is a zombie once its first thread has ended; what it has open closes with its last.
  std::error_code gone;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", gone);
  return gone || std::distance(begin(threads), end(threads)) <= 1;
}

bool stopped(pid_t pid) {
  return state_of(pid).letter == 'T';
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<std::pair<unsigned long long, pid_t>> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto other = static_cast<pid_t>(std::stol(name));
    const ProcessState state = state_of(other);
    if (state.parent == pid && state.letter != 'Z') found.emplace_back(state.start_time, other);
  }
  std::sort(found.begin(), found.end());
  std::vector<pid_t> children;
  for (const auto& [start_time, child] : found) children.push_back(child);
  return children;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> lines_with(const std::string& part, const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  std::erase_if(lines,
                [&](const std::string& line) { return line.find(part) == std::string::npos; });
  return lines;
}

}  // namespace lockstep::testing
