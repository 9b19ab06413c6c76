#include "framework/keys/key_table.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep::keys {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::message_of;

// A variable of each type that a key may have.
struct Values {
  std::string color = "red", text = "none";
  bool flag = false, gloss = false;
  double number = 0.5;
  std::optional<double> maybe = 1.0;
  int small = 3;
  std::int64_t integer = -1;
  std::uint64_t natural = 7;
  std::array<double, 2> pair{0.1, 0.2};
  std::vector<std::int64_t> list{1};
};

std::vector<Section> table_of(Values& values) {
  const Rule<std::string> is_short{"short",
                                   [](const std::string& word) { return word.size() <= 4; }};
  const auto odd = [&values] {
    return values.number > 10 * values.maybe.value_or(1) ? "must be at most 10 times paint.maybe"
                                                         : "";
  };
  return {
      {"paint",
       {{"color", one_of(values.color, {"red", "green"}), "its color", {.is_short_form = true}},
        {"text", text(values.text, is_short), "a word"},
        {"flag", flag(values.flag), "yes or no"},
        {"number",
         number(values.number, greater_than(0.0)),
         "a number",
         {.problem = odd, .others = {"maybe"}}},
        {"maybe", number_or_null(values.maybe, at_least(0.0)), "perhaps one"},
        {"gloss", flag(values.gloss), "of green", {.owners = {"green"}}}}},
      {"sizes",
       {{"small", number(values.small, from_to(1, 8)), "small", {.instead_of = {"integer"}}},
        {"integer",
         number(values.integer, at_least<std::int64_t>(-5)),
         "any",
         {.instead_of = {"small"}}},
        {"natural", number(values.natural, at_least<std::uint64_t>(0)), "not negative"},
        {"pair", list(values.pair, from_below(0.0, 1.0)), "two"},
        {"list", list(values.list, at_least<std::int64_t>(1)), "many"}}},
  };
}

Values read(const std::string& text, const std::vector<Override>& overrides = {}) {
  Values values;
  (void)read_keys(text, "file.yaml", table_of(values), overrides);
  return values;
}

std::string problems_in(const std::string& text, const std::vector<Override>& overrides = {}) {
  return message_of<ValueError>([&] { (void)read(text, overrides); });
}

// That a document has this problem alone, told with its line and column.
void check_problem(const std::string& text, const std::string& problem) {
  INFO(text);
  CHECK(problems_in(text) == "file.yaml:" + problem);
}

std::string set_error(const std::string& argument, const std::string& text = "paint: {}") {
  return problems_in(text, {parse_set(argument)});
}

// That `--set argument` has this problem alone, behind the flag as it was written.
void check_set_problem(const std::string& argument, const std::string& problem) {
  INFO(argument);
  CHECK(set_error(argument) == "--set " + argument + ": " + problem);
}

}  // namespace

TEST_CASE("a document hands out its values and the defaults of keys left out") {
  const Values values = read(
      "# a comment\n"
      "paint: {color: green, text: 'ab', flag: Yes, number: +2.5e-1, maybe: null, gloss: on}\n"
      "sizes:\n"
      "  integer: -5\n"
      "  natural: 18446744073709551615\n"
      "  pair: [0, .5]\n"
      "  list:\n"
      "    - 1\n"
      "    - +22\n");
  CHECK(values.color == "green");
  CHECK(values.text == "ab");
  CHECK(values.flag);
  CHECK(values.number == 0.25);
  CHECK_FALSE(values.maybe.has_value());
  CHECK(values.small == 3);
  CHECK(values.integer == -5);
  CHECK(values.natural == std::numeric_limits<std::uint64_t>::max());
  CHECK(values.pair == std::array<double, 2>{0, 0.5});
  CHECK(values.list == std::vector<std::int64_t>{1, 22});

  CHECK(read("%YAML 1.2\n---\npaint: {number: 2.5}").number == 2.5);

  const Values defaults = read("paint: {}");
  CHECK(defaults.color == "red");
  CHECK(defaults.number == 0.5);
  CHECK(defaults.maybe == 1.0);
  CHECK(defaults.pair == std::array<double, 2>{0.1, 0.2});
}

