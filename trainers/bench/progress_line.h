#pragma once

#include <string>

namespace lockstep::bench {

/// One line on a terminal's stderr that says what is being done; nothing where stderr is none.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Shows `text` in place of what was there.
  void show(const std::string& text);
  /// Makes room for other output.
  void clear();

 private:
  bool terminal_;
};

}  // namespace lockstep::bench
