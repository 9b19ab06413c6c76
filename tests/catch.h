#pragma once

// Catch2 3 has its header in a folder, 2 (Debian bookworm) has not. Assertions of Catch2 2 may be
// made by one thread at a time: replicas return what is to be checked, or throw.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>
using Catch::Matchers::Contains;
inline auto ContainsSubstring(const std::string& text) {
  return Contains(text);
}
#endif
