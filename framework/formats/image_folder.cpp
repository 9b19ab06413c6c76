#include "framework/formats/image_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "framework/base/text.h"
#include "framework/formats/data_file.h"
#include "framework/formats/folder_entries.h"

namespace fs = std::filesystem;

namespace lockstep::formats {
namespace {

std::string joined(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

bool has_picture_ending(std::string name) {
  constexpr std::array<std::string_view, 3> kEndings{".png", ".jpg", ".jpeg"};
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

ImageFolder::ImageFolder(const std::string& root) : root_(root) {
  for (const FolderEntry& entry : entries_of(root_)) {
    if (entry.type == fs::file_type::directory) {
      read_class(entry.name);
    } else {
      passed_over_.push_back(joined(root_, entry.name));
    }
  }
  if (classes_.empty()) {
    fail_folder(root_, "it has no folders, but must have one with pictures for each class");
  }
  std::ranges::sort(passed_over_);
}

std::string ImageFolder::path(std::int64_t index) const {
  const Picture& found = picture(index);
  return joined(joined(root_, classes_[static_cast<std::size_t>(found.label)]), found.name);
}

std::int64_t ImageFolder::label(std::int64_t index) const {
  return picture(index).label;
}

void ImageFolder::read_class(const std::string& name) {
  const std::string folder = joined(root_, name);
  const std::int64_t label = std::ssize(classes_);
  const std::size_t before = pictures_.size();
  for (const FolderEntry& entry : entries_of(folder)) {
    const std::string path = joined(folder, entry.name);
    if (entry.type == fs::file_type::directory) {
      fail_folder(path, "it lies inside a class, but pictures must lie in root/CLASS itself");
    }
    if (!has_picture_ending(entry.name)) {
      passed_over_.push_back(path);
      continue;
    }
    if (entry.type != fs::file_type::regular) {
      fail_file(path, "it has a picture's name, but is no file or leads to none");
    }
    pictures_.push_back({entry.name, label});
  }
  if (pictures_.size() == before) {
    fail_folder(folder, "it has no pictures, but a class must have .png, .jpg or .jpeg files");
  }
  classes_.push_back(name);
}

const ImageFolder::Picture& ImageFolder::picture(std::int64_t index) const {
  require(index >= 0 && index < size(), "image folder '", root_, "': there is no picture ", index,
          "; it has ", size());
  return pictures_[static_cast<std::size_t>(index)];
}

}  // namespace lockstep::formats
