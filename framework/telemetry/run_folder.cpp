#include "framework/telemetry/run_folder.h"

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/telemetry/event_file.h"
#include "framework/telemetry/failure_record.h"

namespace fs = std::filesystem;

namespace lockstep {
namespace {

// The files of a run's folder; the first is there from the beginning.
constexpr std::array<const char*, 3> kRunFiles{"config.yaml", "metrics.jsonl", "result.json"};

// What of a run's folder shows that it holds a run; "" if nothing does. What is hidden is of
// writers that were killed.
std::string held_by(const fs::path& folder) {
  std::error_code error;
  for (const char* file : {kRunFiles[2], kRunFiles[1]}) {
    const fs::path path = folder / file;
    const fs::file_status status = fs::symlink_status(path, error);
    const bool may_be_empty = file == kRunFiles[1] && fs::is_regular_file(status);
    if (may_be_empty ? fs::file_size(path, error) > 0 : fs::exists(status)) return file;
  }
  for (const auto& entry : fs::directory_iterator(folder / kCheckpointsFolder, error)) {
    if (!entry.path().filename().string().starts_with('.')) return kCheckpointsFolder;
  }
  return "";
}

// Those of a run that came to nothing: TensorBoard would show them as the next one's.
void remove_event_files(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.path().filename().string().starts_with(telemetry::kEventFileBegin)) continue;
    if (fs::is_regular_file(entry.symlink_status())) fs::remove(entry.path(), error);
  }
}

void check_made(const fs::path& folder, const std::error_code& error) {
  require(!error, "output folder ", folder.string(),
          " can't be made: ", text_of_errno(error.value()));
}

void make_folders(const fs::path& folder) {
  fs::path made;
  for (const fs::path& part : folder) {
    made /= part;
    std::error_code error;
    if (fs::is_directory(made, error)) continue;
    fs::create_directory(made, error);
    check_made(folder, error);
    sync_parent(made);
  }
}

std::string timestamp(std::time_t now) {
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return {text.data(), size};
}

// `write` with its failure as a ValueError.
template <typename Write>
void write_into(const fs::path& folder, const Write& write) {
  try {
    write();
  } catch (const ValueError&) {
    throw;
  } catch (const Error& failure) {
    throw ValueError(
        str("output folder ", folder.string(), " can't be written to: ", failure.what()));
  }
  for (const char* file : kRunFiles) sweep_temporary_files(folder / file);
  sweep_temporary_files(folder / kReportFile);
  for (const char* file : kEvaluationFiles) sweep_temporary_files(folder / file);
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
    if (fs::create_directory(folder, error)) {
      sync_parent(folder);
      return folder;
    }
    // A file of that name is no error to create_directory's caller either way: try the next one.
    if (error != std::errc::file_exists && error != std::errc::not_a_directory) {
      check_made(folder, error);
    }
    folder = parent / str(name, "-", attempt);
  }
}

RunFolderLock::RunFolderLock(const fs::path& folder, std::chrono::milliseconds patience)
    : path_(folder) {
  try {
    folder_ = std::make_unique<File>(folder, O_RDONLY | O_DIRECTORY);
  } catch (const Error& error) {
    throw ValueError(str("output folder ", folder.string(), " can't be opened: ", error.what()));
  }
  constexpr std::chrono::milliseconds kSilence{1000};
  const auto begin = std::chrono::steady_clock::now();
  bool is_told = false;
  while (::flock(folder_->descriptor(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      log_warning(str("output folder ", folder.string(), " can't be locked (", text_of_errno(errno),
                      "): let no other run go on there"));
      return;
    }
    const auto waited = std::chrono::steady_clock::now() - begin;
    require(waited < patience, "output folder ", folder.string(),
            " is in use: another run is going on there");
    if (waited > kSilence && !std::exchange(is_told, true)) {
      log_info(str("output folder ", folder.string(), " is in use; waiting up to ",
                   std::chrono::ceil<std::chrono::seconds>(patience).count(),
                   " s for a run that is ending there"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  is_held_ = true;
}

RunFolderLock claim_run_folder(const fs::path& folder, std::string_view config,
                               const std::function<bool(const std::string&)>& is_of_run) {
  std::error_code error;
  require(!fs::exists(folder, error) || fs::is_directory(folder, error), "output folder ",
          folder.string(), " is a file, not a folder");
  require(!error, "output folder ", folder.string(),
          " can't be read: ", text_of_errno(error.value()));
  make_folders(folder);
  const auto check_free = [&](const std::string& held) {
    require(held.empty(), "output folder ", folder.string(), " holds a run already (its ", held,
            "): name another one, or go on with --resume auto");
  };
  check_free(held_by(folder));
  RunFolderLock lock(folder, std::chrono::milliseconds(0));
  check_free(held_by(folder));  // a run may have been there until now
  const fs::path file = folder / kRunFiles[0];
  write_into(folder, [&] {
    // Of a run that came to nothing here.
    for (const fs::path& failure : failure_files(folder)) fs::remove(failure, error);
    // Two runs can't both make it, also where no lock tells whether one goes on.
    if (write_new_file(file, config)) return;
    check_free(lock.is_held() && fs::is_regular_file(file) ? "" : kRunFiles[0]);
    require(!is_of_run || is_of_run(formats::text_in(file)), "output folder ", folder.string(),
            " has a config.yaml that no run has written: it would be lost; name another folder");
    remove_event_files(folder);
    fs::remove(folder / kEventsFile, error);
    write_file_atomically(file, config);
  });
  return lock;
}

bool holds_run(const fs::path& folder) {
  std::error_code error;
  return !folder.empty() && fs::exists(folder / kRunFiles[0], error);  // "" is not this folder
}

bool run_goes_on_in(const fs::path& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return opened.open() && ::flock(opened.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void reclaim_run_folder(const RunFolderLock& lock, std::string_view config) {
  const fs::path& folder = lock.folder();
  for (const char* file : kRunFiles) {
    std::error_code missing;
    const fs::file_status status = fs::status(folder / file, missing);
    require(!fs::exists(status) || fs::is_regular_file(status), "output folder ", folder.string(),
            ": its ", file, " is no regular file");
  }
  write_into(folder, [&] {
    std::error_code missing;
    fs::remove(folder / kRunFiles[2], missing);
    write_file_atomically(folder / kRunFiles[0], config);
  });
}

}  // namespace lockstep
