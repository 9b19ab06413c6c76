#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/storage/file.h"

namespace lockstep::checkpoint {

/// Where replicas that can't use collectives any more tell replica 0 what they have, and learn what
/// comes of it: in files of a folder that all of them see. Every replica calls arrive(), then
/// tell(); replica 0 hear() and conclude(), the others outcome(). Then all leave(). Whoever waits
/// hands over the run lock. For one thread.
class Meeting {
 public:
  /// `has_ended` says whether another replica has ended: who waits for it gives up.
  Meeting(std::filesystem::path folder, std::int64_t replica, std::int64_t replicas,
          std::function<bool()> has_ended)
      : folder_(std::move(folder)),
        replica_(replica),
        replicas_(replicas),
        has_ended_(std::move(has_ended)) {}
  /// Nobody waits for the replica any more, where it could not leave().
  ~Meeting();

  /// The replica is here, and will tell(). Error if the folder can't be made in one that exists.
  void arrive() const;
  /// Where the text can't be written, replica 0 hears nothing of the replica, and waits no more.
  void tell(const std::string& text) const;

  /// The texts that all have told, in their order; nothing of a replica that can't tell, or does
  /// not arrive within `patience`. A replica that has arrived may take any time.
  [[nodiscard]] std::vector<std::optional<std::string>> hear(
      std::chrono::milliseconds patience) const;
  void conclude(const std::string& outcome) const {
    write_file_atomically(folder_ / "outcome", outcome);
  }
  /// Nothing if replica 0 does not arrive within `patience`, or ends before.
  [[nodiscard]] std::optional<std::string> outcome(std::chrono::milliseconds patience) const {
    return heard(0, folder_ / "outcome", patience);
  }

  /// The replica has read the outcome. Replica 0 waits for the others and removes the folder, and
  /// they wait for that; each a second at most.
  void leave() const noexcept;

 private:
  // "here" or "told" (or "silent", "gone"), with the replica's number.
  [[nodiscard]] std::filesystem::path file_of(const char* what, std::int64_t replica) const {
    return folder_ / str(what, "-", replica);
  }
  // What the replica writes there once it has arrived, for which it has `patience`.
  [[nodiscard]] std::optional<std::string> heard(std::int64_t replica,
                                                 const std::filesystem::path& text,
                                                 std::chrono::milliseconds patience) const;

  std::filesystem::path folder_;
  std::int64_t replica_;
  std::int64_t replicas_;
  std::function<bool()> has_ended_;
};

}  // namespace lockstep::checkpoint
