#include "framework/formats/data_file.h"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/open_file.h"
#include "framework/base/text.h"

namespace lockstep::formats {

void fail_file(const std::string& path, const std::string& rule) {
  throw DataError(str("data file '", path, "': ", rule));
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

void require_memory(const std::string& path, std::size_t bytes, const std::string& what,
                    const std::string& advice) {
  const std::string lack = lack_of_memory(bytes);
  if (!lack.empty()) fail_file(path, str(what, " ", lack, advice));
}

void do_or_tell(const OnDamage& on_damage, const std::function<void()>& work) {
  try {
    work();
  } catch (const DataError& error) {
    if (!on_damage) throw;
    on_damage(error);
  }
}

bool has_at(std::span<const std::uint8_t> bytes, std::size_t place,
            std::string_view text) noexcept {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.size() >= place && all.substr(place).starts_with(text);
}

FileBytes::FileBytes(std::vector<std::uint8_t> bytes) : size_(bytes.size()) {
  const auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  memory_ = {owner, owner->data()};
}

DataFile::DataFile(const std::string& path) : path_(path) {
  OpenedFile file = open_file(path_, O_RDONLY);
  if (file.error == ENOENT || file.error == ENOTDIR) fail("there is no such file");
  if (file.error != 0) fail(str("it cannot be opened: ", file.reason));
  if (!file.descriptor.open()) fail(file.reason);
  descriptor_ = std::move(file.descriptor);
  struct stat opened {};
  if (::fstat(descriptor_.get(), &opened) != 0)
    fail(str("it cannot be read: ", text_of_errno(errno)));
  size_ = static_cast<std::size_t>(opened.st_size);
}

std::size_t DataFile::read(std::span<std::uint8_t> into) const {
  std::size_t filled = 0;
  while (filled < into.size()) {
    const ssize_t count = ::read(descriptor_.get(), into.data() + filled, into.size() - filled);
    if (count == 0) break;
    if (count > 0) {
      filled += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      fail(str("it cannot be read: ", text_of_errno(errno)));
    }
  }
  return filled;
}

FileBytes DataFile::bytes() const {
  constexpr std::size_t kLeastMapped = std::size_t{64} << 10;
  if (size_ < kLeastMapped) {
    std::vector<std::uint8_t> copy(size_);
    copy.resize(read(copy));
    return FileBytes(std::move(copy));
  }
  const std::size_t size = size_;
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_.get(), 0);
  if (memory == MAP_FAILED) fail(str("it cannot be mapped: ", text_of_errno(errno)));
  return {std::shared_ptr<const std::uint8_t>(
              static_cast<const std::uint8_t*>(memory),
              [size, memory](const std::uint8_t*) { ::munmap(memory, size); }),
          size};
}

}  // namespace lockstep::formats
