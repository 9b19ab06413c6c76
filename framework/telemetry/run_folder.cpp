#include "framework/telemetry/run_folder.h"

#include <array>
#include <system_error>

#include "framework/base/text.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

// The files of a run's folder; the first is there from the beginning.
constexpr std::array<const char*, 3> kRunFiles{"config.yaml", "metrics.jsonl", "result.json"};

void check_made(const fs::path& folder, const std::error_code& error) {
  require(!error, "output folder ", folder.string(), " can't be made: ", error.message());
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  check_made(folder, error);
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
  require(!config_name.empty() && config_name != "." && config_name != ".." &&
              config_name.find('/') == std::string::npos,
          "a run can't be named '", config_name, "': the name must be one component of a path");
  make_folders(parent);
  const std::string name = str(config_name, "-", timestamp(now));
  fs::path folder = parent / name;
  for (int attempt = 2;; ++attempt) {
    std::error_code error;
    if (fs::create_directory(folder, error)) return folder;
    // A file of that name is no error to create_directory's caller either way: try the next one.
    if (error != std::errc::file_exists && error != std::errc::not_a_directory) {
      check_made(folder, error);
    }
    folder = parent / str(name, "-", attempt);
  }
}

void claim_run_folder(const fs::path& folder, std::string_view config) {
  std::error_code error;
  require(!fs::exists(folder, error) || fs::is_directory(folder, error), "output folder ",
          folder.string(), " is a file, not a folder");
  make_folders(folder);
  const auto check_free = [&](bool is_free, const char* file) {
    require(is_free, "output folder ", folder.string(), " holds a run already (its ", file,
            "): name another one");
  };
  for (const char* file : kRunFiles) {
    check_free(!fs::exists(fs::symlink_status(folder / file, error)), file);
  }
  try {
    // The one file that two runs can't both make.
    check_free(write_new_file(folder / kRunFiles[0], config), kRunFiles[0]);
  } catch (const ValueError&) {
    throw;
  } catch (const Error& failure) {
    throw ValueError(
        str("output folder ", folder.string(), " can't be written to: ", failure.what()));
  }
  for (const char* file : kRunFiles) sweep_temporary_files(folder / file);
}

}  // namespace lockstep