TEST_CASE("anchors and aliases stand for their value, also in another section") {
  const Values values = read("paint: {number: &n 0.25, maybe: *n}\nsizes: {pair: [*n, *n]}");
  CHECK(values.maybe == 0.25);
  CHECK(values.pair == std::array<double, 2>{0.25, 0.25});
  check_problem("paint: &p {text: *p}", "1:18: an alias inside of what it stands for");
  CHECK_THAT(problems_in("paint: {text: *nobody}"),
             ContainsSubstring("file.yaml:1:15: not valid YAML: the referenced anchor is not") &&
                 EndsWith(": a text that begins with '*' needs quotes"));
  // A billion laughs cost nothing: aliases share what they stand for.
  std::string bomb = "paint:\n  text: [&a0 [x]";
  for (int i = 1; i < 64; ++i) bomb += str(", &a", i, " [*a", i - 1, ", *a", i - 1, "]");
  check_problem(bomb + "]", "2:9: paint.text: expected a string, short, found a list");
}

TEST_CASE("a value of the wrong type says what is needed and what was found") {
  check_problem("paint: {number: fast}", "1:17: paint.number: expected a number, found 'fast'");
  check_problem("paint:\n  number: \"3\"",
                "2:11: paint.number: expected a number, found the string '3'; write 3");
  check_problem("paint: {number: [1]}", "1:17: paint.number: expected a number, found a list");
  check_problem("paint: {number: {a: 1}}", "1:17: paint.number: expected a number, found a map");
  check_problem("paint: {number: true}", "1:17: paint.number: expected a number, found 'true'");
  check_problem("paint:\n  number:\n  text: a",
                "2:3: paint.number: expected a number, found nothing");
  check_problem("paint: {number: ~}", "1:17: paint.number: expected a number, found nothing");
  for (const std::string text : {"1_000", "0x10", "1e", "1,5", "--1", "+-1", "++1", "1 2"}) {
    CHECK_THAT(problems_in("paint:\n  number: " + text),
               ContainsSubstring("file.yaml:2:11: paint.number: expected a number, found '"));
  }
  for (const std::string text : {".nan", ".inf", "-.inf", "nan", "inf", "+.INF", "-infinity"}) {
    check_problem("paint: {number: " + text + "}",
                  "1:17: paint.number: expected a finite number, found '" + text + "'");
  }
  check_problem("paint: {number: 1e999}",
                "1:17: paint.number: expected a number that a double can hold, found '1e999'");
  check_problem("paint: {flag: 1}", "1:15: paint.flag: expected true or false, found '1'");
  check_problem("paint: {flag: 'true'}",
                "1:15: paint.flag: expected true or false, found the string 'true'");
  check_problem("paint: {text: [a]}", "1:15: paint.text: expected a string, short, found a list");
  check_problem("paint: {color: }", "1:16: paint.color: expected one of red, green, found nothing");
  check_problem("paint: {maybe: none}",
                "1:16: paint.maybe: expected a number, found 'none'; or write null");
}

TEST_CASE("a number that may be octal is no number of either kind") {
  for (const std::string text : {"010", "-010", "+00"}) {
    CHECK_THAT(problems_in("paint: {number: " + text + "}"),
               ContainsSubstring("expected a number, found '" + text + "'; write "));
  }
  CHECK_THAT(problems_in("paint: {number: 00.5}"), !ContainsSubstring("expected a number"));
}

