#include "framework/timeline/recorder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/random.h"
#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "framework/comm/shared/host_memory.h"
#include "tests/catch.h"
#include "tests/support/allocated_bytes.h"
#include "tests/support/ended.h"
#include "tests/support/message_of.h"
#include "tests/support/settings.h"

using namespace lockstep;
using timeline::RecordedSpan;
using timeline::Recorder;
using timeline::recorder_now;
using timeline::SpanKind;

namespace {

constexpr std::uint64_t kSpans = Recorder::kSpans;

std::vector<std::uint64_t> numbers_of(const std::vector<Recorder::Span>& spans) {
  return mapped(spans, &Recorder::Span::number);
}

// Makes a span whose words all follow from its number.
Recorder::Details made(std::uint64_t number, std::span<const std::uint32_t> names) {
  return {.kind = static_cast<SpanKind>(number % 12),
          .name = names[number % names.size()],
          .bytes = 3 * number,
          .id = Key(7).fold(number).bits()};
}
bool is_made(const Recorder::Span& span, std::span<const std::string> texts) {
  return span.kind == static_cast<SpanKind>(span.number % 12) &&
         span.name == texts[span.number % texts.size()] && span.bytes == 3 * span.number &&
         span.id == Key(7).fold(span.number).bits() && (span.end == 0 || span.end >= span.begin);
}

}  // namespace

TEST_CASE("a track tells what its thread has done, and what it does", "[recorder]") {
  Recorder recorder(2);
  const auto track = recorder.take(1, "replica");
  const std::uint64_t before = recorder_now();
  const std::uint32_t name =
      track->name(5, [] { return std::string("psum over 'data' at model.cpp:44"); });
  {
    const RecordedSpan step(track.get(), {.kind = SpanKind::step, .id = 12});
    { const RecordedSpan inside(track.get(), {.kind = SpanKind::forward}); }
    const RecordedSpan call(track.get(),
                            {.kind = SpanKind::collective, .name = name, .bytes = 8, .id = 99});
    const auto spans = recorder.read(1, 0).spans;
    REQUIRE(numbers_of(spans) == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(spans[0].kind == SpanKind::step);
    CHECK(spans[0].id == 12);
    CHECK(spans[0].end == 0);
    CHECK(spans[1].kind == SpanKind::forward);
    CHECK(spans[1].name.empty());
    CHECK(spans[1].begin >= spans[0].begin);
    CHECK(spans[1].end >= spans[1].begin);
    CHECK(spans[2].name == "psum over 'data' at model.cpp:44");
    CHECK(spans[2].bytes == 8);
    CHECK(spans[2].id == 99);
    CHECK(spans[2].end == 0);
  }
  const Recorder::Recording ended = recorder.read(1, 0, 1);
  CHECK(ended.track == "replica");
  CHECK(ended.begun == 3);
  REQUIRE(numbers_of(ended.spans) == std::vector<std::uint64_t>{2, 3});
  CHECK(ended.spans[0].begin >= before);
  CHECK(ended.spans[1].end >= ended.spans[0].end);
  CHECK(ended.spans[1].end <= recorder_now());
  CHECK(recorder.read(1, 0, 3).spans.empty());
  CHECK(recorder.read(1, 0, 1000).spans.empty());
  CHECK(recorder.read(0, 0).begun == 0);
  CHECK(recorder.read(1, 1).track.empty());
  { const RecordedSpan none(nullptr, {.kind = SpanKind::data}); }
  CHECK(recorder.read(1, 0).begun == 3);
}

TEST_CASE("spans' kinds have names", "[recorder]") {
  CHECK(std::string(name_of(SpanKind::step)) == "step");
  CHECK(std::string(name_of(SpanKind::collective)) == "collective");
  CHECK(std::string(name_of(SpanKind::pause)) == "pause");
  CHECK(std::string(name_of(SpanKind::operation)) == "operation");
}

TEST_CASE("a ring keeps the last of its spans, at any number of them", "[recorder]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  std::uint64_t begun = 0;
  for (const std::uint64_t more :
       {std::uint64_t{1}, kSpans - 2, std::uint64_t{1}, std::uint64_t{1}, 2 * kSpans + 5}) {
    for (const std::uint64_t end = begun + more; begun < end; ++begun) {
      const RecordedSpan span(track.get(), made(begun + 1, std::array<std::uint32_t, 1>{}));
    }
    const Recorder::Recording recording = recorder.read(0, 0);
    CHECK(recording.begun == begun);
    REQUIRE(recording.spans.size() == std::min(begun, kSpans));
    CHECK(recording.spans.front().number == begun - recording.spans.size() + 1);
    CHECK(recording.spans.back().number == begun);
    CHECK(std::ranges::all_of(recording.spans, [](const Recorder::Span& span) {
      return is_made(span, std::array<std::string, 1>{}) && span.end != 0;
    }));
  }
}

TEST_CASE("a span that outlasts its place stands at its end once more", "[recorder]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  for (const std::uint64_t inside : {kSpans - 1, kSpans}) {
    const std::uint64_t number = recorder.read(0, 0).begun + 1;
    {
      const RecordedSpan lasting(track.get(), {.kind = SpanKind::evaluation, .id = 4});
      for (std::uint64_t i = 0; i < inside; ++i)
        const RecordedSpan span(track.get(), {.kind = SpanKind::data});
    }
    const auto spans = recorder.read(0, 0).spans;
    const auto found = std::ranges::find(spans, SpanKind::evaluation, &Recorder::Span::kind);
    REQUIRE(found != spans.end());
    CHECK(found->number == (inside < kSpans ? number : number + inside + 1));
    CHECK(found->id == 4);
    CHECK(found->begin <= spans.front().begin);
    CHECK(found->end >= spans.back().begin);
  }
}

