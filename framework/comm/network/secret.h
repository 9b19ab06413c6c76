#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <initializer_list>

#include "framework/base/bytes.h"
#include "framework/base/record.h"

namespace lockstep::comm {

/// A keyed checksum that only a holder of the key can make: HMAC-SHA-256 (RFC 2104).
using Mac = std::array<std::byte, 32>;

/// Compares two Macs, in a time that does not tell where they differ.
[[nodiscard]] bool is_same(const Mac& a, const Mac& b) noexcept;

/// Fills `bytes` so that nobody can guess them. Throws Error if the system has no random bytes.
void fill_randomly(Bytes bytes);

/// 32 bytes by which the hosts of a user's jobs know each other. It is never printed.
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  /// Makes a secret to be read from a record.
  Secret() = default;
  explicit Secret(const std::array<std::byte, kBytes>& bytes) : bytes_(bytes) {}
  ~Secret();
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  /// Returns the secret in `file`: 64 hexadecimal digits, and a newline, which may be missing.
  /// Throws DataError, naming file and rule, if the file is missing, holds something else, belongs
  /// to another user, or others may read it. It may also be root's, as in a volume of a Kubernetes
  /// Secret: of mode 0400, or 0440 with a group that is this process'.
  [[nodiscard]] static Secret read(const std::filesystem::path& file);
  /// Does the same, but first makes a file that is missing, with its folders, for this user alone.
  /// Several processes that make it at once all get the same secret.
  [[nodiscard]] static Secret read_or_make(const std::filesystem::path& file);
  /// Returns the file of the user's secret: lockstep/secret in $XDG_CONFIG_HOME, or in ~/.config.
  /// Throws DataError without either.
  [[nodiscard]] static std::filesystem::path default_file();

  /// Returns the secret of one of this user's jobs, which `job` names.
  [[nodiscard]] Secret of_job(ConstBytes job) const;
  /// A child gets the secret by its fields.
  LOCKSTEP_FIELDS(bytes_)

  /// Returns the Mac of `parts` in a row. Their sizes must not vary from one use to another.
  [[nodiscard]] Mac mac(std::initializer_list<ConstBytes> parts) const;

 private:
  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace lockstep::comm