TEST_CASE("integers are digits and nothing else") {
  for (const std::string text :
       {"1e3", "4.0", "4.", "0x4", "010", "fast", "1_0", "+", "-", "'4'"}) {
    CHECK_THAT(problems_in("sizes: {integer: " + text + "}"),
               ContainsSubstring("file.yaml:1:18: sizes.integer: expected an integer, found "));
  }
  for (const std::string text : {"1e3", "1_000", "1000.0", "'1000'", "01000"}) {
    CHECK_THAT(problems_in("sizes: {integer: " + text + "}"), EndsWith("'; write 1000"));
  }
  check_problem("sizes: {integer: 0.5}", "1:18: sizes.integer: expected an integer, found '0.5'");
  check_problem("sizes: {integer: -6}", "1:18: sizes.integer: must be at least -5, is -6");
  check_problem("sizes: {integer: 9223372036854775808}",
                "1:18: sizes.integer: must be at most 9223372036854775807, is 9223372036854775808");
  check_problem("sizes: {integer: -9223372036854775809}",
                "1:18: sizes.integer: must be at least -5, is -9223372036854775809");
  check_problem("sizes: {natural: -1}", "1:18: sizes.natural: must be at least 0, is -1");
  check_problem(
      "sizes: {natural: 18446744073709551616}",
      "1:18: sizes.natural: must be at most 18446744073709551615, is 18446744073709551616");
  check_problem("sizes: {small: 9}", "1:16: sizes.small: must be from 1 to 8, is 9");
  check_problem("sizes: {small: 99999999999}",
                "1:16: sizes.small: must be from 1 to 8, is 99999999999");
}

TEST_CASE("an impossible value says the rule and the value") {
  check_problem("paint: {number: 0}", "1:17: paint.number: must be greater than 0, is 0");
  check_problem("paint: {maybe: -1}",
                "1:16: paint.maybe: must be at least 0, is -1; or write null");
  check_problem("paint: {text: lengthy}", "1:15: paint.text: must be short, is 'lengthy'");
  check_problem("paint: {text: \"a\\n\\x01bc\"}",
                "1:15: paint.text: must be short, is 'a\\x0a\\x01bc'");
  CHECK_THAT(problems_in("paint: {text: a" + std::string(100, 'b') + "}"),
             ContainsSubstring("is 'a" + std::string(59, 'b') + "…'"));
  CHECK_THAT(problems_in("paint: {text: " + std::string(59, 'b') + "ßß}"),
             ContainsSubstring("is '" + std::string(59, 'b') + "…'"));
  check_problem("paint: {color: gren}",
                "1:16: paint.color: must be one of red, green, is 'gren' (did you mean 'green'?)");
  check_problem("sizes: {pair: [0.5, 1]}",
                "1:21: sizes.pair: must be at least 0 and less than 1, is 1");
  check_problem("sizes: {pair: [0.5]}", "1:15: sizes.pair: expected 2 numbers, found 1");
  check_problem("sizes: {pair: 0.5}",
                "1:15: sizes.pair: expected a list of 2 numbers, found '0.5'; write [0.5]");
  check_problem("sizes:\n  list: [1,\n    0]", "3:5: sizes.list: must be at least 1, is 0");
  check_problem("sizes: {list: 3}",
                "1:15: sizes.list: expected a list of integers, found '3'; write [3]");
  check_problem("sizes:\n  list: 3,4",
                "2:9: sizes.list: expected a list of integers, found '3,4'; write [3,4]");
}

TEST_CASE("samples that are good are read and printed as they are, bad ones are refused") {
  Values defaults;
  for (const Section& section : table_of(defaults)) {
    for (const ConfigKey& key : section.keys) {
      const auto& owners = key.traits.owners;
      const std::string begin = section.name + ": {" + (owners.empty() ? "" : "color: green, ");
      const Samples samples = key.value.samples();
      CHECK(samples.good.size() >= 2);
      for (const std::string& value : samples.good) {
        INFO(key.name << ": " << value);
        Values values;
        const std::vector<Section> table = table_of(values);
        const std::string more = key.name == "number" ? ", maybe: 1.0e+300" : "";
        (void)read_keys(begin + key.name + ": " + value + more + "}", "file.yaml", table);
        CHECK(key_values(table).at(section.name + "." + key.name) == value);
      }
      for (const std::string& value : samples.bad) {
        CHECK_THAT(problems_in(begin + key.name + ": " + value + "}"),
                   ContainsSubstring(section.name + "." + key.name + ": "));
      }
    }
  }
}

