#include "framework/telemetry/progress.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/catch.h"
#include "tests/support/terminals.h"

namespace lockstep {
namespace {

const ProgressState kEarly{.step = 20,
                           .total = 200,
                           .epoch = 1,
                           .loss = 0.431234,
                           .samples_per_s = 10500.4,
                           .elapsed_s = 1.0};
const ProgressState kLate{.step = 150,
                          .total = 200,
                          .epoch = 2,
                          .loss = 0.05,
                          .samples_per_s = 12.345,
                          .elapsed_s = 300.0};

const ProgressState kFull{.step = 20,
                          .total = 200,
                          .epoch = 1,
                          .loss = 0.431234,
                          .lr = 0.00099889,
                          .samples_per_s = 10500.4,
                          .waiting = 0.034,
                          .memory = std::int64_t{199} << 19,
                          .elapsed_s = 1.0};

using TemporaryFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

TemporaryFile temporary_file() {
  TemporaryFile file(std::tmpfile(), std::fclose);
  if (file == nullptr) throw std::runtime_error("tmpfile failed");
  return file;
}

// What was written to it.
std::string text_of(const TemporaryFile& file) {
  std::string text(static_cast<std::size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  return text;
}

// What `show` writes to a stream that is a terminal as `columns` says.
template <typename Show>
std::string shown(const Progress::Columns& columns, const Show& show, bool quiet = false) {
  const TemporaryFile file = temporary_file();
  {
    Progress progress(file.get(), quiet, columns);
    show(progress);
  }
  return text_of(file);
}

Progress::Columns terminal_of(int columns) {
  return [columns](std::FILE*) { return columns; };
}

TEST_CASE("durations read as minutes or hours", "[telemetry]") {
  CHECK(duration_text(0) == "0:00");
  CHECK(duration_text(0.5) == "0:01");
  CHECK(duration_text(65) == "1:05");
  CHECK(duration_text(59.6) == "1:00");
  CHECK(duration_text(3599.4) == "59:59");
  CHECK(duration_text(3599.5) == "1:00:00");
  CHECK(duration_text(7384) == "2:03:04");
  CHECK(duration_text(360'000) == "100:00:00");
  CHECK(duration_text(-1) == "--:--");
  CHECK(duration_text(std::nan("")) == "--:--");
  CHECK(duration_text(std::numeric_limits<double>::infinity()) == "--:--");
}

TEST_CASE("a plain line says how far a run is", "[telemetry]") {
  CHECK(progress_text(kEarly) == "step 20/200  epoch 1  loss 0.4312  10500 samples/s  0:09 left");
  CHECK(progress_text(kFull) ==
        "step 20/200  epoch 1  loss 0.4312  lr 0.000999  10500 samples/s  3% waiting  99.5 MiB  "
        "0:09 left");
  CHECK_THAT(
      progress_text({.step = 10, .total = 10, .waiting = 0.25, .slow_link = "host 2's link"}),
      ContainsSubstring("  25% waiting for host 2's link  "));
  CHECK(progress_text({.step = 10, .total = 10, .waiting = 0.25, .slow = 1}) ==
        "step 10/10  epoch 0  25% waiting for replica 1  0:00 left");
  CHECK(progress_text({.step = 10, .total = 10, .samples_per_s = 99.96, .tokens_per_s = 25589.8}) ==
        "step 10/10  epoch 0  25590 tokens/s  0:00 left");
  CHECK(progress_text(kLate) == "step 150/200  epoch 2  loss 0.05  12.3 samples/s  1:40 left");
  CHECK(progress_text({.step = 20, .total = 200, .stop = 60, .epoch = 1, .elapsed_s = 10}) ==
        "step 20/200, stops at 60  epoch 1  0:20 left");
  CHECK(progress_text({.step = 60, .total = 200, .stop = 60, .epoch = 1, .elapsed_s = 10}) ==
        "step 60/200, stops at 60  epoch 1  0:00 left");
  CHECK(progress_text({.step = 0, .total = 10, .stop = 10}) == "step 0/10  epoch 0  --:-- left");
  CHECK(progress_text({.step = 0, .total = 10}) == "step 0/10  epoch 0  --:-- left");
  CHECK(progress_text({.step = 10, .total = 10, .loss = std::nan(""), .elapsed_s = 5}) ==
        "step 10/10  epoch 0  loss nan  0:00 left");
}

TEST_CASE("what is left is known after a step, and something is until the last") {
  const auto left = [](std::int64_t step, double elapsed_s) {
    const std::string text =
        progress_text({.step = step, .total = 1000, .epoch = 1, .elapsed_s = elapsed_s});
    return text.substr(text.rfind("  ") + 2);
  };
  CHECK(left(0, 0) == "--:-- left");
  CHECK(left(0, 30) == "--:-- left");
  CHECK(left(3, 0) == "--:-- left");
  CHECK(left(1, 0.01) == "0:10 left");
  CHECK(left(500, 0.01) == "0:01 left");
  CHECK(left(999, 0.01) == "0:01 left");
  CHECK(left(1000, 0.01) == "0:00 left");
  CHECK(left(1000, 0) == "0:00 left");
}

TEST_CASE("a bar takes what room there is, from 10 to 40 columns", "[telemetry]") {
  const std::string text = progress_text(kEarly);  // 61 characters
  CHECK(progress_bar(kEarly, 200) == "[===>                                  ]  " + text);
  CHECK(progress_bar(kEarly, 80) == "[=>            ]  " + text);
  CHECK(progress_bar(kEarly, 80).size() == 79);
  CHECK(progress_bar(kEarly, 74) == "[>       ]  " + text);
  CHECK(progress_bar(kEarly, 73) == text);
  CHECK(progress_bar(kEarly, 62) == text);
}

TEST_CASE("a bar is empty at the start and full at the end", "[telemetry]") {
  const auto bar = [](std::int64_t step, std::int64_t total) {
    const std::string line = progress_bar({.step = step, .total = total}, 200);
    return line.substr(0, line.find(']') + 1);
  };
  CHECK(bar(0, 8) == "[>" + std::string(37, ' ') + "]");
  CHECK(bar(4, 8) == "[" + std::string(19, '=') + ">" + std::string(18, ' ') + "]");
  CHECK(bar(8, 8) == "[" + std::string(38, '=') + "]");
  CHECK(bar(9, 8) == bar(8, 8));
  CHECK(bar(0, 0) == bar(8, 8));
}

TEST_CASE("a narrow terminal gets what matters most", "[telemetry]") {
  // A part goes where it doesn't fit; the room it leaves may again be enough for a bar.
  CHECK(progress_bar(kEarly, 61) == "[=>          ]  step 20/200  epoch 1  loss 0.4312  0:09 left");
  CHECK(progress_bar(kEarly, 45) == "step 20/200  epoch 1  loss 0.4312  0:09 left");
  CHECK(progress_bar(kEarly, 44) == "step 20/200  loss 0.4312  0:09 left");
  CHECK(progress_bar(kEarly, 25) == "step 20/200  loss 0.4312");
  CHECK(progress_bar(kEarly, 24) == "[>       ]  step 20/200");
  CHECK(progress_bar(kEarly, 12) == "step 20/200");
  CHECK(progress_bar(kEarly, 6) == "step ");
  CHECK(progress_bar(kEarly, 1).empty());
  CHECK(progress_bar(kEarly, 0).empty());
  for (int columns = 1; columns < 120; ++columns) {
    CHECK(static_cast<int>(progress_bar(kFull, columns).size()) < columns);
  }
  for (const std::string line :
       {"step 20/200  epoch 1  loss 0.4312  lr 0.000999  10500 samples/s  3% waiting  0:09 left",
        "step 20/200  epoch 1  loss 0.4312  10500 samples/s  3% waiting  0:09 left",
        "step 20/200  epoch 1  loss 0.4312  10500 samples/s  0:09 left"}) {
    CHECK(progress_bar(kFull, static_cast<int>(line.size()) + 1) == line);
  }
}

TEST_CASE("without a terminal every update is a line", "[telemetry]") {
  CHECK(shown(terminal_columns, [](Progress& progress) {
          progress.update(kEarly);
          progress.print("evaluated");
          progress.update(kLate);
          progress.finish();
        }) == progress_text(kEarly) + "\nevaluated\n" + progress_text(kLate) + "\n");
}

TEST_CASE("quiet progress shows nothing", "[telemetry]") {
  const auto columns = GENERATE(as<Progress::Columns>(), terminal_columns, terminal_of(80));
  CHECK(shown(
            columns,
            [](Progress& progress) {
              progress.update(kEarly);
              progress.print("evaluated");
              progress.finish();
            },
            /*quiet=*/true)
            .empty());
}

TEST_CASE("a terminal's line is redrawn in place and ended once", "[telemetry]") {
  CHECK(shown(terminal_of(80), [](Progress& progress) {
          progress.update(kEarly);
          progress.update(kLate);
          progress.finish();
          progress.finish();
        }) == "\r\x1b[K" + progress_bar(kEarly, 80) + "\r\x1b[K" + progress_bar(kLate, 80) + "\n");
}

TEST_CASE("a terminal's line is ended when its progress goes out of scope", "[telemetry]") {
  CHECK(shown(terminal_of(80), [](Progress& progress) { progress.update(kEarly); }) ==
        "\r\x1b[K" + progress_bar(kEarly, 80) + "\n");
}

TEST_CASE("other lines appear above the one that is redrawn", "[telemetry]") {
  const std::string line = progress_bar(kEarly, 80);
  CHECK(shown(terminal_of(80), [](Progress& progress) {
          progress.print("before");
          progress.update(kEarly);
          progress.print("evaluated");
          progress.finish();
          progress.print("after");
        }) == "before\n\r\x1b[K" + line + "\r\x1b[Kevaluated\n\r\x1b[K" + line + "\nafter\n");
}

TEST_CASE("what others print takes the place of a terminal's line, which comes back",
          "[telemetry]") {
  const TemporaryFile file = temporary_file();
  {
    Progress progress(file.get(), /*quiet=*/false, terminal_of(80));
    progress.make_room();
    std::fputs("before\n", file.get());
    progress.update(kEarly);
    progress.make_room();
    progress.make_room();
    std::fputs("amid\n", file.get());
    progress.update(kEarly);
    progress.make_room();
  }
  const std::string clear = "\r\x1b[K";
  const std::string line = clear + progress_bar(kEarly, 80);
  CHECK(text_of(file) == "before\n" + line + clear + "amid\n" + line + clear + line + "\n");
}

TEST_CASE("what is no terminal has no columns", "[telemetry]") {
  CHECK_FALSE(terminal_columns(temporary_file().get()).has_value());
}

// Time as a test says it goes.
struct FakeTime {
  Progress::Clock::time_point now{std::chrono::hours(1)};

  Progress::Now clock() {
    return [this] { return now; };
  }
};

// What `show` writes, as time goes on by its own hand.
template <typename Show>
std::string shown_in_time(const Progress::Columns& columns, const Show& show) {
  FakeTime time;
  const TemporaryFile file = temporary_file();
  Progress progress(file.get(), false, columns, time.clock());
  show(progress, time);
  return text_of(file);
}

ProgressState later(ProgressState state, double seconds) {
  state.elapsed_s += seconds;
  return state;
}

TEST_CASE("a terminal's line is redrawn twice a second, by steps or by ticks", "[telemetry]") {
  const std::string redraw = "\r\x1b[K";
  CHECK(shown_in_time(terminal_of(80), [](Progress& progress, FakeTime& time) {
          progress.tick();  // nothing is known yet
          progress.note(kEarly);
          time.now += std::chrono::milliseconds(499);
          progress.note(kEarly);
          progress.tick();
        }).empty());
  CHECK(shown_in_time(terminal_of(80),
                      [](Progress& progress, FakeTime& time) {
                        progress.note(kEarly);
                        time.now += std::chrono::seconds(1);
                        progress.tick();
                        time.now += std::chrono::seconds(1);
                        progress.note(kLate);
                        progress.tick();
                        time.now += std::chrono::seconds(20);
                        progress.tick();
                      }) == redraw + progress_bar(later(kEarly, 1), 80) + redraw +
                                progress_bar(kLate, 80) + redraw +
                                progress_bar(later(kLate, 20), 80));
}

TEST_CASE("a log gets a line a minute between its updates", "[telemetry]") {
  CHECK(shown_in_time(terminal_columns, [](Progress& progress, FakeTime& time) {
          progress.update(kEarly);
          for (int second = 1; second <= 100; ++second) {
            time.now += std::chrono::seconds(1);
            progress.note(kLate);
            progress.tick();
          }
        }) == progress_text(kEarly) + "\n" + progress_text(kLate) + "\n");
}

TEST_CASE("a window that is made narrower has a line of its width at once", "[telemetry]") {
  int width = 100;
  const std::string redraw = "\r\x1b[K";
  CHECK(shown_in_time([&](std::FILE*) { return width; },
                      [&](Progress& progress, FakeTime&) {
                        progress.tick();
                        progress.update(kEarly);
                        progress.tick();
                        width = 50;
                        progress.tick();
                        progress.tick();
                        width = 40;
                        progress.print("evaluated");
                        progress.finish();
                        width = 30;
                        progress.tick();
                      }) == redraw + progress_bar(kEarly, 100) + redraw + progress_bar(kEarly, 50) +
                                redraw + "evaluated\n" + redraw + progress_bar(kEarly, 40) + "\n");
}

TEST_CASE("a real terminal is redrawn as wide as it is at the time", "[telemetry]") {
  if (!testing::has_terminals()) {
    WARN("no terminal can be made here: /dev/pts is not mounted");
    return;
  }
  testing::Terminal terminal(100);
  CHECK(terminal_columns(terminal.stream()) == 100);
  {
    Progress progress(terminal.stream());
    progress.update(kEarly);
    terminal.resize(50);
    progress.update(kEarly);
    terminal.resize(0);
    CHECK(terminal_columns(terminal.stream()) == 80);
    progress.update(kLate);
  }
  CHECK(terminal.text() == "\r\x1b[K" + progress_bar(kEarly, 100) + "\r\x1b[K" +
                               progress_bar(kEarly, 50) + "\r\x1b[K" + progress_bar(kLate, 80) +
                               "\r\n");
}

TEST_CASE("a real terminal's line follows its width while nothing else happens", "[telemetry]") {
  if (!testing::has_terminals()) {
    WARN("no terminal can be made here: /dev/pts is not mounted");
    return;
  }
  testing::Terminal terminal(100);
  Progress progress(terminal.stream());
  const std::jthread ticks = progress_ticks(progress);
  progress.update(kEarly);
  terminal.resize(50);
  // In 50 columns there is no room for a bar before the step.
  CHECK(terminal.shows("\r\x1b\\[Kstep 20/200"));
}

}  // namespace
}  // namespace lockstep
