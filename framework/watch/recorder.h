#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/non_copyable.h"
#include "framework/base/process.h"
#include "framework/base/record.h"
#include "framework/base/scoped_value.h"

namespace lockstep::watch {

/// What a replica does in a span of its time.
enum class SpanKind : std::uint8_t {
  step,        ///< a step of training, around the others
  data,        ///< waits for a batch
  forward,     ///< of a microbatch, with its loss
  backward,    ///< of a microbatch, with the reductions that go on in its thread
  reduction,   ///< of a bucket of gradients: the call, or the wait for it where it goes on beside
  collective,  ///< another call that a replica has announced, from its arrival to its end
  update,      ///< of parameters
  gather,      ///< of parameters that other replicas have updated, as a reduction
  evaluation,
  checkpoint,
  callback,  ///< a function of the program's own, by its name
  pause,     ///< its process was stopped
  transfer,  ///< bytes come from another host, whose number is the id
  operation  ///< an operator of LibTorch's
};
[[nodiscard]] const char* name_of(SpanKind kind) noexcept;
constexpr SpanKind last_of(SpanKind) noexcept {
  return SpanKind::operation;
}
/// Whether it is a call that has other replicas.
[[nodiscard]] constexpr bool is_call(SpanKind kind) noexcept {
  return kind == SpanKind::reduction || kind == SpanKind::collective || kind == SpanKind::gather;
}

/// True for what a run does between its steps.
[[nodiscard]] constexpr bool is_between_steps(SpanKind kind) noexcept {
  return kind == SpanKind::evaluation || kind == SpanKind::checkpoint;
}

/// Whether the id of such spans is a step's number.
[[nodiscard]] constexpr bool has_step(SpanKind kind) noexcept {
  return !is_call(kind) && kind != SpanKind::transfer;
}

/// The recorder's clock: this host's steady clock, in nanoseconds. Its processes share it.
[[nodiscard]] inline std::uint64_t recorder_now() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

struct TrackWords;

/// What the replicas of a job do, and when: the last kSpans spans of each track. A track is a
/// thread's part of a replica: its own, and those that reduce, gather or receive beside it. The
/// memory is a process' own or a part of the job's HostMemory: it outlives a replica that is
/// killed. A replica has 2.6 MiB of addresses, of which only used pages take memory.
///
/// How long a replica has waited for others in a call, and for whom, follows from all their spans
/// with its id: the last to begin is whom the others waited for (step_times.h).
///
/// Any thread of any process that shares the memory may read; a track has one writer. Readers trust
/// nothing that they read: a span that is being written, that was overwritten or that no writer can
/// have written is left out.
class Recorder {
 public:
  static constexpr std::uint64_t kSpans = 4096;
  static constexpr std::size_t kTracks = 8;     ///< of a replica; the last is its launcher's alone
  static constexpr std::uint32_t kNames = 512;  ///< of a track, from 1
  static constexpr std::uint32_t kOthers = kNames - 1;  ///< stands for all that come later

  class Track;
  /// A span as it is written: 64 bytes in all.
  struct Details {
    SpanKind kind;
    std::uint32_t name = 0;   ///< Track::name(); 0: none
    std::uint64_t bytes = 0;  ///< that it moves
    /// Of a call: equal on all its replicas and for all spans of it, and no other call's. Of
    /// another span the number of its step; 0 where its writer knows none. Of a transfer the host.
    std::uint64_t id = 0;
  };
  /// As it is read.
  struct Span {
    std::uint64_t number = 0;  ///< among its track's, from 1
    SpanKind kind = SpanKind::step;
    std::string name{};       ///< "psum over 'data' at model.cpp:44", printable
    std::uint64_t begin = 0;  ///< recorder_now() …
    std::uint64_t end = 0;    ///< … and then; 0: it goes on, or its writer was killed in it
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;
    LOCKSTEP_FIELDS(number, kind, name, begin, end, bytes, id)
  };
  struct Recording {
    std::string track;        ///< "replica", "reductions"; "" if nobody has used it
    std::uint64_t begun = 0;  ///< how many spans it ever had
    std::vector<Span> spans;  ///< by number
    LOCKSTEP_FIELDS(track, begun, spans)
  };

  /// Rings for `replicas` in this process' own memory.
  explicit Recorder(int replicas);
  /// In shared memory: the bytes_for(replicas) bytes behind `descriptor` from `offset` (whole
  /// pages) on, which must be there, and zero at first. The descriptor stays the caller's.
  Recorder(int replicas, int descriptor, std::size_t offset);
  /// Whole pages.
  [[nodiscard]] static std::size_t bytes_for(int replicas) noexcept;

  /// A free track of `replica` for one thread: the one that had this name (31 bytes at most)
  /// before, or another. nullptr if all are taken. The recorder may go before its tracks.
  /// ValueError if there is no such replica.
  [[nodiscard]] std::unique_ptr<Track> take(int replica, std::string_view name);
  /// The track "launcher", for what the replica's launcher sees of it; nullptr while it is taken.
  [[nodiscard]] std::unique_ptr<Track> take_launchers(int replica);

  /// Whether a reader wants the spans' names, which take most of its time.
  enum class Names { read, left_out };
  /// What is still there of a track's spans with numbers greater than `after`. Those that go on may
  /// be read again when they have ended, with the same number. A span that lasts until its place is
  /// another's stands at its end once more, with a new number.
  [[nodiscard]] Recording read(int replica, std::size_t track, std::uint64_t after = 0,
                               Names names = Names::read) const;