TEST_CASE("a section's variables are checked however they were set") {
  Values values;
  Values defaults;
  const auto problem = [&](std::size_t section) {
    return message_of<ValueError>(
        [&] { check_section(table_of(values).at(section), table_of(defaults).at(section)); });
  };
  CHECK_NOTHROW(check_section(table_of(values).at(0), table_of(defaults).at(0)));
  values.number = 0;
  CHECK(problem(0) == "paint red: number must be greater than 0, not 0");
  values.number = 20;
  CHECK(problem(0) == "paint red: number must be at most 10 times paint.maybe");
  values.number = std::numeric_limits<double>::infinity();
  CHECK(problem(0) == "paint red: number must be a finite number, greater than 0, not inf");
  values = {};
  values.gloss = true;
  CHECK(problem(0) == "paint red: gloss is not an option of it");
  values.color = "green";
  CHECK_NOTHROW(check_section(table_of(values).at(0), table_of(defaults).at(0)));
  values.pair = {0.5, 1};
  CHECK(problem(1) == "sizes 3: pair must be at least 0 and less than 1, not 1");
  values = {};
  values.list = {1, 0};
  CHECK(problem(1) == "sizes 3: list must be at least 1, not 0");
}

TEST_CASE("an unknown key gets the nearest one, its own section, or the list") {
  check_problem("paint: {colour: red}",
                "1:9: unknown key 'colour' in paint (did you mean 'color'?)");
  check_problem(
      "paint:\n  thickness: 3",
      "2:3: unknown key 'thickness' in paint: its keys are color, text, flag, number, maybe");
  check_problem("paint: {pair: [0, 0]}",
                "1:9: unknown key 'pair' in paint: it belongs under sizes");
  check_problem("paint: {sizes: {}}",
                "1:9: unknown key 'sizes' in paint: it is a section of its own, at the top level");
  check_problem("paint: {}\nsize: {}", "2:1: unknown key 'size' (did you mean 'sizes'?)");
  check_problem("number: 3", "1:1: unknown key 'number': it belongs under paint");
  check_problem("varnish: 3", "1:1: unknown key 'varnish': the sections are paint, sizes");
  // Wherever the nearest one is.
  check_problem("paint: {integers: 3}",
                "1:9: unknown key 'integers' in paint (did you mean 'integer'?): it belongs under "
                "sizes");
  check_problem("paint: {wet_paint: 3}",
                "1:9: unknown key 'wet_paint' in paint (did you mean 'paint'?): it is a section of "
                "its own, at the top level");
  check_problem("naturals: 3",
                "1:1: unknown key 'naturals' (did you mean 'natural'?): it belongs under sizes");
  // What YAML reads as a key.
  check_problem("paint: {number:3}",
                "1:9: unknown key 'number:3' in paint: a blank is missing behind 'number:'");
  check_problem("paint.number: 3", "1:1: unknown key 'paint.number': write paint: {number: …}");
  check_problem("paint: &p {}\nsizes: {<<: *p}",
                "2:9: unknown key '<<' in sizes: its keys are small, integer, natural, pair, list");
}

TEST_CASE("a key of another choice, and keys that exclude each other") {
  check_problem("paint: {gloss: true}", "1:9: paint.gloss: belongs to paint green, not to red");
  // Nobody knows whom the key belongs to where the choice itself is wrong.
  CHECK_THAT(problems_in("paint: {gloss: true, color: blue}"),
             ContainsSubstring("file.yaml:1:29: "));
  CHECK(problems_in("sizes:\n  integer: 3\n  small: 2\n") ==
        "file.yaml:3:3: sizes.small: not together with sizes.integer (file.yaml:2:3): keep one of "
        "them");
}

