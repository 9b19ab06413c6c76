#include "framework/storage/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/number_text.h"
#include "framework/base/text.h"
#include "framework/storage/checkpoint_reader.h"
#include "framework/storage/file.h"

namespace fs = std::filesystem;

namespace lockstep::storage {
namespace {

constexpr std::string_view kStep = "step-";
constexpr std::string_view kTemporary = ".tmp";
constexpr std::string_view kRemoved = ".old.tmp";

[[noreturn]] void fail_to(const char* what, const fs::path& path, const std::string& reason) {
  throw Error(str(path.string(), " can't be ", what, ": ", reason));
}

void check_done(const std::error_code& error, const char* what, const fs::path& path) {
  if (error) fail_to(what, path, text_of_errno(error.value()));
}

std::string step_name(std::int64_t step) {
  require(step >= 0, "checkpoint: the step is ", step);
  return formatted("step-%08lld", static_cast<long long>(step));
}

// Makes a folder, durably, in a folder that exists. No error if it is there already.
void make_folder(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  fs::create_directory(path, error);
  check_done(error, "made", path);
  sync_parent(path);
}

// Returns the names in a folder, hidden ones too.
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
  std::error_code error;
  fs::rename(from, to, error);
  check_done(error, "renamed", from);
}

// Returns the manifest of a folder that has all files that the manifest lists.
std::optional<Manifest> whole_manifest(const fs::path& folder) {
  try {
    return CheckpointReader(folder).manifest();
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_here(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::status_known(status)) check_done(error, "read", path);
  return fs::exists(status);
}

// True for a folder, false for a link to one.
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

// Returns the text of a file that is the name of a step: the file stands for a link.
std::optional<std::string> named_step(const fs::path& path) {
  constexpr std::uint64_t kLongest = 64;
  try {
    const File file(path, O_RDONLY);
    if (file.size() > kLongest) return std::nullopt;
    std::string text(file.size(), '\0');
    file.read(0, std::as_writable_bytes(std::span(text)));
    text.erase(text.find_last_not_of("\r\n ") + 1);
    const bool is_beside = text.find('/') == std::string::npos;
    return is_beside && CheckpointFolder::step_of(text) ? std::optional(text) : std::nullopt;
  } catch (const Error& error) {
    throw DataError(error.what());
  }
}

}  // namespace

fs::path CheckpointFolder::resolved(fs::path path) {
  constexpr int kMostLinks = 40;                        // as Linux has it
  if (!path.has_filename()) path = path.parent_path();  // "latest/"
  for (int links = 0;; ++links) {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    std::optional<fs::path> next;
    if (type == fs::file_type::symlink) next = fs::read_symlink(path, error);
    if (type == fs::file_type::regular) next = named_step(path);
    if (error == std::errc::too_many_symbolic_link_levels || (next && links == kMostLinks)) {
      throw DataError(str(path.string(), " can't be read: ", text_of_errno(ELOOP)));
    }
    if (!next || error) return path;
    path = path.parent_path() / *next;
    if (!path.has_filename()) path = path.parent_path();
  }
}

std::optional<std::int64_t> CheckpointFolder::step_of(const fs::path& folder) {
  const std::string name = folder.filename();
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto step = parse_number<std::int64_t>(std::string_view(name).substr(kStep.size()));
  return step && *step >= 0 && step_name(*step) == name ? step : std::nullopt;
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
    if (step && is_folder(path_ / name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater<>());
  return steps;
}

void CheckpointFolder::begin(std::int64_t step) const {
  const fs::path folder = unfinished(step);
  check_links();
  make_folder(path_);
  make_folder(folder);
}

void CheckpointFolder::publish(const Manifest& manifest) const {
  const std::string text = write_manifest(manifest);
  const fs::path folder = unfinished(manifest.step);
  for (const std::string& name : names_in(folder)) {
    const bool is_listed = std::ranges::count(manifest.files, name, &ManifestFile::name) > 0;
    if (!is_listed) remove_tree(folder / name);
  }
  write_file_atomically(folder / kManifestName, text);
  static_cast<void>(CheckpointReader(folder));  // a checkpoint that can't be read gets no name
  sync_parent(folder / kManifestName);
  put_in_place(manifest.step);
  set_link(kLatest, manifest.step);
  // A checkpoint that was replaced has one of these names now.
  remove_tree(folder);
  remove_tree(removed(manifest.step));
}

void CheckpointFolder::put_in_place(std::int64_t step) const {
  const fs::path from = unfinished(step);
  const fs::path to = of_step(step);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0) {
    // There is nothing to exchange with, or the file system can't exchange names.
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
  sync_parent(to);
}

void CheckpointFolder::amend(const Manifest& manifest) const {
  write_file_atomically(of_step(manifest.step) / kManifestName, write_manifest(manifest));
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
    sync_parent(of_step(step));
    remove_tree(removed(step));
  }
}

std::int64_t CheckpointFolder::set_aside_after(std::int64_t step) const {
  // A wrong link is an error now, rather than at the first save.
  check_links();
  (void)latest();
  (void)best();
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
  sync_parent(of_step(step));
  return count;
}

void CheckpointFolder::sweep() const {
  if (!is_here(path_)) return;
  for (const std::string& name : names_in(path_)) {
    if (!name.starts_with(str(".", kStep)) || !name.ends_with(kRemoved)) continue;
    const auto step = step_of(name.substr(1, name.size() - 1 - kRemoved.size()));
    if (step && !is_here(of_step(*step)) && whole_manifest(path_ / name)) {
      rename_to(path_ / name, of_step(*step));
      sync_parent(of_step(*step));
    }
  }
  for (const std::string& name : names_in(path_)) {
    const bool is_ours = name.starts_with(str(".", kStep)) || name.starts_with(str(".", kLatest)) ||
                         name.starts_with(str(".", kBest));
    if (is_ours && name.ends_with(kTemporary)) remove_tree(path_ / name);
  }
}

std::optional<std::int64_t> CheckpointFolder::linked(const char* link) const {
  const fs::path target = resolved(path_ / link);
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target, error);
  if (!fs::exists(status)) return std::nullopt;
  require<DataError>(fs::is_directory(status) || fs::is_regular_file(status), target.string(),
                     " is no folder and no file");
  const bool is_inside = fs::equivalent(target.parent_path(), path_, error);
  check_done(error, "read", path_);
  return is_inside && fs::is_directory(status) ? step_of(target) : std::nullopt;
}

void CheckpointFolder::set_link(const char* link, std::int64_t step) const {
  if (!is_here(of_step(step))) fail_to("linked to", of_step(step), text_of_errno(ENOENT));
  const fs::path temporary = path_ / str(".", link, kTemporary);
  remove_tree(temporary);
  if (::symlink(step_name(step).c_str(), temporary.c_str()) == 0) {
    rename_to(temporary, path_ / link);
    sync_parent(temporary);
  } else {
    // FAT, SMB and object stores have no links. Any other fault also fails the file.
    write_file_atomically(path_ / link, step_name(step) + "\n");
  }
}

void CheckpointFolder::check_links() const {
  for (const char* link : {kLatest, kBest}) {
    require<DataError>(!is_folder(path_ / link), (path_ / link).string(),
                       " is a folder, as copies that follow links have it; a run that saves needs "
                       "a link there: remove the folder or, if that of its step is not here, give "
                       "it that name");
  }
}

}  // namespace lockstep::storage
