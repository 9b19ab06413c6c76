#include "tests/support/traces.h"

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

// The numbers of sockets that listen on this host, as "socket:[number]".
std::set<fs::path> listening() {
  std::set<fs::path> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::vector<std::string> values{std::istream_iterator<std::string>(fields), {}};
      constexpr const char* kListen = "0A";
      if (values.size() > 9 && values[3] == kListen) sockets.insert("socket:[" + values[9] + "]");
    }
  }
  return sockets;
}

}  // namespace

void Traces::note(pid_t pid) {
  pids_.push_back(pid);
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
    files_.insert(fs::read_symlink(entry.path(), gone));
  }
}

std::vector<fs::path> Traces::left() const {
  std::vector<fs::path> left;
  for (const fs::path& socket : listening()) {
    if (files_.count(socket) > 0) left.push_back(socket);
  }
  for (const fs::path& file : files_) {
    if (file.string().rfind("/dev/shm/", 0) == 0 && fs::exists(file)) left.push_back(file);
  }
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    for (const pid_t pid : pids_) {
      const bool theirs =
          entry.path().filename().string().find(std::to_string(pid)) != std::string::npos;
      if (theirs) left.push_back(entry.path());
    }
  }
  return left;
}

}  // namespace lockstep::testing
