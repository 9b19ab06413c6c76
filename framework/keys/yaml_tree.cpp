#include "framework/keys/yaml_tree.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "framework/base/text.h"
#include "framework/keys/yaml_text.h"

namespace lockstep::keys {
namespace {

// Ends the reading of a text of which no more can be understood.
struct Unreadable {
  YamlPosition place;
  std::string message;
};

// Builds the tree from yaml-cpp's events, not from its nodes: those have lost duplicate keys,
// further documents (depending on the version) and where an alias is used. Problems are kept until
// the end, because yaml-cpp's own errors explain more: it takes an open "[1" for a key.
class TreeBuilder : public YAML::EventHandler {
 public:
  static constexpr std::size_t kMaxDepth = 64;

  TreeBuilder(const YamlSource& source, const YamlProblems& problems)
      : source_(source), problems_(problems) {}

  // The tree of a text that was read to its end, and the problems so far.
  [[nodiscard]] std::shared_ptr<const YamlNode> finish(YamlProblems& problems) const {
    problems = problems_;
    return root_;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (!start_) {
      start_ = mark.pos;
      return;
    }
    // Before a ',' where no value can begin yaml-cpp sees an empty document, again and again.
    throw Unreadable{place(mark), mark.pos == *start_
                                      ? "not valid YAML: no value can begin here"
                                      : "a second YAML document: only one may stand here"};
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
      if (open.node == node) {
        throw Unreadable{place(mark), "an alias inside of what it stands for"};
      }
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
    std::map<std::string, YamlPosition> keys;  // those of a map so far, and where each is
    bool is_key_good = true;                   // so that its value is kept
  };

  [[nodiscard]] YamlPosition place(const YAML::Mark& mark) const {
    return source_.at(mark.line + 1, mark.column + 1);
  }

  [[nodiscard]] std::shared_ptr<YamlNode> make(YamlNode::Kind kind, const YAML::Mark& mark,
                                               const std::string& tag) {
    auto node = std::make_shared<YamlNode>();
    node->kind = kind;
    node->place = place(mark);
    // yaml-cpp's own tags: "?" for a plain value, "!" for a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      report(node->place, str("the tag ", yaml_shown(tag), ": tags have no meaning here"));
    }
    return node;
  }

  void report(const YamlPosition& where, const std::string& message) {
    problems_.report(where, [&] { return message; });
  }

  void open(std::shared_ptr<YamlNode> node, YAML::anchor_t anchor) {
    if (open_.size() == kMaxDepth) {
      throw Unreadable{node->place, str("nested deeper than ", kMaxDepth, " levels")};
    }
    add(node, anchor);
    open_.push_back({std::move(node), nullptr, {}});
  }

  void add(std::shared_ptr<YamlNode> node, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    auto& [parent, key, keys, is_key_good] = open_.back();
    if (parent->kind == YamlNode::Kind::list) {
      parent->items.push_back(std::move(node));
    } else if (key) {
      if (is_key_good) parent->entries.push_back({key->text, key->place, std::move(node)});
      key = nullptr;
    } else {
      is_key_good = check_key(*node, keys);
      key = std::move(node);
    }
  }

  bool check_key(const YamlNode& key, std::map<std::string, YamlPosition>& earlier) {
    if (key.kind != YamlNode::Kind::scalar) {
      report(key.place, "expected a key, found " + yaml_described(key));
      return false;
    }
    const auto [first, is_new] = earlier.emplace(key.text, key.place);
    if (is_new) return true;
    report(key.place,
           str("duplicate key ", yaml_shown(key.text), ", the first is at ", first->second.text));
    return false;
  }

