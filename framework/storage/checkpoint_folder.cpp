#include "framework/storage/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep::storage {
namespace {

constexpr mode_t kFolderMode = 0700;
constexpr unsigned kFileMode = 0600;
constexpr const char* kLatest = "latest";
constexpr const char* kBest = "best";
constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kRemoved = ".old.tmp";

[[noreturn]] void fail_to(const char* what, const fs::path& path, const std::string& reason) {
  throw Error(str(path.string(), " can't be ", what, ": ", reason));
}

// Checks what a system call returns.
void check_done(int result, const char* what, const fs::path& path) {
  if (result != 0) fail_to(what, path, std::strerror(errno));
}

void check_done(const std::error_code& error, const char* what, const fs::path& path) {
  if (error) fail_to(what, path, error.message());
}

std::string step_name(std::int64_t step) {
  require(step >= 0, "checkpoint: the step is ", step);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "step-%08lld", static_cast<long long>(step));
  return text.data();
}

void sync_folder(const fs::path& path) {
  File(path, O_RDONLY | O_DIRECTORY).sync();
}

// Makes a folder, durably, in a folder that exists. No error if it is there already.
void make_folder(const fs::path& path, mode_t mode) {
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  const int result = ::mkdir(path.c_str(), mode);
  // Another process may have made it meanwhile.
  if (result != 0 && !(errno == EEXIST && fs::is_directory(path, error))) {
    check_done(result, "made", path);
  }
  sync_folder(parent);
}

// The names in a folder, hidden ones too.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  check_done(error, "read", folder);
  return names;
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  check_done(error, "removed", path);
}

void rename_to(const fs::path& from, const fs::path& to) {
  check_done(::rename(from.c_str(), to.c_str()), "renamed", from);
}

// Whether a folder has a manifest and the files that it lists.
bool is_whole(const fs::path& folder) {
  try {
    static_cast<void>(CheckpointReader(folder));
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_here(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::status_known(status)) check_done(error, "read", path);
  return fs::exists(status);
}

}  // namespace

std::optional<std::int64_t> CheckpointFolder::step_of(const fs::path& folder) {
  const std::string name = folder.filename();
  std::int64_t step = -1;
  if (name.starts_with(kStep)) {
    std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  }
  return step >= 0 && step_name(step) == name ? std::optional(step) : std::nullopt;
}

fs::path CheckpointFolder::of_step(std::int64_t step) const {
  return path_ / step_name(step);
}

fs::path CheckpointFolder::unfinished(std::int64_t step) const {
  return path_ / str(".", step_name(step), kTemporary);
}

fs::path CheckpointFolder::removed(std::int64_t step) const {
  return path_ / str(".", step_name(step), kRemoved);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  if (!is_here(path_)) return steps;
  for (const std::string& name : names_in(path_)) {
    const auto step = step_of(name);
    std::error_code error;
    if (step && fs::is_directory(fs::symlink_status(path_ / name, error))) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void CheckpointFolder::begin(std::int64_t step) const {
  const fs::path folder = unfinished(step);
  make_folder(path_, kFolderMode);
  make_folder(folder, kFolderMode);
}

void CheckpointFolder::publish(const Manifest& manifest) const {
  const std::string text = write_manifest(manifest);
  const fs::path folder = unfinished(manifest.step);
  for (const std::string& name : names_in(folder)) {
    const bool is_listed = std::ranges::count(manifest.files, name, &ManifestFile::name) > 0;
    if (!is_listed) remove_tree(folder / name);
  }
  write_file_atomically(folder / kManifestName, text, kFileMode);
  static_cast<void>(CheckpointReader(folder));  // what can't be read gets no name
  sync_folder(folder);
  put_in_place(manifest.step);
  set_link(kLatest, manifest.step);
  // One that was replaced has one of these names now.
  remove_tree(folder);
  remove_tree(removed(manifest.step));
}

void CheckpointFolder::put_in_place(std::int64_t step) const {
  const fs::path from = unfinished(step);
  const fs::path to = of_step(step);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    // Nothing to exchange with, or no file system that can.
    const fs::path old = removed(step);
    remove_tree(old);
    if (is_here(to)) rename_to(to, old);
    try {
      rename_to(from, to);
    } catch (const Error&) {
      if (is_here(old)) rename_to(old, to);
      throw;
    }
  }
  sync_folder(path_);
}

void CheckpointFolder::amend(const Manifest& manifest) const {
  write_file_atomically(of_step(manifest.step) / kManifestName, write_manifest(manifest),
                        kFileMode);
}

void CheckpointFolder::set_best(std::int64_t step) const {
  set_link(kBest, step);
}

std::optional<std::int64_t> CheckpointFolder::best() const {
  return linked(kBest);
}

void CheckpointFolder::prune(std::int64_t keep) const {
  require(keep >= 1, "checkpoints: ", keep, " to keep");
  const auto best = linked(kBest);
  const auto latest = linked(kLatest);
  std::int64_t kept = 0;
  for (const std::int64_t step : steps()) {
    if (kept++ < keep || step == best || step == latest) continue;
    remove_tree(removed(step));
    rename_to(of_step(step), removed(step));
    sync_folder(path_);
    remove_tree(removed(step));
  }
}

std::int64_t CheckpointFolder::set_aside_after(std::int64_t step) const {
  std::int64_t count = 0;
  for (const std::int64_t later : steps()) {
    if (later <= step) continue;
    const fs::path aside = path_ / str("aside-", step_name(later));
    remove_tree(aside);
    rename_to(of_step(later), aside);
    ++count;
  }
  if (count == 0) return 0;
  if (is_here(of_step(step))) set_link(kLatest, step);
  if (is_here(path_ / kBest) && !best()) remove_tree(path_ / kBest);
  sync_folder(path_);
  return count;
}

void CheckpointFolder::sweep() const {
  if (!is_here(path_)) return;
  for (const std::string& name : names_in(path_)) {
    if (!name.starts_with(str(".", kStep)) || !name.ends_with(kRemoved)) continue;
    const auto step = step_of(name.substr(1, name.size() - 1 - kRemoved.size()));
    if (step && !is_here(of_step(*step)) && is_whole(path_ / name)) {
      rename_to(path_ / name, of_step(*step));
      sync_folder(path_);
    }
  }
  for (const std::string& name : names_in(path_)) {
    const bool is_ours = name.starts_with(str(".", kStep)) || name.starts_with(str(".", kLatest)) ||
                         name.starts_with(str(".", kBest));
    if (is_ours && name.ends_with(kTemporary)) remove_tree(path_ / name);
  }
}

std::optional<std::int64_t> CheckpointFolder::linked(const char* link) const {
  std::error_code error;
  const fs::path target = fs::canonical(path_ / link, error);
  if (error == std::errc::no_such_file_or_directory) return std::nullopt;
  check_done(error, "read", path_ / link);
  const bool is_inside = fs::equivalent(target.parent_path(), path_, error);
  check_done(error, "read", path_);
  return is_inside ? step_of(target.filename()) : std::nullopt;
}

void CheckpointFolder::set_link(const char* link, std::int64_t step) const {
  if (!is_here(of_step(step))) fail_to("linked to", of_step(step), std::strerror(ENOENT));
  const fs::path temporary = path_ / str(".", link, kTemporary);
  remove_tree(temporary);
  check_done(::symlink(step_name(step).c_str(), temporary.c_str()), "made", temporary);
  rename_to(temporary, path_ / link);
  sync_folder(path_);
}

}  // namespace lockstep::storage
