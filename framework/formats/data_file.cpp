#include "framework/formats/data_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
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

std::string text_in(const std::filesystem::path& path, std::size_t most) {
  const File file = open_data(path.string());
  const std::uint64_t size = file.size();
  if (size > most) {
    fail_file(path.string(), str("it has ", size, " bytes, and the most are ", most));
  }
  std::string text(size, '\0');
  text.resize(file.read_some(0, std::as_writable_bytes(std::span(text))));
  return text;
}

void for_each_line(const std::filesystem::path& path,
                   const std::function<bool(std::string_view line, bool has_end)>& take) {
  const File file = open_data(path.string());
  std::vector<char> buffer(1 << 20);
  std::uint64_t offset = 0;
  std::size_t held = 0;  // bytes of the buffer: the beginning of a line
  for (std::int64_t number = 1;;) {
    require<DataError>(held < kLongestLine, path.string(), ":", number, ": the line has more than ",
                       kLongestLine, " bytes");
    if (held == buffer.size()) buffer.resize(2 * held);
    const std::span<char> room = std::span(buffer).subspan(held);
    const std::size_t read = file.read_some(offset, std::as_writable_bytes(room));
    offset += read;
    std::string_view text(buffer.data(), held + read);
    if (read == 0) {
      if (!text.empty()) (void)take(text, false);
      return;
    }
    for (std::size_t end = text.find('\n', held); end != text.npos; end = text.find('\n')) {
      if (!take(text.substr(0, end), true)) return;
      text.remove_prefix(end + 1);
      ++number;
    }
    held = text.size();
    std::ranges::copy(text, buffer.begin());
  }
}

}  // namespace lockstep::formats