TEST_CASE("all problems are told in the order written, the flags' last") {
  CHECK(problems_in(
            "sizes:\n  list: [1, 0, -1, x]\n  smal: 2\npaint:\n  number: 0\n  colr: red\n"
            "  number: 3\nprint: 1\n",
            {parse_set("sizes.natural=-1"), parse_set("sizes=3"), parse_set("paint.text=[")}) ==
        "file.yaml:2:13: sizes.list: must be at least 1, is 0\n"
        "file.yaml:2:16: sizes.list: must be at least 1, is -1\n"
        "file.yaml:2:20: sizes.list: expected an integer, found 'x'\n"
        "file.yaml:3:3: unknown key 'smal' in sizes (did you mean 'small'?)\n"
        "file.yaml:5:11: paint.number: must be greater than 0, is 0\n"
        "file.yaml:6:3: unknown key 'colr' in paint (did you mean 'color'?)\n"
        "file.yaml:7:3: duplicate key 'number', the first is at file.yaml:5:3\n"
        "file.yaml:8:1: unknown key 'print' (did you mean 'paint'?)\n"
        "--set sizes.natural=-1: sizes.natural: must be at least 0, is -1\n"
        "--set sizes=3: sizes is a section: set one of its keys, as in sizes.small=…\n"
        "--set paint.text=[: not valid YAML: end of sequence flow not found; if it is a text, put "
        "it in "
        "quotes: '\"[\"'");
}

TEST_CASE("a flag's text that YAML takes for something else is told to stand in quotes") {
  for (const std::string text : {",", "*", "%d", "[a", "@x", "`"}) {
    CAPTURE(text);
    CHECK_THAT(set_error("paint.text=" + text),
               EndsWith("; if it is a text, put it in quotes: '\"" + text + "\"'"));
    CHECK(read("paint: {}", {parse_set("paint.text=\"" + text + "\"")}).text == text);
  }
}

TEST_CASE("a problem of what several aliases stand for is told once") {
  check_problem("sizes: {list: [&zero 0, *zero, *zero]}",
                "1:16: sizes.list: must be at least 1, is 0");
}

TEST_CASE("of very many problems twenty are told, and how many more there are") {
  const auto text_of = [](int keys) {
    std::string text = "paint:\n";
    for (int i = 0; i < keys; ++i) text += str("  k", i, ": 1\n");
    return text;
  };
  const auto lines = [](const std::string& text) {
    return std::count(text.begin(), text.end(), '\n') + 1;
  };
  CHECK(lines(problems_in(text_of(20))) == 20);
  const std::string twenty_one = problems_in(text_of(21));
  CHECK(lines(twenty_one) == 21);
  CHECK_THAT(twenty_one,
             StartsWith("file.yaml:2:3: unknown key 'k0' in paint: its keys are color") &&
                 EndsWith("\nand 1 more"));
  // The first in the order written are told, not the first found.
  const std::string earlier = problems_in("sizes: {small: 0}\n" + text_of(30000));
  CHECK_THAT(earlier, StartsWith("file.yaml:1:16: sizes.small: ") && EndsWith("\nand 29981 more"));
}

TEST_CASE("keys are compared with one another only where they are fine") {
  check_problem("paint: {number: 20}", "1:9: paint.number: must be at most 10 times paint.maybe");
  CHECK(read("paint: {number: 20, maybe: 2}").number == 20);
  check_problem("paint: {number: 20, maybe: -1}",
                "1:28: paint.maybe: must be at least 0, is -1; or write null");
  check_problem("paint: {maybe: 0, number: -2}",
                "1:27: paint.number: must be greater than 0, is -2");
  CHECK(problems_in("paint: {number: 20, flag: 3}") ==
        "file.yaml:1:9: paint.number: must be at most 10 times paint.maybe\n"
        "file.yaml:1:27: paint.flag: expected true or false, found '3'");
}

