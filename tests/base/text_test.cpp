#include "framework/base/text.h"

#include <cmath>

#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("str and join put values into messages") {
  CHECK(str("replica ", 3, " of ", 4) == "replica 3 of 4");
  CHECK(join(std::vector<int>{1, 2, 3}) == "1, 2, 3");
  CHECK(join(std::vector<std::string>{}) == "");
}

TEST_CASE("numbers in texts have no separators, and a decimal point") {
  CHECK(str("step ", 1234567, " of ", 12345678901234, ", loss ", 1234.5) ==
        "step 1234567 of 12345678901234, loss 1234.5");
  CHECK(join(std::vector<double>{0.5, 2048}) == "0.5, 2048");
  CHECK(formatted("%.1f s, %.3g", 1234.56, 0.25) == "1234.6 s, 0.25");
  const double nan = std::copysign(std::nan(""), -1);
  CHECK(str(nan, " ", static_cast<float>(nan), " ", -1.5) == "nan nan -1.5");
  CHECK(join(std::vector<double>{nan, -2}) == "nan, -2");
  CHECK(formatted("%.3g %d", nan, 7) == "nan 7");
}

TEST_CASE("letters of ASCII alone are made small") {
  CHECK(lower("IMG_7.PNG Größe") == "img_7.png größe");
}

TEST_CASE("nearest finds what was meant and leaves strangers alone") {
  const std::vector<std::string> keys{"lr", "momentum", "nesterov", "weight_decay", "betas"};
  CHECK(nearest("momentun", keys) == "momentum");
  CHECK(nearest("wieght_decay", keys) == "weight_decay");
  CHECK(nearest("lt", keys) == "lr");
  CHECK(nearest("zebra", keys) == "");
  CHECK(nearest("Nesterov", keys) == "nesterov");
  CHECK(nearest("WEIGHT-DECAY", keys) == "weight_decay");
  // Names that begin or end with the other's words, and other programs' words.
  CHECK(nearest("decay", keys) == "weight_decay");
  CHECK(nearest("adam_betas", keys) == "betas");
  CHECK(nearest("ay", keys) == "");
  CHECK(nearest("learning_rate", keys) == "lr");
  CHECK(nearest("learning_rate", {"rate"}) == "");
  CHECK(nearest("hidden_size", {"hidden", "width"}) == "width");
  CHECK(nearest("hidden_size", {"hidden"}) == "hidden");
  CHECK(nearest("RMSE", {"mean_squared_error", "root_mean_squared_error"}) ==
        "root_mean_squared_error");
  CHECK(nearest("accuracy_score", {"balanced_accuracy", "accuracy"}) == "accuracy");
  CHECK(did_you_mean("nestrov", keys) == " (did you mean 'nesterov'?)");
  CHECK(did_you_mean("zebra", keys) == "");
}

TEST_CASE("a word of any length is far from short ones, which is seen at once") {
  const std::string word(100'000'000, 'e');  // a table over its letters would take gigabytes
  CHECK(nearest(word, {"epochs", "eval_every"}).empty());
}

TEST_CASE("of many names the first ones are listed") {
  CHECK(listed({}) == "");
  CHECK(listed({"a", "b"}, 2) == "a, b");
  CHECK(listed({"a", "b", "c", "d"}, 2) == "a, b and 2 more");
  CHECK(listed(std::vector<std::string>(21, "n")).ends_with("n, n and 1 more"));
}

TEST_CASE("a long text is shortened between letters, and says by how much") {
  CHECK(shortened("as it is", 8) == "as it is");
  CHECK(shortened("cut here", 3) == "cut... (5 bytes more)");
  CHECK(shortened("za\xc3\xbc", 3) == "za... (2 bytes more)");
}

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

TEST_CASE("a text for a terminal has no byte that commands it") {
  CHECK(printable("a\x1b[31m\r\n\tb\x7f", "") == "a\\x1b[31m\\x0d\\x0a\\x09b\\x7f");
  CHECK(printable("a\n\tb\r") == "a\n\tb\\x0d");
  CHECK(printable("\xc2\x9b\x31m \x9b\x32m \xe2\x80") == "\\xc2\\x9b1m \\x9b2m \xe2\\x80");
  for (const std::string kept : {"größe", "日本", "\xff \xe9", "\xc2\xa0", ""})
    CHECK(printable(kept) == kept);
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const std::string text{static_cast<char>(first), static_cast<char>(second)};
      const std::string shown = printable(text, "");
      const bool is_quiet = std::ranges::all_of(shown, [](char letter) {
        const auto byte = static_cast<unsigned char>(letter);
        return byte >= 0x20 && byte != 0x7f;
      });
      if (!is_quiet || printable(shown) != shown) FAIL(first << " " << second);
    }
  }
}
