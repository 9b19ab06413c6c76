#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "framework/comm/communicator.h"
#include "tests/comm/words.h"

namespace lockstep::testing {

/// Floats of one symmetric buffer.
class Symmetric {
 public:
  Symmetric(comm::Communicator& group, std::size_t count, comm::Copies copies = comm::Copies::each)
      : buffer_(group.allocate(count * sizeof(float), copies)) {}

  std::span<float> floats(std::size_t offset, std::size_t count) const {
    return std::span(reinterpret_cast<float*>(buffer_.own.data()),
                     buffer_.own.size() / sizeof(float))
        .subspan(offset, count);
  }
  std::span<float> fill(const Words& words, std::size_t offset = 0) const {
    const auto to = floats(offset, words.size());
    std::copy(words.begin(), words.end(), to.begin());
    return to;
  }
  bool is_common() const { return buffer_.is_common(); }

 private:
  comm::SymmetricBuffer buffer_;
};

inline std::span<std::byte> raw(std::span<float> floats) {
  return std::as_writable_bytes(floats);
}

/// Checks every verb on symmetric buffers of `count` floats and parts of them against the results
/// of one replica alone.
void check_symmetric(comm::Communicator& group, std::size_t count);

}  // namespace lockstep::testing
