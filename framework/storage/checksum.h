#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "framework/base/bytes.h"

struct XXH3_state_s;

namespace lockstep::storage {

/// A checksum of bytes as they pass: XXH3 of 64 bits, which notices damage, not intent.
/// Source: https://xxhash.com.
class Checksum {
 public:
  Checksum();

  void add(ConstBytes bytes);
  /// Returns 16 hexadecimal digits for all bytes added, the highest digit first.
  [[nodiscard]] std::string text() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s* state)> state_;
};

/// Returns the checksum of bytes in memory, as a number: as fast as memory is read.
[[nodiscard]] std::uint64_t checksum_of(ConstBytes bytes);

}  // namespace lockstep::storage
