#include "framework/telemetry/run_folder.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/telemetry/file.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw ValueError(str("output folder ", folder.string(), " can't be made: ", error.message()));
  }
}

std::string timestamp(std::time_t now) {
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return {text.data(), size};
}

// A name next to `path` that no other writer uses: of this process, or another of this host.
fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> count{0};
  return path.parent_path() /
         str(".", path.filename().string(), ".", getpid(), "-", count.fetch_add(1), ".tmp");
}

// The rename is durable once its folder is.
void sync_folder(const fs::path& folder) {
  const File file(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY);
  file.sync();
}

}  // namespace

fs::path new_run_folder(const std::string& config_name, const fs::path& parent, std::time_t now) {
  if (config_name.empty() || config_name == "." || config_name == ".." ||
      config_name.find('/') != std::string::npos) {
    throw ValueError(
        str("a run can't be named '", config_name, "': the name must be one component of a path"));
  }
  make_folders(parent);
  const std::string name = str(config_name, "-", timestamp(now));
  fs::path folder = parent / name;
  for (int attempt = 2;; ++attempt) {
    std::error_code error;
    if (fs::create_directory(folder, error)) return folder;
    // A file of that name is no error to create_directory's caller either way: try the next one.
    if (error && error != std::errc::file_exists && error != std::errc::not_a_directory) {
      throw ValueError(str("output folder ", folder.string(), " can't be made: ", error.message()));
    }
    folder = parent / str(name, "-", attempt);
  }
}

void claim_run_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw ValueError(str("output folder ", folder.string(), " is a file, not a folder"));
  }
  make_folders(folder);
  for (const char* file : {"config.yaml", "metrics.jsonl", "result.json"}) {
    if (!fs::exists(fs::symlink_status(folder / file, error))) continue;
    throw ValueError(str("output folder ", folder.string(), " holds a run already (its ", file,
                         "): name another one"));
  }
  try {
    const fs::path probe = temporary_name(folder / "probe");
    File(probe, O_WRONLY | O_CREAT | O_TRUNC);
    fs::remove(probe, error);
  } catch (const Error& failure) {
    throw ValueError(
        str("output folder ", folder.string(), " can't be written to: ", failure.what()));
  }
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  const fs::path temporary = temporary_name(path);
  try {
    {
      const File file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
      file.write(text);
      file.sync();
    }
    std::error_code error;
    fs::rename(temporary, path, error);
    if (error) throw Error(str(path.string(), " can't be written: ", error.message()));
  } catch (const Error&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  sync_folder(path.parent_path());
}

}  // namespace lockstep