TEST_CASE("readers get whole spans while their writer goes round the ring", "[recorder]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  const std::array<std::string, 3> texts{"a", std::string(127, 'b'), "psum at c.cpp:3"};
  std::vector<std::uint32_t> names;
  for (std::size_t i = 0; i < texts.size(); ++i)
    names.push_back(track->name(i, [&] { return texts[i]; }));
  constexpr int kReaders = 3;
  std::atomic<bool> is_over{false};
  std::array<std::uint64_t, kReaders> read{};
  std::atomic<int> damaged{0};
  std::vector<std::thread> readers;
  for (std::uint64_t& count : read) {
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      do {
        std::uint64_t number = last;
        for (const Recorder::Span& span : recorder.read(0, 0, last).spans) {
          if (!is_made(span, texts) || span.number <= number) ++damaged;
          number = span.number;
          ++count;
        }
        last = number;
      } while (!is_over);
    });
  }
  std::uint64_t number = 0;
  while (number < 20 * kSpans) {
    ++number;
    const RecordedSpan span(track.get(), made(number, names));
  }
  is_over = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(damaged == 0);
  for (const std::uint64_t count : read) CHECK(count > 0);
}

TEST_CASE("readers miss no span that is still there, also of those that end meanwhile",
          "[recorder]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    while (!is_over) {
      const RecordedSpan span(track.get(), {SpanKind::data});
      for (int i = 0; i < 20; ++i) static_cast<void>(recorder_now());
    }
  });
  std::uint64_t missed = 0;
  for (std::uint64_t last = 0; last < 20 * kSpans;) {
    const Recorder::Recording recording = recorder.read(0, 0, last);
    // The spans up to `gone` have been overwritten by now, or are being overwritten.
    const std::uint64_t begun = recorder.read(0, 0, ~std::uint64_t{0}).begun + 1;
    const std::uint64_t gone = std::max(last, begun - std::min(begun, kSpans));
    const auto numbers = numbers_of(recording.spans);
    for (std::uint64_t number = gone + 1; number <= recording.begun; ++number) {
      if (!std::ranges::binary_search(numbers, number)) ++missed;
    }
    last = recording.begun;
  }
  is_over = true;
  writer.join();
  CHECK(missed == 0);
}

TEST_CASE("what a killed process has recorded is still there", "[recorder]") {
  const Descriptor memory(comm::HostMemory::make_memory(1, 3));
  const auto recorder = comm::HostMemory(1, memory.get()).recorder();
  const testing::Ended end = testing::run_forked([&]() -> int {
    const auto own = comm::HostMemory(1, memory.get()).recorder();
    const auto track = own->take(2, "replica");
    const std::uint32_t name = track->name(1, [] { return std::string("pmean at b.cpp:2"); });
    { const RecordedSpan forward(track.get(), {.kind = SpanKind::forward}); }
    const RecordedSpan call(track.get(), {.kind = SpanKind::collective, .name = name, .id = 5});
    ::raise(SIGKILL);
    return 0;
  });
  CHECK(end.status == 128 + SIGKILL);
  const auto spans = recorder->read(2, 0).spans;
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].end != 0);
  CHECK(spans[1].name == "pmean at b.cpp:2");
  CHECK(spans[1].end == 0);
  CHECK(recorder->read(1, 0).begun == 0);
}

