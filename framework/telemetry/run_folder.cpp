#include "framework/telemetry/run_folder.h"

#include <array>
#include <system_error>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/telemetry/file.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

// What a folder with a run in it has; the first is there from the beginning.
constexpr std::array<const char*, 3> kRunFiles{"config.yaml", "metrics.jsonl", "result.json"};

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

void claim_run_folder(const fs::path& folder, std::string_view config) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw ValueError(str("output folder ", folder.string(), " is a file, not a folder"));
  }
  make_folders(folder);
  const auto refuse = [&](const char* file) {
    throw ValueError(str("output folder ", folder.string(), " holds a run already (its ", file,
                         "): name another one"));
  };
  for (const char* file : kRunFiles) {
    if (fs::exists(fs::symlink_status(folder / file, error))) refuse(file);
  }
  try {
    // The one file that two runs can't both make.
    if (!write_new_file(folder / kRunFiles[0], config)) refuse(kRunFiles[0]);
  } catch (const ValueError&) {
    throw;
  } catch (const Error& failure) {
    throw ValueError(
        str("output folder ", folder.string(), " can't be written to: ", failure.what()));
  }
  for (const char* file : kRunFiles) sweep_temporary_files(folder / file);
}

}  // namespace lockstep
