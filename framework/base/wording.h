#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// A number with its noun, for messages: "1 replica", "2 replicas". The plural is `many` or,
/// without one, `one` with an s.
[[nodiscard]] std::string counted(std::int64_t count, std::string_view one,
                                  std::string_view many = {});

/// A text of up to `most` bytes as it is; of a longer one the first so many, or a few less where a
/// letter of UTF-8 would be cut, and "…".
[[nodiscard]] std::string cut(std::string_view text, std::size_t most = 60);

}  // namespace lockstep
