#include "framework/telemetry/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include "framework/base/text.h"

namespace lockstep {
namespace {

constexpr int kDefaultColumns = 80;
constexpr int kMinBar = 10;
constexpr int kMaxBar = 40;
constexpr std::string_view kGap = "  ";
constexpr std::string_view kRedraw = "\r\x1b[K";  // to the line's start, erase to its end

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 64> text{};
  const int size = std::snprintf(text.data(), text.size(), pattern, values...);
  return {text.data(), std::min(static_cast<std::size_t>(std::max(size, 0)), text.size() - 1)};
}

double seconds_left(const ProgressState& state) {
  if (state.step <= 0) return std::numeric_limits<double>::quiet_NaN();
  const auto to_come = static_cast<double>(std::max<std::int64_t>(state.total - state.step, 0));
  return state.elapsed_s / static_cast<double>(state.step) * to_come;
}

// The parts of a line from left to right; `rank` 0 is the last to go where room is short.
struct Part {
  int rank;
  std::string text;
};

std::vector<Part> parts(const ProgressState& state) {
  return {
      {0, str("step ", state.step, "/", state.total)},
      {3, str("epoch ", state.epoch)},
      {1, "loss " + format("%.4g", state.loss)},
      {4, format(state.samples_per_s < 100 ? "%.3g samples/s" : "%.0f samples/s",
                 state.samples_per_s)},
      {2, duration_text(seconds_left(state)) + " left"},
  };
}

std::string joined(const std::vector<Part>& all, int max_rank) {
  std::vector<std::string> texts;
  for (const Part& part : all) {
    if (part.rank <= max_rank) texts.push_back(part.text);
  }
  return join(texts, kGap);
}

// `width` columns, the brackets among them.
std::string bar(const ProgressState& state, int width) {
  const double done =
      state.total <= 0
          ? 1.0
          : std::clamp(static_cast<double>(state.step) / static_cast<double>(state.total), 0.0,
                       1.0);
  const auto inside = static_cast<std::size_t>(width - 2);
  const auto full = static_cast<std::size_t>(done * static_cast<double>(inside));
  std::string filled(full, '=');
  if (full < inside) filled += '>';
  filled.resize(inside, ' ');
  return "[" + filled + "]";
}

}  // namespace

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "--:--";
  const long long whole = std::llround(seconds);
  const long long minutes = whole / 60;
  if (minutes < 60) return format("%lld:%02lld", minutes, whole % 60);
  return format("%lld:%02lld:%02lld", minutes / 60, minutes % 60, whole % 60);
}

std::string progress_text(const ProgressState& state) {
  const std::vector<Part> all = parts(state);
  return joined(all, static_cast<int>(all.size()));
}

std::string progress_bar(const ProgressState& state, int columns) {
  const int room = std::max(columns - 1, 0);
  const std::vector<Part> all = parts(state);
  std::string text;
  for (int max_rank = static_cast<int>(all.size()) - 1; max_rank >= 0; --max_rank) {
    text = joined(all, max_rank);
    if (static_cast<int>(text.size()) <= room) break;
  }
  const int size = static_cast<int>(text.size());
  if (size > room) return text.substr(0, static_cast<std::size_t>(room));
  const int free = room - size - static_cast<int>(kGap.size());
  if (free < kMinBar) return text;
  return bar(state, std::min(free, kMaxBar)) + std::string(kGap) + text;
}

std::optional<int> terminal_columns(std::FILE* stream) {
  const int descriptor = fileno(stream);
  if (isatty(descriptor) != 1) return std::nullopt;
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultColumns;
}

Progress::Progress(std::FILE* stream, bool quiet, Columns columns)
    : stream_(stream), quiet_(quiet), columns_(std::move(columns)) {}

Progress::~Progress() {
  finish();
}

void Progress::update(const ProgressState& state) {
  const std::optional<int> columns = columns_(stream_);
  if (!columns) return show(progress_text(state) + "\n");
  drawn_ = progress_bar(state, *columns);
  show(std::string(kRedraw) + drawn_);
}

void Progress::print(std::string_view line) {
  std::string text = str(line, "\n");
  if (!drawn_.empty()) text = std::string(kRedraw) + text + drawn_;
  show(text);
}

void Progress::finish() {
  if (drawn_.empty()) return;
  show("\n");
  drawn_.clear();
}

void Progress::show(const std::string& text) {
  if (quiet_) return;
  std::fputs(text.c_str(), stream_);
  std::fflush(stream_);
}

}  // namespace lockstep