TEST_CASE("what is no map of sections is refused") {
  const std::string empty = "file.yaml:1:1: the file is empty: its sections are paint, sizes";
  for (const std::string text : {"", "\n\n", "# only this\n", "---\n", "---\n...\n", "null", "~"}) {
    INFO(text);
    CHECK(problems_in(text) == empty);
  }
  check_problem("- paint", "1:1: expected a map of sections (paint, sizes), found a list");
  check_problem("paint", "1:1: expected a map of sections (paint, sizes), found 'paint'");
  check_problem(
      "sizes: 3",
      "1:8: sizes: expected a map of keys (small, integer, natural, pair, list), found '3'");
  check_problem("paint: [red]",
                "1:8: paint: expected one of red, green, or a map of keys (color, text, flag, "
                "number, maybe, gloss), found a list");
  CHECK_THAT(problems_in("paint:\nsizes: {}"),
             ContainsSubstring("file.yaml:1:1: paint: expected one of red, green, or a map"));
  CHECK_THAT(problems_in("sizes: [small]"), ContainsSubstring("found a list"));
}

TEST_CASE("duplicate keys, further documents, tags and odd keys are refused") {
  CHECK(problems_in("paint:\n  flag: true\n  flag: true\n") ==
        "file.yaml:3:3: duplicate key 'flag', the first is at file.yaml:2:3");
  CHECK(problems_in("paint: {}\nsizes: {}\n'paint': {}") ==
        "file.yaml:3:1: duplicate key 'paint', the first is at file.yaml:1:1");
  for (const std::string text :
       {"paint: {}\n---\nsizes: {}\n", "paint: {}\n---\n", "paint: {}\n...\nsizes: {}",
        "---\n---\n"
        "paint: {}"}) {
    INFO(text);
    CHECK_THAT(problems_in(text), ContainsSubstring("a second YAML document"));
  }
  CHECK_THAT(problems_in("paint: {}\n---\nsizes: {}\n"), ContainsSubstring("file.yaml:2:1: "));
  CHECK(read("---\npaint: {number: 2}\n...\n").number == 2);
  check_problem("paint: {number: !!float 3}",
                "1:17: the tag 'tag:yaml.org,2002:float': tags have no meaning here");
  CHECK_THAT(problems_in("paint: !mine {number: 3}"),
             ContainsSubstring("file.yaml:1:8: the tag '!mi"));
  check_problem("? [paint]\n: 3", "1:3: expected a key, found a list");
  check_problem("~: 3", "1:1: expected a key, found nothing");
}

