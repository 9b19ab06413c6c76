#include "framework/telemetry/progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <stop_token>
#include <utility>
#include <vector>

#include <stdio_ext.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "framework/base/memory.h"
#include "framework/base/output.h"
#include "framework/base/terminal.h"
#include "framework/base/text.h"
#include "framework/engines/surroundings.h"
#include "framework/engines/whereabouts.h"

namespace lockstep {
namespace {

constexpr int kDefaultColumns = 80;
constexpr int kMinBar = 10;
constexpr int kMaxBar = 40;
constexpr int kParts = 8;
constexpr std::string_view kGap = "  ";
// How often a line is shown in any case.
constexpr std::chrono::milliseconds kTerminalPeriod{500};
constexpr std::chrono::seconds kLogPeriod{60};
constexpr std::chrono::milliseconds kTick{100};

bool is_output(std::FILE* stream) {
  return fileno(stream) == STDOUT_FILENO || fileno(stream) == STDERR_FILENO;
}

bool stops_before(const ProgressState& state) {
  return state.stop > 0 && state.stop < state.total;
}

double seconds_left(const ProgressState& state) {
  const std::int64_t last = stops_before(state) ? state.stop : state.total;
  if (state.step >= last) return 0;
  if (state.step <= 0 || !(state.elapsed_s > 0)) return std::numeric_limits<double>::quiet_NaN();
  const auto to_come = static_cast<double>(last - state.step);
  return std::max(state.elapsed_s / static_cast<double>(state.step) * to_come, 1.0);
}

// The fields of a line from left to right; `rank` 0 is the last to go where room is short.
struct Field {
  int rank;
  std::string text;
};

std::vector<Field> fields(const ProgressState& state) {
  std::vector<Field> all{{0, str(state.unit, " ", state.step, "/", state.total,
                                 stops_before(state) ? str(", stops at ", state.stop) : "")}};
  if (state.epoch >= 0) all.push_back({3, str("epoch ", state.epoch)});
  if (state.loss) all.push_back({1, "loss " + formatted("%.4g", *state.loss)});
  if (state.lr) all.push_back({6, "lr " + formatted("%.3g", *state.lr)});
  if (const auto& rate = state.tokens_per_s ? state.tokens_per_s : state.samples_per_s) {
    all.push_back({4, formatted(*rate < 100 ? "%.3g" : "%.0f", *rate) +
                          (state.tokens_per_s ? " tokens/s" : " samples/s")});
  }
  if (state.waiting) {
    all.push_back({5, formatted("%.0f%% waiting", 100 * *state.waiting) +
                          (state.slow                ? str(" for replica ", *state.slow)
                           : state.slow_link.empty() ? ""
                                                     : " for " + state.slow_link)});
  }
  if (state.memory > 0) all.push_back({kParts - 1, text_of_bytes(state.memory)});
  all.push_back({2, duration_text(seconds_left(state)) + " left"});
  return all;
}

std::string joined(const std::vector<Field>& all, int max_rank) {
  const auto fits = [&](const Field& field) { return field.rank <= max_rank; };
  return join(mapped(all | std::views::filter(fits), &Field::text), kGap);
}

// `width` columns, the brackets among them.
std::string bar(const ProgressState& state, int width) {
  const auto total = static_cast<double>(state.total);
  const double done = total > 0 ? std::clamp(static_cast<double>(state.step) / total, 0.0, 1.0) : 1;
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
  if (minutes < 60) return formatted("%lld:%02lld", minutes, whole % 60);
  return formatted("%lld:%02lld:%02lld", minutes / 60, minutes % 60, whole % 60);
}

std::string progress_text(const ProgressState& state) {
  return joined(fields(state), kParts);
}

std::string progress_bar(const ProgressState& state, int columns) {
  const int room = std::max(columns - 1, 0);
  const std::vector<Field> all = fields(state);
  std::string text;
  for (int max_rank = kParts - 1; max_rank >= 0; --max_rank) {
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

std::optional<int> watched_columns(std::FILE* stream) {
  const auto columns = terminal_columns(stream);
  if (!columns) return std::nullopt;
  static const bool is_logged =
      engines::is_logged_by_engine(engines::surroundings_of_process(::getpid(), ""));
  return is_logged ? std::nullopt : columns;
}

Progress::Progress(std::FILE* stream, bool quiet, Columns columns, Now now)
    : stream_(stream),
      quiet_(quiet),
      columns_(std::move(columns)),
      now_(std::move(now)),
      on_terminal_(!quiet && columns_(stream).has_value()),
      drawn_at_(now_()) {}

void Progress::update(const ProgressState& state) {
  const MutexLock lock(mutex_);
  take(state);
  draw();
}

void Progress::note(const ProgressState& state) {
  const MutexLock lock(mutex_);
  take(state);
  if (noted_at_ - drawn_at_ >= (on_terminal_ ? kTerminalPeriod : kLogPeriod)) draw();
}

void Progress::tick() {
  const MutexLock lock(mutex_);
  if (is_output(stream_)) Output::of(fileno(stream_)).progress();
  if (!on_terminal_ || !state_) return;
  const bool is_late = now_() - drawn_at_ >= kTerminalPeriod;
  if (is_late || (!drawn_.empty() && columns_(stream_) != drawn_columns_)) draw();
}

void Progress::print(std::string_view line) {
  const MutexLock lock(mutex_);
  const std::string text = printable(line) + "\n";
  if (drawn_.empty()) return write(text);
  write(std::string(kRedraw) + text);
  draw();
}

void Progress::make_room() {
  const MutexLock lock(mutex_);
  if (drawn_.empty() || std::exchange(has_room_, true)) return;
  // Not flushed: it waits in the stream's buffer for what comes next.
  std::fputs(std::string(kRedraw).c_str(), stream_);
}

void Progress::finish() {
  const MutexLock lock(mutex_);
  if (!drawn_.empty()) {
    if (has_room_) draw();
    write("\n");
    drawn_.clear();
  }
  state_.reset();
}

void Progress::take(const ProgressState& state) {
  state_ = state;
  noted_at_ = now_();
  if (is_output(stream_)) Output::of(fileno(stream_)).progress();
}

void Progress::draw() {
  drawn_at_ = now_();
  ProgressState state = *state_;
  state.elapsed_s += std::chrono::duration<double>(drawn_at_ - noted_at_).count();
  const std::optional<int> columns = columns_(stream_);
  if (!columns) return write(progress_text(state) + "\n");
  drawn_columns_ = *columns;
  drawn_ = progress_bar(state, *columns);
  write(std::string(kRedraw) + drawn_);
}

void Progress::write(const std::string& text) {
  if (quiet_) return;
  const bool has_room = std::exchange(has_room_, false);
  if (!is_output(stream_)) {
    std::fputs(text.c_str(), stream_);
    std::fflush(stream_);
    return;
  }
  // The program's own prints go first, and wait for their reader. make_room() alone must not.
  if (has_room && ::__fpending(stream_) == kRedraw.size()) ::__fpurge(stream_);
  std::fflush(stream_);
  Output::of(fileno(stream_)).write(text);
}

std::jthread progress_ticks(Progress& progress) {
  if (!progress.on_terminal()) return {};
  return std::jthread([&progress](const std::stop_token& stop) {
    while (!stopped_within(kTick, stop)) progress.tick();
  });
}

}  // namespace lockstep
