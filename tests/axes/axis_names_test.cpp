#include "framework/axes/axis_names.h"

#include <string>
#include <vector>

#include "tests/catch.h"

using lockstep::AxisNames;

namespace {

using Names = std::vector<std::string>;

// Takes names as collectives do: the text of a call converts to this parameter.
Names names_of(const AxisNames& names) {
  return names.names();
}
std::string text_of(const AxisNames& names) {
  return names.text();
}

}  // namespace

TEST_CASE("axis names are written as one name or as several") {
  CHECK(names_of("data") == Names{"data"});
  CHECK(names_of(std::string("data")) == Names{"data"});
  CHECK(names_of({"data"}) == Names{"data"});
  CHECK(names_of({"data", "model"}) == Names{"data", "model"});
  CHECK(names_of({"a", "b", "c"}) == Names{"a", "b", "c"});
  const std::string model = "model";
  CHECK(names_of({"data", model}) == Names{"data", "model"});
  CHECK(names_of(Names{"data", "model"}) == Names{"data", "model"});
  CHECK(names_of("").size() == 1);
}

TEST_CASE("axis names read in messages as in Python") {
  CHECK(text_of("data") == "'data'");
  CHECK(text_of(std::string("data")) == "'data'");
  CHECK(text_of({"data", "model"}) == "('data', 'model')");
  CHECK(text_of(Names{}) == "()");
  CHECK(text_of("") == "''");
}
