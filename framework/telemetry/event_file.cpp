#include "framework/telemetry/event_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <climits>
#include <ctime>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/number_text.h"
#include "framework/base/record.h"
#include "framework/base/text.h"

namespace fs = std::filesystem;

namespace lockstep::telemetry {
namespace {

constexpr std::int64_t kLatest = 9'999'999'999;  // in the year 2286

// What each byte does to a CRC-32C: of the polynomial 1EDC6F41, whose lowest bit stands first here.
constexpr std::array<std::uint32_t, 256> kByteSums = [] {
  std::array<std::uint32_t, 256> sums{};
  for (std::uint32_t byte = 0; byte < sums.size(); ++byte) {
    sums[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) {
      sums[byte] = (sums[byte] >> 1) ^ ((sums[byte] & 1) * 0x82f63b78U);
    }
  }
  return sums;
}();

// Appends the bytes and their CRC-32C, masked as TFRecords have it: bytes that contain checksums
// get good ones, too.
void put_checked(std::string& text, std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kByteSums[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  text += bytes;
  put(text, std::rotr(~crc, 15) + 0xa282ead8U);
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size()) == 0 ? name.data() : "localhost";
}

fs::path new_name(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(str(folder.string(), " can't be made: ", text_of_errno(error.value())));
  std::int64_t time = std::time(nullptr);
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kEventFileBegin)) continue;
    const std::string_view digits = std::string_view(name).substr(kEventFileBegin.size());
    const auto later = parse_number<std::int64_t>(digits.substr(0, digits.find('.'))).value_or(0);
    // Of ten digits: names with more of them don't sort by their numbers.
    if (later < kLatest) time = std::max(time, later + 1);
  }
  static std::atomic<int> count{0};
  return folder / str(kEventFileBegin, formatted("%010lld", static_cast<long long>(time)), ".",
                      host_name(), ".", ::getpid(), ".", count++);
}

}  // namespace

EventFile::EventFile(const fs::path& folder)
    : path_(new_name(folder)), file_(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND) {}

void EventFile::write(std::string_view record) {
  std::string text;
  put_checked(text, encode(std::uint64_t{record.size()}));
  put_checked(text, record);
  try {
    file_.write(text);
  } catch (const Error&) {
    // Behind a part of a record nobody would find the next one. Where this fails, too, the error
    // that is under way says why.
    [[maybe_unused]] const int cut = ::ftruncate(file_.descriptor(), static_cast<off_t>(size_));
    throw;
  }
  size_ += text.size();
  if (!file_.is_in_place()) {
    throw Error(str(path_.string(), " was removed, renamed or replaced while it was written"));
  }
}

std::string EventFile::place() const {
  return path_.filename().string() + " " + std::to_string(size_);
}

void EventFiles::attempt(const std::function<void()>& work) {
  try {
    if (!are_left_out_) work();
  } catch (const Error& error) {
    if (!warns_) throw;
    if (are_left_out_.exchange(true)) return;
    log_warning(str("event files for TensorBoard are left out from here on: ", error.what()));
  }
}

EventFiles::EventFiles(fs::path folder, Begin begin, bool warns)
    : folder_(std::move(folder)), begin_(std::move(begin)), warns_(warns) {
  const MutexLock lock(mutex_);
  attempt([&]() LOCKSTEP_REQUIRES(mutex_) { (void)file_in(""); });
}

void EventFiles::write(const std::string& inside, std::string_view record) {
  const MutexLock lock(mutex_);
  attempt([&]() LOCKSTEP_REQUIRES(mutex_) { file_in(inside).write(record); });
  if (are_left_out_) files_.clear();  // which frees the space of removed ones
}

void EventFiles::sync() {
  std::vector<std::shared_ptr<const EventFile>> files;
  {
    const MutexLock lock(mutex_);
    for (const auto& [inside, file] : files_) {
      if (file) files.push_back(file);
    }
  }
  attempt([&] {
    for (const auto& file : files) file->sync();
  });
}

void EventFiles::close() {
  const MutexLock lock(mutex_);
  for (auto& [inside, file] : files_) file.reset();
}

std::string EventFiles::place() {
  const MutexLock lock(mutex_);
  const auto file = files_.find("");
  return file == files_.end() || !file->second ? "" : file->second->place();
}

EventFile& EventFiles::file_in(const std::string& inside) {
  const auto there = files_.find(inside);
  if (there != files_.end() && there->second) return *there->second;
  auto file = std::make_shared<EventFile>(inside.empty() ? folder_ : folder_ / inside);
  for (const std::string& record : begin_(there == files_.end())) file->write(record);
  return *(files_[inside] = std::move(file));
}

}  // namespace lockstep::telemetry
