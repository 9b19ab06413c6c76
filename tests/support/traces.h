#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <sys/types.h>

namespace lockstep::testing {

/// What processes could leave behind when they end: noted while they run, looked for afterwards.
class Traces {
 public:
  /// Notes a running process.
  void note(pid_t pid) {
    pids_.push_back(pid);
    std::error_code gone;
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone)) {
      files_.insert(std::filesystem::read_symlink(entry.path(), gone));
    }
  }

  /// Of the noted processes, which have ended: sockets that listen and shared memory.
  [[nodiscard]] std::vector<std::filesystem::path> left() const {
    std::vector<std::filesystem::path> left;
    for (const std::filesystem::path& socket : listening()) {
      if (files_.count(socket) > 0) left.push_back(socket);
    }
    for (const std::filesystem::path& file : files_) {
      if (file.string().rfind("/dev/shm/", 0) == 0 && std::filesystem::exists(file))
        left.push_back(file);
    }
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      for (const pid_t pid : pids_) {
        const bool theirs =
            entry.path().filename().string().find(std::to_string(pid)) != std::string::npos;
        if (theirs) left.push_back(entry.path());
      }
    }
    return left;
  }

 private:
  // The numbers of sockets that listen on this host, as "socket:[number]".
  static std::set<std::filesystem::path> listening() {
    std::set<std::filesystem::path> sockets;
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

  std::vector<pid_t> pids_;
  std::set<std::filesystem::path> files_;  // that any of them had open
};

}  // namespace lockstep::testing
