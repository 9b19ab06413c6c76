#include "framework/formats/data_file.h"

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/limits.h"
#include "framework/base/memory.h"
#include "framework/base/open_file.h"
#include "framework/base/text.h"

namespace lockstep::formats {

namespace {

// As a file in memory: it can be read but once, and has no place to seek to.
Descriptor read_standard_input() {
  Descriptor file(::memfd_create("lockstep-standard-input", MFD_CLOEXEC));
  if (!file.open())
    fail_file(kStandardInput, str("there is no memory file: ", text_of_errno(errno)));
  const File memory(Descriptor(::dup(file.get())), "standard input", ErrorKind::data);
  std::vector<char> part(std::size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_file(kStandardInput, str("it cannot be read: ", text_of_errno(errno)));
    if (count == 0) return file;
    const auto bytes = static_cast<std::size_t>(count);
    require_memory(kStandardInput, bytes, "what comes next takes");
    memory.write(std::string_view(part.data(), bytes));
  }
}

}  // namespace

void fail_file(const std::string& path, const std::string& rule) {
  throw DataError(str("data file '", path, "': ", rule));
}

bool is_there(const std::filesystem::path& path) {
  if (path == kStandardInput) return true;
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

File open_data(const std::string& path) {
  if (path == kStandardInput) {
    static const Descriptor all = read_standard_input();
    return File(Descriptor(::fcntl(all.get(), F_DUPFD_CLOEXEC, 0)), "standard input",
                ErrorKind::data);
  }
  OpenedFile file = open_file(path, O_RDONLY);
  if (file.error == ENOENT || file.error == ENOTDIR) fail_file(path, "there is no such file");
  if (file.error != 0) fail_file(path, str("it cannot be opened: ", file.reason));
  if (!file.descriptor.open()) fail_file(path, file.reason);
  return File(std::move(file.descriptor), str("data file '", path, "'"), ErrorKind::data);
}

}  // namespace lockstep::formats
