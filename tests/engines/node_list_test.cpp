#include "framework/engines/node_list.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;
using namespace lockstep::engines;

TEST_CASE("a list of nodes is read as Slurm writes it") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"node0", "node0"},
      {"a,b", "a b"},
      {"node[0-2]", "node0 node1 node2"},
      {"node[3,1,1]", "node3 node1 node1"},  // an order that a user has asked for
      {"rack[0-1]n[01-02],x7", "rack0n01 rack0n02 rack1n01 rack1n02 x7"},
      {"n[8-11,020,099-101]", "n8 n9 n10 n11 n020 n099 n100 n101"},
      {"n[08-11]", "n08 n09 n10 n11"},
      {"n[00]", "n00"},
      {"a[1]b[2]c[3-4]", "a1b2c3 a1b2c4"},
      {"[7-8]", "7 8"},
      {"gpu-a_1.x.org,b[1-2].y", "gpu-a_1.x.org b1.y b2.y"}};
  for (const auto& [list, names] : cases) {
    INFO(list);
    CHECK(join(node_names(list), " ") == names);
  }
}

TEST_CASE("numbers of nodes next to each other are read as Slurm writes them") {
  CHECK(numbers_of_nodes("2(x3),1") == std::vector<std::int64_t>{2, 2, 2, 1});
  CHECK(numbers_of_nodes("3,1") == std::vector<std::int64_t>{3, 1});
  CHECK(numbers_of_nodes("64") == std::vector<std::int64_t>{64});
  CHECK(numbers_of_nodes("1(x65536)").size() == kMostNodes);
}

TEST_CASE("what is no list of nodes is an error that says where and why") {
  const auto refusal_of_names = [](const std::string& list) {
    return testing::message_of<ValueError>([&] { (void)node_names(list); });
  };
  CHECK(refusal_of_names("n[1-") ==
        "the list 'n[1-', behind its first 4 letters: expected a number");
  CHECK(refusal_of_names("n[3-1]") ==
        "the list 'n[3-1]', behind its first 5 letters: a number from 3 to 999999999999 was "
        "expected, not 1");
  CHECK(refusal_of_names("n[1-2") == "the list 'n[1-2', behind its first 5 letters: expected ']'");
  CHECK(refusal_of_names("") == "the list '', behind its first 0 letters: expected a host's name");
  for (const char* const list :
       {",", "a,", "a,,b", "a b", "a]", "a[]", "a[1,]", "a[-1]", "a[1--2]", "a[[1]]", "a[x]",
        "a[1:2]", "(null)", "a\n", "a[1-2](x2)", "a[99999999999999999999]"}) {
    INFO(list);
    CHECK_THROWS_AS(node_names(list), ValueError);
  }
  for (const char* const list :
       {"", ",", "1,", "0", "-1", "x", "2(x", "2(x3", "2(x0)", "2x3", "2(3)", "1 ", "1000001"}) {
    INFO(list);
    CHECK_THROWS_AS(numbers_of_nodes(list), ValueError);
  }
}

TEST_CASE("lists of hostile sizes are refused before they are made") {
  const std::string digits(250, '1');
  std::string nested = "n[0-65535]";
  for (int i = 0; i < 300; ++i) nested += "[1]";
  for (const std::string& list :
       {std::string("n[0-999999999999]"), std::string("a[0-999]b[0-999]"), nested,
        std::string("a[0-65535],b"), std::string(100'000, 'a'), "n[" + digits + "-" + digits + "]",
        std::string(65'537 * 2 - 1, ',')}) {
    INFO(cut(list));
    CHECK_THROWS_AS(node_names(list), ValueError);
  }
  CHECK(node_names("n[0-65535]").size() == kMostNodes);
  CHECK_THROWS_WITH(numbers_of_nodes("1(x65536),1"),
                    ContainsSubstring("these are more than 65536 hosts"));
  CHECK_THROWS_AS(numbers_of_nodes("1(x99999999999)"), ValueError);
}
