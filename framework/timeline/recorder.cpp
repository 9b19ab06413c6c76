#include "framework/timeline/recorder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "framework/base/pages.h"
#include "framework/base/text.h"
#include "framework/base/word.h"

namespace lockstep::timeline {
namespace {

constexpr std::array kKinds{"step",       "data",   "forward",  "backward",   "reduction",
                            "collective", "update", "gather",   "evaluation", "checkpoint",
                            "callback",   "pause",  "transfer", "operation"};

constexpr std::size_t kNameWords = 16;

// A span's word `what` has its kind below, and its name above.
constexpr int kKindBits = 8;
constexpr std::uint64_t kKindMask = (1U << kKindBits) - 1;

// A span's stamp is odd while the span is written, then twice the span's number.
constexpr std::uint64_t stamp_of(std::uint64_t number) {
  return 2 * number;
}

}  // namespace

/// A span in the ring, at its number modulo kSpans.
struct alignas(64) SpanWords {
  Word stamp;
  Word begin;
  Word end;
  Word what;
  Word bytes;
  Word id;
};

struct TrackWords {
  Word taken;
  Word name[4];
  Word first;  ///< the number before the first span of the owner with this name
  Word begun;
  Word names_used;  ///< used names never change
  alignas(kPage) Word names[Recorder::kNames][kNameWords];
  SpanWords spans[Recorder::kSpans];

  [[nodiscard]] SpanWords& span(std::uint64_t number) noexcept {
    return spans[number % Recorder::kSpans];
  }
};
static_assert(sizeof(TrackWords) % kPage == 0);

namespace {

// Replaces control characters: another process may have written the text in any way.
std::string printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return text;
}

// Number 0 is no name's.
std::string name_at(const TrackWords& track, std::uint64_t number) {
  if (number == Recorder::kOthers) return "others";
  const bool is_known = number > 0 && number <= track.names_used.load();
  return is_known ? printable(read_text(track.names[number])) : "";
}

// Reads a span. Returns false unless it is still there, and a writer can have written it.
bool read_span(TrackWords& track, std::uint64_t number, Recorder::Names names,
               Recorder::Span& span) {
  const SpanWords& words = track.span(number);
  const std::uint64_t stamp = words.stamp.load();
  span.number = number;
  span.begin = words.begin.load();
  span.end = words.end.load();
  span.bytes = words.bytes.load();
  span.id = words.id.load();
  const std::uint64_t what = words.what.load();
  if (stamp != stamp_of(number) || words.stamp.load() != stamp) return false;
  const std::uint64_t now = recorder_now();  // read last: the span may have ended just now
  const std::uint64_t kind = what & kKindMask;
  const std::uint64_t name = what >> kKindBits;
  const bool has_ended = span.end != 0;
  if (kind >= kKinds.size() || name >= Recorder::kNames || span.begin == 0 || span.begin > now ||
      (has_ended && (span.end < span.begin || span.end > now))) {
    return false;
  }
  span.kind = static_cast<SpanKind>(kind);
  if (names == Recorder::Names::read) span.name = name_at(track, name);
  return true;
}

}  // namespace

