#include "framework/base/element_type.h"

#include <cstddef>
#include <string>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("each type of elements is found by the name that files have for it") {
  for (std::size_t i = 0; i < std::size(kElementTypes); ++i) {
    const auto type = static_cast<ElementType>(i);
    CHECK(stored_type(names_of(type).stored) == type);
  }
  CHECK(stored_type("BF16") == ElementType::bfloat16);
  CHECK(stored_type("F8_E4M3") == ElementType::float8_e4m3);
  CHECK(size_of(ElementType::uint64) == 8);
  CHECK(std::string(name_of(ElementType::boolean)) == "bool");
  CHECK_FALSE(stored_type("F33"));
  CHECK_FALSE(stored_type(""));
}
