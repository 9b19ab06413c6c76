#include "framework/formats/image_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "framework/base/text.h"
#include "framework/formats/csv.h"

namespace fs = std::filesystem;

namespace lockstep::formats {
namespace {

bool names_picture(const std::string& name) {
  constexpr std::array<std::string_view, 3> kEndings{".png", ".jpg", ".jpeg"};
  return std::ranges::any_of(
      kEndings, [&](std::string_view ending) { return lower(name).ends_with(ending); });
}

}  // namespace

bool is_picture(const FolderEntry& file) {
  return file.type != fs::file_type::directory && names_picture(file.name);
}

ImageFolder::ImageFolder(const std::string& root, bool may_be_empty, const OnDamage& on_damage)
    : root_(root) {
  for (const FolderEntry& entry : entries_of(root_)) {
    if (entry.type == fs::file_type::directory) {
      read_class(entry.name, may_be_empty, on_damage);
    } else {
      passed_over_.push_back(path_in(root_, entry.name));
    }
  }
  if (classes_.empty()) {
    fail_folder(root_, "it has no folders, but must have one with pictures for each class");
  }
  if (pictures_.empty()) {
    fail_folder(root_, "its folders have no pictures, which are .png, .jpg or .jpeg files");
  }
  std::unordered_map<std::string_view, std::string_view> names;
  for (const std::string& name : classes_) {
    const auto [same, is_new] = names.emplace(trimmed(name), name);
    if (is_new) continue;
    fail_folder(root_, str("the classes '", same->second, "' and '", name,
                           "' differ by blanks at their ends alone: make them one, or give one "
                           "another name"));
  }
  std::ranges::sort(passed_over_);
}

ImageFolder ImageFolder::without_classes(const std::string& root) {
  ImageFolder folder;
  std::error_code error;
  if (is_there(root) && !fs::is_directory(root, error)) {
    folder.root_ = fs::path(root).parent_path().string();
    folder.pictures_ = {{fs::path(root).filename().string(), -1}};
    return folder;
  }
  folder.root_ = root;
  std::vector<std::string> links = for_each_below(
      root, [&](const FolderEntry& /*entry*/, const std::string& path) { folder.add(path, -1); },
      [](const FolderEntry& entry) { return names_picture(entry.name); });
  if (folder.pictures_.empty()) {
    fail_folder(root, str("it has no pictures, which are .png, .jpg or .jpeg files",
                          links.empty() ? "" : "; links to folders are not followed"));
  }
  std::ranges::sort(folder.pictures_, std::less<>(), &Picture::name);
  std::ranges::move(links, std::back_inserter(folder.passed_over_));
  std::ranges::sort(folder.passed_over_);
  return folder;
}

void ImageFolder::leave_out(const std::vector<std::int64_t>& pictures) {
  std::vector<char> stays(pictures_.size(), 1);
  for (const std::int64_t index : pictures) {
    (void)picture(index);
    stays[static_cast<std::size_t>(index)] = 0;
  }
  std::size_t next = 0;
  std::erase_if(pictures_, [&](const Picture& /*picture*/) { return stays[next++] == 0; });
}

void ImageFolder::read_class(const std::string& name, bool may_be_empty,
                             const OnDamage& on_damage) {
  const std::string folder = path_in(root_, name);
  const std::size_t before = pictures_.size();
  for (const FolderEntry& entry : entries_of(folder)) {
    do_or_tell(on_damage, [&] {
      if (entry.type == fs::file_type::directory && !names_picture(entry.name)) {
        fail_folder(path_in(folder, entry.name),
                    "it lies inside a class, but pictures must lie in root/CLASS itself");
      }
      add(path_in(name, entry.name), std::ssize(classes_));
    });
  }
  do_or_tell(on_damage, [&] {
    if (pictures_.size() > before || may_be_empty) return;
    fail_folder(folder, "it has no pictures, but a class must have .png, .jpg or .jpeg files");
  });
  classes_.push_back(name);
}

void ImageFolder::add(const std::string& name, std::int64_t label) {
  if (names_picture(name)) {
    pictures_.push_back({name, label});
  } else {
    passed_over_.push_back(path_in(root_, name));
  }
}

const ImageFolder::Picture& ImageFolder::picture(std::int64_t index) const {
  require(index >= 0 && index < size(), "image folder '", root_, "': there is no picture ", index,
          "; it has ", size());
  return pictures_[static_cast<std::size_t>(index)];
}

}  // namespace lockstep::formats
