#include "framework/storage/checksum.h"

#include <string>

#include "tests/catch.h"

using lockstep::storage::Checksum;

namespace {

std::string checksum_of(const std::string& text, std::size_t at_once) {
  Checksum checksum;
  for (std::size_t begin = 0; begin < text.size(); begin += at_once) {
    checksum.add(std::as_bytes(std::span(text))
                     .subspan(begin)
                     .first(std::min(at_once, text.size() - begin)));
  }
  return checksum.text();
}

}  // namespace

// The first three are from the specification's reference implementation.
TEST_CASE("a checksum is XXH3's, however the bytes come") {
  CHECK(checksum_of("", 1) == "2d06800538d394c2");
  CHECK(checksum_of("a", 1) == "e6c632b61e964e1f");
  CHECK(checksum_of("abc", 2) == "78af5f94892f3950");
  std::string longer;
  for (int i = 0; i < 5000; ++i) longer += static_cast<char>(i);
  CHECK(checksum_of(longer, 7) == checksum_of(longer, longer.size()));
  const std::string abc = "abc";
  CHECK(lockstep::storage::checksum_of(std::as_bytes(std::span(abc))) == 0x78af5f94892f3950);
  std::string changed = longer;
  changed[4321] = static_cast<char>(changed[4321] ^ 1);
  CHECK(checksum_of(changed, changed.size()) != checksum_of(longer, longer.size()));
}
