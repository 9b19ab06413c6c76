#include "framework/base/wording.h"

#include "tests/catch.h"

using lockstep::counted;
using lockstep::cut;

TEST_CASE("one is one, and none or many are many") {
  CHECK(counted(1, "replica") == "1 replica");
  CHECK(counted(0, "replica") == "0 replicas");
  CHECK(counted(2, "replica") == "2 replicas");
  CHECK(counted(-1, "step") == "-1 steps");
  CHECK(counted(1, "entry", "entries") == "1 entry");
  CHECK(counted(3, "entry", "entries") == "3 entries");
}

TEST_CASE("a long text is cut between letters") {
  CHECK(cut("") == "");
  CHECK(cut("abc", 3) == "abc");
  CHECK(cut("abcd", 3) == "abc…");
  CHECK(cut("größe", 4) == "grö…");
  CHECK(cut("größe", 3) == "gr…");
  CHECK(cut("ö", 1) == "…");
  CHECK(cut(std::string(1000, 'x')) == std::string(60, 'x') + "…");
}