  const YamlSource& source_;
  YamlProblems problems_;
  std::optional<int> start_;  // of the first document
  std::shared_ptr<const YamlNode> root_;
  std::vector<Open> open_;  // from the root inwards
  std::map<YAML::anchor_t, std::shared_ptr<YamlNode>> anchors_;
};

// Refuses what yaml-cpp reads otherwise than people expect: it ends a file at a 0x04, for one.
void check_text(const std::string& text, const YamlSource& source) {
  std::istringstream lines(text);
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string code = control_code(line[i]);
      if (code.empty() || line[i] == '\t' || line[i] == '\r') continue;
      throw Unreadable{source.at(number, static_cast<std::int64_t>(i) + 1),
                       str("the control character 0x", code, ": this is not plain text in UTF-8")};
    }
    const std::size_t tab = line.find('\t');
    const std::size_t content = line.find_first_not_of(" \t\r");
    // As text copied from web pages has it, where it looks like a blank.
    constexpr const char* kHardBlank = "\xc2\xa0";
    const std::string plain = line.substr(0, line.find_first_of("#'\""));
    const std::size_t behind_colon = plain.find(str(":", kHardBlank));
    const std::size_t hard =
        content != std::string::npos && line.find(kHardBlank) == content ? content : behind_colon;
    if (hard != std::string::npos) {
      throw Unreadable{source.at(number, static_cast<std::int64_t>(hard) + 1),
                       "a non-breaking space (U+00A0) stands where YAML takes only a blank"};
    }
    if (content != std::string::npos && tab < content && line[content] != '#') {
      throw Unreadable{source.at(number, static_cast<std::int64_t>(tab) + 1),
                       "a tab in the indentation: YAML takes only spaces there"};
    }
  }
}

// What to do where yaml-cpp understands no more, for the commonest of its messages; "" for others.
std::string remedy_for(const std::string& problem) {
  static const std::pair<const char*, const char*> kRemedies[] = {
      {"alias not found", "a text that begins with '*' or '&' needs quotes"},
      {"anchor is not defined", "a text that begins with '*' needs quotes"},
      {"unknown token", "a text that begins with '%', '@' or '`' needs quotes"},
      {"unknown escape character", "in single quotes a backslash stands for itself"},
      {"illegal map value",
       "a text with ': ' in it needs quotes, and keys of one map begin in one "
       "column, each with a blank behind its colon"},
      {"end of map not found",
       "keys of one map begin in one column, each with a blank behind its colon"},
      {"end of map flow not found",
       "before this place a '}', a ',' or the quotes of a text with "
       "such signs are missing"},
      {"end of sequence flow not found", "before this place a ']' or a ',' is missing"},
      {"illegal EOF in scalar", "a quote is not closed"}};
  for (const auto& [part, remedy] : kRemedies) {
    if (problem.find(part) != std::string::npos) return str(": ", remedy);
  }
  return "";
}

void read_events(std::string text, const YamlSource& source, TreeBuilder& builder) {
  // yaml-cpp reads a version by the program's locale, where 1.2 may be twelve. It says nothing.
  if (text.starts_with("%YAML 1.")) text.front() = '#';
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  const auto columns = static_cast<std::int64_t>(text.size() - (text.rfind('\n') + 1));
  try {
    // yaml-cpp closes a quote left open by itself if the text ends with a newline, and loses its
    // place if it ends within brackets: a comment at the end keeps it from both.
    std::istringstream in(text + "\n#");
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const bool inside = !error.mark.is_null() && error.mark.line <= lines;
    throw Unreadable{
        inside ? source.at(error.mark.line + 1, error.mark.column + 1)
               : source.at(lines + 1, columns + 1),
        "not valid YAML: " + error.msg + (source.flag < 0 ? remedy_for(error.msg) : "")};
  }
}

}  // namespace

YamlPosition YamlSource::at(std::int64_t line, std::int64_t column) const {
  if (flag >= 0) return {name, std::numeric_limits<std::int64_t>::max() - 1, flag};
  return {str(name, ":", line, ":", column), line, column};
}

std::shared_ptr<const YamlNode> parse_yaml(std::string text, const YamlSource& source,
                                           YamlProblems& problems) {
  TreeBuilder builder(source, problems);
  const std::string quoting = source.flag < 0 ? "" : yaml_quoting(text);
  try {
    check_text(text, source);
    read_events(std::move(text), source, builder);
  } catch (const Unreadable& end) {
    const bool is_yaml = !end.message.starts_with("not valid YAML");
    problems.report(end.place, [&] { return end.message + (is_yaml ? "" : quoting); });
    return nullptr;
  }
  return builder.finish(problems);
}

std::string yaml_quoting(const std::string& text) {
  return str("; if it is a text, put it in quotes: '\"", cut(text, 40), "\"'");
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

}  // namespace lockstep::keys
