#include "framework/keys/choice.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "framework/base/errors.h"
#include "framework/keys/key_table.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

namespace lockstep::keys {
namespace {

using testing::message_of;

// Two kinds of shapes, which both have a size, of different types.
struct Ball {
  double size = 0.5;
};
struct Box {
  std::int64_t size = 2, lid = 1;
};

ConfigKeys keys_of_ball(Ball& ball) {
  return {{"size", number(ball.size, greater_than(0.0)), "its radius"}};
}
ConfigKeys keys_of_box(Box& box) {
  return {{"size", number(box.size, at_least<std::int64_t>(1)), "its edge"},
          {"lid", number(box.lid, at_least<std::int64_t>(0)), "how many lids", {.required = true}}};
}

struct Shape : Choice {
  std::string (*text)(const Picked& picked);
};

Registry<Shape> shapes() {
  return {"shape",
          {{choice<Ball>("ball", "round", keys_of_ball),
            [](const Picked& picked) { return str("ball ", picked.options<Ball>().size); }},
           {choice<Box>("box", "with corners", keys_of_box), [](const Picked& picked) {
              const Box box = picked.options<Box>();
              return str("box ", box.size, " ", box.lid);
            }}}};
}

std::vector<Section> table_of_shapes(Picked& picked, const Registry<Shape>& registry) {
  Section section{
      "shape", {{"name", one_of(picked.name, registry.names()), "the shape", {.required = true}}}};
  add_choices(section, picked.all, registry.choices());
  return {section};
}

Picked shape_of(const std::string& text, const std::vector<Override>& overrides = {}) {
  Picked picked("ball");
  (void)read_keys(text, "a.yaml", table_of_shapes(picked, shapes()), overrides);
  return picked;
}

std::string made(const Picked& picked) {
  return shapes().at(picked.name).text(picked);
}

std::string shape_problems(const std::string& text) {
  return message_of<ValueError>([&] { (void)shape_of(text); });
}

}  // namespace

TEST_CASE("each choice has keys of its own, also where two have one name") {
  CHECK(made(shape_of("shape: {name: ball}")) == "ball 0.5");
  CHECK(made(shape_of("shape: {name: ball, size: 0.25}")) == "ball 0.25");
  CHECK(made(shape_of("shape: {name: box, size: 3, lid: 0}")) == "box 3 0");
  CHECK(made(shape_of("shape: {name: box, lid: 0}", {parse_set("shape.size=9")})) == "box 9 0");
}

TEST_CASE("a key's type, rule and need are those of the choice that is picked") {
  CHECK(shape_problems("shape: {name: box, size: 0.25, lid: 1}") ==
        "a.yaml:1:26: shape.size: expected an integer, found '0.25'");
  CHECK(shape_problems("shape: {name: ball, size: 0}") ==
        "a.yaml:1:27: shape.size: must be greater than 0, is 0");
  CHECK(shape_problems("shape: {name: box}") ==
        "a.yaml:1:1: shape.lid is missing: an integer, at least 0");
  CHECK(shape_problems("shape: {name: ball, lid: 1}") ==
        "a.yaml:1:21: shape.lid: belongs to shape box, not to ball");
  CHECK(shape_problems("shape: {name: bal}") ==
        "a.yaml:1:15: shape.name: must be one of ball, box, is 'bal' (did you mean 'ball'?)");
  CHECK(shape_problems("shape: {name: ball, edge: 1}") ==
        "a.yaml:1:21: unknown key 'edge' in shape: its keys are name, size");
}

TEST_CASE("what is printed and compared is of the choice that is picked") {
  Picked box = shape_of("shape: {name: box, size: 3, lid: 0}");
  const auto registry = shapes();
  const std::string text = keys_text(table_of_shapes(box, registry));
  CHECK(text == "shape:\n  name: box\n  size: 3\n  lid: 0\n");
  CHECK(made(shape_of(text)) == made(box));
  CHECK(key_values(table_of_shapes(box, registry)).at("shape.size") == "3");
  const std::string help = keys_help(table_of_shapes(box, registry));
  CHECK_THAT(help, ContainsSubstring("shape.size: its radius\n    a number, greater than 0; "
                                     "default 0.5; only for ball\n"));
  CHECK_THAT(help, ContainsSubstring("shape.size: its edge\n"));
  CHECK(keys_help(table_of_shapes(box, registry).front(), "ball") ==
        "shape.name: the shape\n    one of ball, box; needed\n"
        "shape.size: its radius\n    a number, greater than 0; default 0.5\n");
}

TEST_CASE("the places are the keys of the choice that is picked that are paths") {
  std::string name = "disk", path;
  bool flag = false;
  std::vector<Section> table{
      {"store",
       {{"name", one_of(name, {"disk", "net"}), "where"},
        {"path",
         text(path, of_length("a path", 9)),
         "on disk",
         {.owners = {"disk"}, .is_place = true}},
        {"path", text(path, of_length("a path", 9)), "of a page", {.owners = {"net"}}},
        {"log", text(path, of_length("a path", 9)), "of all", {.is_place = true}},
        {"flag", keys::flag(flag), "no path"}}}};
  const auto is_place = [](const KeyTraits& traits, bool applies) {
    return applies && traits.is_place;
  };
  CHECK(keys_of_which(table, is_place) == std::set<std::string>{"store.path", "store.log"});
  name = "net";
  CHECK(keys_of_which(table, is_place) == std::set<std::string>{"store.log"});
}

TEST_CASE("a string alone may stand for a list of one") {
  std::vector<std::string> names;
  const auto short_name = of_length("a name", 3);
  const std::vector<Section> table{{"pick", {{"names", text_or_list(names, short_name), "names"}}}};
  const auto read = [&](const std::string& value) {
    (void)read_keys("pick: {names: " + value + "}", "a.yaml", table);
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(names.empty());
  CHECK(keys_text(table) == "pick:\n  names: []\n");
  CHECK(read("one") == Names{"one"});
  CHECK(keys_text(table) == "pick:\n  names: one\n");
  CHECK(read("[two, six]") == Names{"two", "six"});
  CHECK(keys_text(table) == "pick:\n  names: [two, six]\n");
  CHECK(read("[one]") == Names{"one"});
  CHECK(message_of<ValueError>([&] { (void)read("four"); }) ==
        "a.yaml:1:15: pick.names: must be a name of 1 to 3 bytes, is 'four'");
  CHECK(message_of<ValueError>([&] { (void)read("[a, four]"); }) ==
        "a.yaml:1:19: pick.names: must be a name of 1 to 3 bytes, is 'four'");
}

TEST_CASE("a copy of what is picked has options of its own") {
  Picked one("box", Box{.size = 4});
  Picked other = one;
  other.all.of<Box>("box").size = 5;
  CHECK(made(one) == "box 4 1");
  CHECK(made(other) == "box 5 1");
  CHECK(made(Picked("ball")) == "ball 0.5");
}

TEST_CASE("a registry refuses a name that it has, and names the nearest to one that it lacks") {
  Registry<Shape> registry = shapes();
  registry.add({choice<Ball>("disk", "flat", keys_of_ball),
                [](const Picked& /*picked*/) { return std::string("disk"); }});
  CHECK(registry.names() == std::vector<std::string>{"ball", "box", "disk"});
  CHECK(message_of<ValueError>([&] { registry.add(shapes().at("box")); }) ==
        "there is a shape 'box' already");
  CHECK(message_of<ValueError>([&] { (void)registry.at("bax"); }) ==
        "there is no shape 'bax' (did you mean 'box'?); there are ball, box, disk");
}

}  // namespace lockstep::keys
