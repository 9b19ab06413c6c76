#pragma once

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
  /// Of all that was added: 16 hexadecimal digits, the highest first.
  [[nodiscard]] std::string text() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace lockstep::storage
