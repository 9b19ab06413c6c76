#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/storage/file.h"

namespace lockstep::telemetry {

/// How the names of event files begin.
inline constexpr std::string_view kEventFileBegin = "events.out.tfevents.";

/// A new file of TFRecords: each its size, that size's checksum, its bytes and theirs. A record is
/// handed to the kernel at once, so a process that dies leaves no part of one.
class EventFile : private NonCopyable {
 public:
  /// In `folder`, which is made if it is missing: events.out.tfevents.TIME.HOST.PID.N. Readers take
  /// the files of a folder in the order of their names, so TIME, in seconds, is later than that of
  /// the files that are there. Throws Error if it can't be made.
  explicit EventFile(const std::filesystem::path& folder);

  /// Appends a record. Throws Error if it can't be written: then the file has no part of it. Also
  /// if the file was removed, renamed or replaced: new records would be lost.
  void write(std::string_view record);
  /// Waits until all is on the disk.
  void sync() const { file_.sync(); }
  /// "NAME BYTES" of the whole records.
  [[nodiscard]] std::string place() const;

 private:
  std::filesystem::path path_;
  File file_;
  std::uint64_t size_ = 0;  // of whole records
};

/// The files of one writer: a folder, and folders in it, have one each. Any thread.
class EventFiles : private NonCopyable {
 public:
  /// The records that a file begins with. Of the writer's files in a folder `is_first` is the
  /// first.
  using Begin = std::function<std::vector<std::string>(bool is_first)>;

  /// Begins the file in `folder` itself. With `warns` a file that can't be written is no Error: a
  /// warning says so once, and nothing more is written.
  EventFiles(std::filesystem::path folder, Begin begin, bool warns);

  /// Appends a record to the file in the folder `inside`, which is begun if need be. "" is the
  /// folder itself.
  void write(const std::string& inside, std::string_view record);
  /// What is written meanwhile does not wait for the disk.
  void sync();
  /// Ends all files. What is written later goes to new ones.
  void close();
  /// "NAME BYTES" of the file in the folder itself; "" without one.
  [[nodiscard]] std::string place();

 private:
  EventFile& file_in(const std::string& inside) LOCKSTEP_REQUIRES(mutex_);
  // Does what writes, unless the files are left out.
  void attempt(const std::function<void()>& work);

  std::filesystem::path folder_;
  Begin begin_;
  bool warns_;
  std::atomic<bool> are_left_out_ = false;
  Mutex mutex_;
  // Null after close().
  std::map<std::string, std::shared_ptr<EventFile>> files_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::telemetry