TEST_CASE("a process that the owner of a track forks records nothing", "[recorder]") {
  const Descriptor memory(comm::HostMemory::make_memory(1));
  const auto recorder = comm::HostMemory(1, memory.get()).recorder();
  auto track = recorder->take(0, "replica");
  { const RecordedSpan span(track.get(), {SpanKind::data}); }
  const auto named = [&](std::uint64_t key, const char* text) {
    return track->name(key, [&] { return std::string(text); });
  };
  const testing::Ended end = testing::run_forked([&] {
    static_cast<void>(named(1, "of the child"));
    { const RecordedSpan span(track.get(), {SpanKind::forward}); }
    track.reset();  // the track is still its owner's
    return recorder->take(0, "replica") != nullptr && recorder->read(0, 0).begun == 1 ? 0 : 1;
  });
  CHECK(end.status == 0);
  CHECK(recorder->read(0, 1).track == "replica");
  CHECK(named(2, "of the owner") == 1);
  { const RecordedSpan span(track.get(), {SpanKind::backward}); }
  CHECK(numbers_of(recorder->read(0, 0).spans) == std::vector<std::uint64_t>{1, 2});
  const auto beside = track->beside("reductions");
  CHECK(recorder->read(0, 2).track == "reductions");
}

TEST_CASE("a recorder and what else the memory of a host has do not overlap", "[recorder]") {
  const Descriptor descriptor(comm::HostMemory::make_memory(2, 5));
  const auto memory = std::make_shared<comm::HostMemory>(2, descriptor.get());
  const auto region = memory->hold(1, 2);
  const auto slot = memory->call_table()->take_slot(0, 1, 0, "0");
  const auto last = memory->recorder()->take(4, "replica");
  for (std::uint64_t i = 1; i <= kSpans; ++i) const RecordedSpan span(last.get(), {SpanKind::data});
  CHECK(memory->stop_signal().load() == 0);
  CHECK(region->line(0).round.value() == 0);
  CHECK(comm::HostMemory(2, descriptor.get()).recorder()->read(4, 0).spans.size() == kSpans);
  CHECK_THAT(testing::message_of<ValueError>([&] { (void)memory->recorder()->take(5, "replica"); }),
             ContainsSubstring("a recorder of 5 replicas has no track 0 of replica 5"));
}

TEST_CASE("memory in which anything may stand is read without harm", "[recorder]") {
  const std::size_t bytes = Recorder::bytes_for(1);
  const Descriptor memory(::memfd_create("recorder", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  Recorder recorder(1, memory.get(), 0);
  const auto track = recorder.take(0, "replica");
  for (int i = 0; i < 3; ++i) {
    const RecordedSpan span(track.get(), {SpanKind::data});
    static_cast<void>(
        track->name(static_cast<std::uint64_t>(i), [] { return std::string("x\n"); }));
  }
  CHECK(recorder.read(0, 0).spans.size() == 3);
  std::vector<std::uint64_t> words(bytes / sizeof(std::uint64_t));
  const Key key = Key(testing::seed()).fold("recorder");
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    // The words are all the same, random, random of fewer bits, or small.
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint64_t drawn = key.fold(turn).draw(i);
      words[i] = turn % 4 == 0   ? ~std::uint64_t{0} << (turn / 4)
                 : turn % 4 == 1 ? drawn
                 : turn % 4 == 2 ? drawn >> (drawn % 64)
                                 : drawn % 20;
    }
    REQUIRE(::pwrite(memory.get(), words.data(), bytes, 0) == static_cast<ssize_t>(bytes));
    for (std::size_t i = 0; i < Recorder::kTracks; ++i) {
      const Recorder::Recording recording = recorder.read(0, i);
      CHECK(recording.spans.size() <= kSpans);
      for (const Recorder::Span& span : recording.spans) {
        const bool is_sane = span.kind <= last_of(span.kind) && span.name.size() < 128 &&
                             span.begin > 0 && (span.end == 0 || span.end >= span.begin) &&
                             std::ranges::none_of(span.name, [](char c) { return c == '\n'; });
        if (!is_sane) FAIL("a span is not what one can be");
      }
    }
  }
}

TEST_CASE("names are kept once, for whoever has the track next, too", "[recorder]") {
  Recorder recorder(1);
  const std::string longest(400, 'l');
  const auto number_of = [](Recorder::Track& track, std::uint64_t key, const std::string& text) {
    return track.name(key, [&] { return text; });
  };
  {
    const auto track = recorder.take(0, "replica");
    CHECK(number_of(*track, 1, "first") == 1);
    CHECK(number_of(*track, 2, longest) == 2);
    CHECK(number_of(*track, 1, "asked for by its key alone") == 1);
    CHECK(number_of(*track, 3, "first") == 1);
  }
  const auto track = recorder.take(0, "replica");
  CHECK(number_of(*track, 7, longest) == 2);
  std::set<std::uint32_t> numbers;
  for (std::uint64_t i = 0; i < 3 * Recorder::kNames; ++i)
    numbers.insert(number_of(*track, 1000 + i, str("name ", i)));
  CHECK(numbers.size() == Recorder::kNames - 3);
  CHECK(*numbers.rbegin() == Recorder::kOthers);
  for (const std::uint32_t name : {0U, 2U, Recorder::kOthers - 1, Recorder::kOthers})
    const RecordedSpan span(track.get(), {.kind = SpanKind::collective, .name = name});
  const auto names = mapped(recorder.read(0, 0).spans, &Recorder::Span::name);
  CHECK(names == std::vector<std::string>{"", std::string(124, 'l') + "...",
                                          str("name ", Recorder::kNames - 5), "others"});
}