TEST_CASE("what is not YAML is refused with its line and column") {
  check_problem("paint: {}\nsizes: b: c",
                "2:9: not valid YAML: illegal map value: a text with ': ' in it needs quotes, and "
                "keys of one map begin in one column, each with a blank behind its colon");
  const std::string columns =
      "end of map not found: keys of one map begin in one column, each with a blank behind its "
      "colon";
  check_problem("paint:\n  flag: true\n number: 3", "3:2: not valid YAML: " + columns);
  check_problem("paint:\n  flag: true\n  number:3", "3:3: not valid YAML: " + columns);
  CHECK_THAT(problems_in("paint: {text: \"C:\\d\"}"),
             EndsWith(": in single quotes a backslash stands for itself"));
  CHECK_THAT(problems_in("paint: {text: @a}"),
             EndsWith("unknown token: a text that begins with '%', '@' or '`' needs quotes"));
  CHECK_THAT(problems_in("paint: {number: [1, 2\n"),
             ContainsSubstring("file.yaml:1:22: not valid"));
  CHECK_THAT(problems_in("paint: {number: 2}}"),
             ContainsSubstring("file.yaml:1:19: not valid YAML"));
  // yaml-cpp 0.7 finds empty documents before the comma without end.
  CHECK_THAT(problems_in(",paint: {}"), ContainsSubstring("file.yaml:1:1: not valid YAML: "));
  // Without a newline at its end yaml-cpp notices a quote left open, with one it does not.
  CHECK_THAT(problems_in("paint: {text: 'ab}\n# end\n"),
             ContainsSubstring("file.yaml:2:6: not valid"));
  CHECK_THAT(problems_in("paint:\n  text: \"ab\n"), ContainsSubstring("not valid YAML: "));
  CHECK_THAT(problems_in(std::string(100000, '[')),
             ContainsSubstring("nested deeper than 64 levels"));
  check_problem("paint:\n\tnumber: 2\n",
                "2:1: a tab in the indentation: YAML takes only spaces there");
  CHECK_THAT(problems_in("paint:\n  \tnumber: 2\n"), ContainsSubstring("file.yaml:2:3: a tab in"));
  CHECK(read("paint:\n\t\n\t# a comment\n  number: 2\t# another\n").number == 2);
  check_problem("paint: {}\nsizes: {} \x04\nwhatever",
                "2:11: the control character 0x04: this is not plain text in UTF-8");
  // As text copied from a web page has it.
  const std::string hard = "a non-breaking space (U+00A0) stands where YAML takes only a blank";
  check_problem("paint:\n \xc2\xa0number: 2", "2:2: " + hard);
  check_problem(
      "paint:\n  number:\xc2\xa0"
      "2",
      "2:9: " + hard);
  CHECK(read("paint: {text: a\xc2\xa0}  #:\xc2\xa0").text == "a\xc2\xa0");
  CHECK(read("paint: {text: \":\xc2\xa0\"}").text == ":\xc2\xa0");
  CHECK_THAT(problems_in(std::string("paint\0", 6)),
             ContainsSubstring("1:6: the control character"));
  CHECK(read("\xef\xbb\xbfpaint: {number: 2}\r\nsizes: {small: 4}\r\n").small == 4);
  CHECK_THAT(problems_in("paint: {number: 2}\r\nsizes: {small: 0}\r\n"),
             ContainsSubstring("file.yaml:2:16: "));
}

TEST_CASE("overrides win over the file, later ones over earlier ones") {
  const auto with = [](const std::vector<std::string>& arguments) {
    std::vector<Override> overrides;
    for (const std::string& argument : arguments) overrides.push_back(parse_set(argument));
    return read("paint: {number: 2, maybe: 3, text: a}\n", overrides);
  };
  CHECK(with({"paint.number=5"}).number == 5);
  CHECK(with({"paint.number=5", "paint.number=6"}).number == 6);
  CHECK_FALSE(with({"paint.maybe=null"}).maybe.has_value());
  CHECK(with({"paint.text=a=b"}).text == "a=b");
  CHECK(with({"sizes.pair=[0.5, 0.25]"}).pair ==
        std::array<double, 2>{0.5, 0.25});  // a new section
  CHECK(with({"paint.number=5"}).text == "a");
  // A wrong value that is replaced does no harm; one that stands does.
  CHECK(read("paint: {number: fast}", {parse_set("paint.number=5")}).number == 5);
}

TEST_CASE("setting a key removes those that exclude it") {
  const std::string text = "sizes: {small: 2, list: [4]}";
  const Values values = read(text, {parse_set("sizes.integer=5")});
  CHECK(values.integer == 5);
  CHECK(values.small == 3);
  CHECK(values.list == std::vector<std::int64_t>{4});
  CHECK(problems_in(text, {parse_set("sizes.integer=5"), parse_set("sizes.small=4")}) ==
        "--set sizes.small=4: sizes.small: not together with sizes.integer (--set "
        "sizes.integer=5): keep one of them");
}

TEST_CASE("an override does not touch a section that shares its map by an alias") {
  CHECK(problems_in("paint: &p {list: [3]}\nsizes: *p", {parse_set("sizes.list=[4]")}) ==
        "file.yaml:1:12: unknown key 'list' in paint: it belongs under sizes");
  const Values values = read("paint: &p {}\nsizes: *p", {parse_set("sizes.list=[4]")});
  CHECK(values.list == std::vector<std::int64_t>{4});
}