const char* name_of(SpanKind kind) noexcept {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::size_t Recorder::bytes_for(int replicas) noexcept {
  return static_cast<std::size_t>(replicas) * kTracks * sizeof(TrackWords);
}

Recorder::Recorder(int replicas) : replicas_(replicas), data_(map_private(bytes_for(replicas))) {}

Recorder::Recorder(int replicas, int descriptor, std::size_t offset)
    : replicas_(replicas), data_(map_shared(descriptor, offset, bytes_for(replicas))) {}

TrackWords& Recorder::words(int replica, std::size_t track) const {
  require(replica >= 0 && replica < replicas_ && track < kTracks, "a recorder of ", replicas_,
          " replicas has no track ", track, " of replica ", replica);
  auto* const tracks = reinterpret_cast<TrackWords*>(data_.get());
  return tracks[static_cast<std::size_t>(replica) * kTracks + track];
}

std::unique_ptr<Recorder::Track> Recorder::take(int replica, std::string_view name) {
  // Prefers the track that had this name, then one without a name.
  for (int tries = 0; tries < 3; ++tries) {
    for (std::size_t track = 0; track + 1 < kTracks; ++track) {
      const std::string its = read_text(words(replica, track).name);
      if (tries < 2 && its != (tries == 0 ? name : "")) continue;
      if (auto taken = take_track(replica, track, name)) return taken;
    }
  }
  return nullptr;
}

std::unique_ptr<Recorder::Track> Recorder::take_launchers(int replica) {
  return take_track(replica, kTracks - 1, "launcher");
}

std::unique_ptr<Recorder::Track> Recorder::take_track(int replica, std::size_t track,
                                                      std::string_view name) {
  const bool is_free = words(replica, track).taken.replace(0, 1);
  return is_free ? std::make_unique<Track>(*this, replica, track, name) : nullptr;
}

Recorder::Recording Recorder::read(int replica, std::size_t track, std::uint64_t after,
                                   Names names) const {
  TrackWords& words = this->words(replica, track);
  Recording recording{
      .track = printable(read_text(words.name)), .begun = words.begun.load(), .spans = {}};
  const std::uint64_t overwritten = recording.begun - std::min(recording.begun, kSpans);
  after = std::max({after, overwritten, words.first.load()});
  // At most kSpans spans are there, whatever was written.
  for (std::uint64_t left = recording.begun - std::min(recording.begun, after); left > 0; --left) {
    Span span;
    if (read_span(words, recording.begun - left + 1, names, span)) recording.spans.push_back(span);
  }
  return recording;
}

Recorder::Track::Track(const Recorder& recorder, int replica, std::size_t track,
                       std::string_view name)
    : recorder_(recorder),
      replica_(replica),
      track_(track),
      words_(recorder.words(replica, track)),
      begun_(words_.begun.load()) {
  if (read_text(words_.name) == name) return;
  words_.first.store(begun_);
  write_text(words_.name, name);
}

Recorder::Track::~Track() {
  if (process_ == process_generation()) words_.taken.store(0);
}

Recorder::Recording Recorder::Track::read_beside(std::string_view track, std::uint64_t after,
                                                 Names names) const {
  for (std::size_t other = 0; other < kTracks; ++other) {
    if (read_text(recorder_.words(replica_, other).name) != track) continue;
    return recorder_.read(replica_, other, after, names);
  }
  return {};
}

std::uint32_t Recorder::Track::add_name(Known& known, std::uint64_t key, std::string_view text) {
  if (process_ != process_generation()) return kOthers;
  std::array<Word, kNameWords> words{};
  write_text(words, text);
  const std::string kept = read_text(words);
  const std::uint64_t used = words_.names_used.load();
  std::uint32_t name = 1;
  // The owner before this one may have added the name.
  while (name <= used && name < kOthers && read_text(words_.names[name]) != kept) ++name;
  if (name > used && name < kOthers) {
    write_text(words_.names[name], text);
    words_.names_used.store(name);
  }
  ++known_count_;
  known = {key, name};
  return name;
}

std::uint64_t Recorder::Track::begin(const Details& details, std::uint64_t at) noexcept {
  if (process_ != process_generation()) return 0;
  write(details, at, 0);
  if (details.kind == SpanKind::step) {
    step_ = details.id;
    in_step_ = true;
  }
  return begun_;
}

void Recorder::Track::end(std::uint64_t number, const Details& details,
                          std::uint64_t began) noexcept {
  if (number == 0) return;
  if (details.kind == SpanKind::step) in_step_ = false;
  const std::uint64_t now = recorder_now();
  if (begun_ - number < kSpans) {
    words_.span(number).end.store(now);
  } else {
    write(details, began, now);
  }
}

void Recorder::Track::add(const Details& details, std::uint64_t began,
                          std::uint64_t ended) noexcept {
  if (process_ == process_generation()) write(details, began, ended);
}

void Recorder::Track::end_step(std::uint64_t number) noexcept {
  if (in_step_) return;
  const bool follows = number == step_ + 1 || number == step_;  // the same: another trainer's
  if (step_ended_ != 0 && follows) add({.kind = SpanKind::step, .id = number}, step_ended_);
  step_ended_ = recorder_now();
  step_ = number;
}

std::uint64_t Recorder::Track::step() const noexcept {
  if (in_step_) return step_;
  return step_ended_ != 0 ? step_ + 1 : 0;
}

void Recorder::Track::write(const Details& details, std::uint64_t began,
                            std::uint64_t ended) noexcept {
  const std::uint64_t number = ++begun_;
  SpanWords& words = words_.span(number);
  words.stamp.store(stamp_of(number) - 1);
  words.begin.store(began);
  words.end.store(ended);
  words.what.store(static_cast<std::uint64_t>(details.kind) | std::uint64_t{details.name}
                                                                  << kKindBits);
  words.bytes.store(details.bytes);
  words.id.store(details.id);
  words.stamp.store(stamp_of(number));
  words_.begun.store(number);
}

}  // namespace lockstep::timeline