TEST_CASE("a track has one owner, and the next one finds its own", "[recorder]") {
  Recorder recorder(1);
  auto replica = recorder.take(0, "replica");
  auto reductions = recorder.take(0, "reductions");
  const auto name_of_track = [&](std::size_t track) { return recorder.read(0, track).track; };
  CHECK(name_of_track(0) == "replica");
  CHECK(name_of_track(1) == "reductions");
  { const RecordedSpan span(reductions.get(), {SpanKind::reduction}); }
  // A second track has that name at the same time.
  const auto second = recorder.take(0, "reductions");
  CHECK(name_of_track(2) == "reductions");
  std::vector<std::unique_ptr<Recorder::Track>> others;
  for (std::size_t i = 3; i + 2 < Recorder::kTracks; ++i)
    others.push_back(recorder.take(0, str("other ", i)));
  replica.reset();
  reductions.reset();
  // The track's spans stay, and their numbers go on.
  reductions = recorder.take(0, "reductions");
  { const RecordedSpan span(reductions.get(), {SpanKind::reduction}); }
  CHECK(numbers_of(recorder.read(0, 1).spans) == std::vector<std::uint64_t>{1, 2});
  const auto gathers = recorder.take(0, "gathers");
  CHECK(name_of_track(Recorder::kTracks - 2) == "gathers");
  CHECK(name_of_track(0) == "replica");
  // The last free track gets another name, and begins anew.
  const auto other = recorder.take(0, "other");
  REQUIRE(other != nullptr);
  CHECK(name_of_track(0) == "other");
  CHECK(recorder.take(0, "more") == nullptr);
  const auto launcher = recorder.take_launchers(0);
  REQUIRE(launcher != nullptr);
  CHECK(name_of_track(Recorder::kTracks - 1) == "launcher");
  CHECK(recorder.take_launchers(0) == nullptr);
  reductions.reset();
  const auto more = recorder.take(0, "more");
  CHECK(name_of_track(1) == "more");
  CHECK(recorder.read(0, 1).spans.empty());
  { const RecordedSpan span(more.get(), {SpanKind::gather}); }
  CHECK(numbers_of(recorder.read(0, 1).spans) == std::vector<std::uint64_t>{3});
}

TEST_CASE("of a loop that says when its steps end these are spans from end to end", "[recorder]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  const auto steps = [&] {
    auto spans = recorder.read(0, 0).spans;
    std::erase_if(spans, [](const auto& span) { return span.kind != SpanKind::step; });
    return spans;
  };
  CHECK(track->step() == 0);
  track->end_step(7);  // nobody knows when the step has begun
  CHECK(steps().empty());
  CHECK(track->step() == 8);
  CHECK(track->next_step() == 8);
  const std::uint64_t between = recorder_now();
  { const RecordedSpan span(track.get(), {SpanKind::forward}); }
  track->end_step(8);
  track->end_step(8);  // another trainer's
  track->end_step(3);  // a training that begins
  track->end_step(4);
  const auto spans = steps();
  CHECK(mapped(spans, &Recorder::Span::id) == std::vector<std::uint64_t>{8, 8, 4});
  CHECK(spans[0].begin <= between);
  CHECK(spans[0].end >= recorder.read(0, 0).spans[0].end);
  CHECK(spans[1].begin >= spans[0].end);
  {
    const RecordedSpan step(track.get(), {.kind = SpanKind::step, .id = 20});
    CHECK(track->step() == 20);
    track->end_step(20);
  }
  CHECK(steps().size() == 4);
  CHECK(track->next_step() == 21);
}

TEST_CASE("a span allocates nothing, nor does a name that is known", "[recorder]") {
  Recorder recorder(1);
  const auto track = recorder.take(0, "replica");
  const std::string text(100, 'n');
  static_cast<void>(track->name(1, [&] { return text; }));
  const std::uint64_t before = testing::allocated_bytes();
  for (std::uint64_t i = 0; i < 2 * kSpans; ++i) {
    const std::uint32_t name = track->name(1, [&] { return text; });
    const RecordedSpan span(track.get(), {.kind = SpanKind::collective, .name = name});
  }
  CHECK(testing::allocated_bytes() == before);
}