TEST_CASE("errors in overrides begin with the flag as it was written") {
  check_set_problem("paint.number=fast", "paint.number: expected a number, found 'fast'");
  check_set_problem("paint.numbr=1", "unknown key 'numbr' in paint (did you mean 'number'?)");
  check_set_problem("pain.number=1", "unknown key 'pain' (did you mean 'paint'?)");
  CHECK(problems_in("paint: {}", {{"sizes.small", "0", "--small 0"}}) ==
        "--small 0: sizes.small: must be from 1 to 8, is 0");
  CHECK_THAT(set_error("sizes.pair=[0.5"),
             ContainsSubstring("--set sizes.pair=[0.5: not valid YAML: "));
  check_set_problem("paint.text=", "the value is missing after '=': short");
  check_set_problem("paint.texts=", "the value is missing after '='");
  check_set_problem("paint.text=a\n---\nb", "a second YAML document: only one may stand here");
  check_set_problem("sizes=3", "sizes is a section: set one of its keys, as in sizes.small=…");
  check_set_problem("number=3",
                    "expected section.key=value, the key is 'number' (did you mean '--set "
                    "paint.number=3'?)");
  check_set_problem("max_number=3",
                    "expected section.key=value, the key is 'max_number' (did you mean '--set "
                    "paint.number=3'?)");
  check_set_problem("paints=red",
                    "expected section.key=value, the key is 'paints' (did you mean '--set "
                    "paint=red'?)");
  check_set_problem("sizes.pair.0=3", "expected section.key=value, the key is 'sizes.pair.0'");
  CHECK_THAT(set_error(".number=3"), ContainsSubstring("expected section.key=value"));
  CHECK_THAT(set_error("paint.=3"), ContainsSubstring("expected section.key=value"));
  CHECK_THAT(set_error("sizes.small=3", "sizes: 5"),
             ContainsSubstring("file.yaml:1:8: sizes: exp"));
  for (const std::string argument : {"paint.number", "=3", ""}) {
    CHECK_THROWS_WITH(
        parse_set(argument),
        "--set " + argument + ": expected section.key=value, for example optimizer.lr=0.1");
  }
}

TEST_CASE("what is nested deeper than any config is refused, however deep") {
  const auto nested = [](std::size_t depth, const std::string& open, const std::string& close) {
    std::string text = "sizes: {list: ";
    for (std::size_t i = 0; i < depth; ++i) text += open;
    for (std::size_t i = 0; i < depth; ++i) text += close;
    return text + "}";
  };
  CHECK_THAT(problems_in(nested(62, "[", "]")),
             ContainsSubstring("expected an integer, found a list"));
  for (const std::size_t depth : {63, 1000, 50'000}) {
    INFO(depth);
    CHECK_THAT(problems_in(nested(depth, "[", "]")),
               StartsWith("file.yaml:1:") && ContainsSubstring("nested deeper than 64 levels"));
    CHECK_THAT(problems_in(nested(depth, "[{a: ", "}]")),
               ContainsSubstring("nested deeper than 64 levels"));
  }
  std::string block;
  for (std::size_t i = 0; i < 300; ++i) block += std::string(i, ' ') + "a:\n";
  CHECK_THAT(problems_in(block), StartsWith("file.yaml:65:65: nested deeper than 64 levels"));
}

TEST_CASE("a list has as many entries as anyone writes") {
  const auto list = [](int count) {
    std::string text = "sizes: {list: [1";
    for (int i = 1; i < count; ++i) text += ", 1";
    return text + "]}";
  };
  CHECK(read(list(1000)).list.size() == 1000);
  check_problem(list(1001), "1:15: sizes.list: a list has at most 1000 entries, found 1001");
}

}  // namespace lockstep::keys