  [[nodiscard]] int replicas() const noexcept { return replicas_; }

 private:
  [[nodiscard]] TrackWords& words(int replica, std::size_t track) const;
  [[nodiscard]] std::unique_ptr<Track> take_track(int replica, std::size_t track,
                                                  std::string_view name);

  int replicas_;
  std::shared_ptr<std::byte> data_;
};

/// The writer of a track, free again when it is gone. One thread at a time; in a process that this
/// one forks it records nothing. Beginning and ending a span takes two readings of the clock and a
/// line of the cache: nothing is allocated or locked.
class Recorder::Track : private NonCopyable {
 public:
  /// Use Recorder::take().
  Track(const Recorder& recorder, int replica, std::size_t track, std::string_view name);
  ~Track();

  /// The rings that it is one of.
  [[nodiscard]] const Recorder& recorder() const noexcept { return recorder_; }
  /// Another track of the same replica: see take().
  [[nodiscard]] std::unique_ptr<Track> beside(std::string_view name) {
    return recorder_.take(replica_, name);
  }
  /// As Recorder::read().
  [[nodiscard]] Recording read(std::uint64_t after, Names names = Names::read) const {
    return recorder_.read(replica_, track_, after, names);
  }
  /// The same of another track of this replica; nothing if nobody has used one of this name.
  [[nodiscard]] Recording read_beside(std::string_view track, std::uint64_t after,
                                      Names names = Names::read) const;

  /// The number of `text`, which is put together only at the first time with this `key`: a hash of
  /// all that the text says. A text of more than 127 bytes is cut.
  template <typename Text>
  [[nodiscard]] std::uint32_t name(std::uint64_t key, const Text& text) {
    for (std::size_t i = key % kKnown;; i = (i + 1) % kKnown) {
      if (known_[i].key == key && known_[i].name != 0) return known_[i].name;
      if (known_[i].name != 0) continue;
      // A free place ends every search.
      return known_count_ + 1 < kKnown ? add_name(known_[i], key, text()) : kOthers;
    }
  }

  /// Returns the span's number; 0 if it is not recorded.
  [[nodiscard]] std::uint64_t begin(const Details& details, std::uint64_t at) noexcept;
  /// `details` and `began` are those of begin().
  void end(std::uint64_t number, const Details& details, std::uint64_t began) noexcept;
  /// A span that is over.
  void add(const Details& details, std::uint64_t began,
           std::uint64_t ended = recorder_now()) noexcept;

  /// Step `number` of a loop that has no spans of steps ends now. It has begun where the one before
  /// ended: of the first nobody knows that. Of several loops with steps in turns these have the
  /// parts of one. Within a span of a step this does nothing.
  void end_step(std::uint64_t number) noexcept;
  /// The number of the step that goes on, as spans or end_step() tell it; 0: nobody knows.
  [[nodiscard]] std::uint64_t step() const noexcept;
  /// That of the next one.
  [[nodiscard]] std::uint64_t next_step() const noexcept { return step_ + 1; }

 private:
  struct Known {
    std::uint64_t key = 0;
    std::uint32_t name = 0;  // 0: free
  };
  static constexpr std::size_t kKnown = 1024;
  std::uint32_t add_name(Known& known, std::uint64_t key, std::string_view text);
  void write(const Details& details, std::uint64_t began, std::uint64_t ended) noexcept;

  Recorder recorder_;
  int replica_;
  std::size_t track_;
  TrackWords& words_;
  std::uint64_t process_ = process_generation();
  std::uint64_t begun_;
  std::uint64_t step_ = 0;        // the last of which there is a span, or an end
  bool in_step_ = false;          // its span goes on
  std::uint64_t step_ended_ = 0;  // by end_step(), then
  std::size_t known_count_ = 0;
  std::array<Known, kKnown> known_{};
};

/// The track of what this thread does: a replica's; nullptr outside of jobs, and in threads of
/// maps.
inline constinit thread_local Recorder::Track* track_here = nullptr;

/// What kind of span the calls of this thread are.
inline constinit thread_local SpanKind call_kind_here = SpanKind::collective;

/// While this lives, the calls of this thread are reductions, or gathers.
class CallKindScope : ScopedValue<SpanKind> {
 public:
  explicit CallKindScope(SpanKind kind) noexcept : ScopedValue(call_kind_here, kind) {}
};

/// While this lives, what this thread does is recorded there.
class TrackScope : ScopedValue<Recorder::Track*> {
 public:
  explicit TrackScope(Recorder::Track* track) noexcept : ScopedValue(track_here, track) {}
};

/// A span of what the calling thread does while this lives. Without a track it is none.
class RecordedSpan : private NonCopyable {
 public:
  RecordedSpan(Recorder::Track* track, const Recorder::Details& details) noexcept
      : track_(track), details_(details) {
    if (track_ == nullptr) return;
    began_ = recorder_now();
    number_ = track_->begin(details_, began_);
  }
  ~RecordedSpan() {
    if (track_ != nullptr) track_->end(number_, details_, began_);
  }

 private:
  Recorder::Track* track_;
  Recorder::Details details_;
  std::uint64_t began_ = 0;
  std::uint64_t number_ = 0;
};

}  // namespace lockstep::watch
