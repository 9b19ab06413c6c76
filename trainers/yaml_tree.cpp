#include "trainers/yaml_tree.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

bool is_control(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return code < 0x20 || code == 0x7f;
}

std::string hex(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return {"0123456789abcdef"[code >> 4], "0123456789abcdef"[code & 15]};
}

// Builds the tree from yaml-cpp's events, not from its nodes: those have lost duplicate keys,
// further documents (depending on the version) and where an alias is used.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const YamlSource& source) : source_(source) {}

  [[nodiscard]] std::shared_ptr<const YamlNode> root() const { return root_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) yaml_fail(place(mark), "a second YAML document: only one may stand here");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto node = make(YamlNode::Kind::null, mark, "");
    // The mark of a value left out is that of whatever comes next.
    if (!open_.empty() && open_.back().key && open_.back().key->place.line < node->place.line) {
      node->place = open_.back().key->place;
    }
    add(std::move(node), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    auto node = make(YamlNode::Kind::scalar, mark, tag);
    node->text = value;
    node->quoted = tag == "!";
    add(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto node = anchors_.at(anchor);
    for (const Open& open : open_) {
      if (open.node == node) yaml_fail(place(mark), "an alias inside of what it stands for");
    }
    add(node, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(YamlNode::Kind::list, mark, tag), anchor);
  }
  void OnSequenceEnd() override { open_.pop_back(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(YamlNode::Kind::map, mark, tag), anchor);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // A list or map whose end is still to come, and a map's key whose value is.
  struct Open {
    std::shared_ptr<YamlNode> node;
    std::shared_ptr<const YamlNode> key;
  };

  [[nodiscard]] YamlPlace place(const YAML::Mark& mark) const {
    return source_.at(mark.line + 1, mark.column + 1);
  }

  [[nodiscard]] std::shared_ptr<YamlNode> make(YamlNode::Kind kind, const YAML::Mark& mark,
                                               const std::string& tag) const {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->place = place(mark);
    // yaml-cpp's own tags: "?" for a plain value, "!" for a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      yaml_fail(node->place, str("the tag ", yaml_shown(tag), ": tags have no meaning here"));
    }
    return node;
  }

  void open(std::shared_ptr<YamlNode> node, YAML::anchor_t anchor) {
    add(node, anchor);
    open_.push_back({std::move(node), nullptr});
  }

  void add(std::shared_ptr<YamlNode> node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    auto& [parent, key] = open_.back();
    if (parent->kind == YamlNode::Kind::list) {
      parent->items.push_back(std::move(node));
    } else if (key) {
      parent->entries.push_back({key->text, key->place, std::move(node)});
      key = nullptr;
    } else {
      check_key(*parent, *node);
      key = std::move(node);
    }
  }

  static void check_key(const YamlNode& parent, const YamlNode& key) {
    if (key.kind != YamlNode::Kind::scalar) {
      yaml_fail(key.place, "expected a key, found " + yaml_described(key));
    }
    for (const YamlEntry& entry : parent.entries) {
      if (entry.key != key.text) continue;
      yaml_fail(key.place, str("duplicate key ", yaml_shown(key.text), ": it stands in line ",
                               entry.place.line, " already"));
    }
  }

  const YamlSource& source_;
  int documents_ = 0;
  std::shared_ptr<const YamlNode> root_;
  std::vector<Open> open_;  // from the root inwards
  std::map<YAML::anchor_t, std::shared_ptr<YamlNode>> anchors_;
};

// What yaml-cpp reads otherwise than people expect: it ends a file at a 0x04, for one.
void check_text(const std::string& text, const YamlSource& source) {
  std::istringstream lines(text);
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (!is_control(line[i]) || line[i] == '\t' || line[i] == '\r') continue;
      yaml_fail(source.at(number, static_cast<std::int64_t>(i) + 1),
                str("the control character 0x", hex(line[i]), ": this is not plain text"));
    }
    const std::size_t tab = line.find('\t');
    const std::size_t content = line.find_first_not_of(" \t\r");
    if (content != std::string::npos && tab < content && line[content] != '#') {
      yaml_fail(source.at(number, static_cast<std::int64_t>(tab) + 1),
                "a tab in the indentation: YAML takes only spaces there");
    }
  }
}

}  // namespace

YamlPlace YamlSource::at(std::int64_t line, std::int64_t column) const {
  if (flag >= 0) return {name, std::numeric_limits<std::int64_t>::max() - 1, flag};
  return {str(name, ":", line, ":", column), line, column};
}

std::shared_ptr<const YamlNode> parse_yaml(std::string text, const YamlSource& source) {
  check_text(text, source);
  // yaml-cpp takes a quote that is never closed for a closed one if the file ends with a newline.
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  TreeBuilder builder(source);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    yaml_fail(source.at(std::max(error.mark.line, 0) + 1, std::max(error.mark.column, 0) + 1),
              "not valid YAML: " + error.msg);
  }
  return builder.root();
}

void yaml_fail(const YamlPlace& place, const std::string& message) {
  throw ValueError(place.text + ": " + message);
}

std::string yaml_shown(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  std::string shown = "'";
  for (const char letter : text.substr(0, kLongest)) {
    if (is_control(letter)) {
      shown += "\\x" + hex(letter);
    } else {
      shown += letter;
    }
  }
  return shown + (text.size() > kLongest ? "…'" : "'");
}

std::string yaml_described(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return (node.quoted ? "the string " : "") + yaml_shown(node.text);
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return "nothing";
}

}  // namespace lockstep
