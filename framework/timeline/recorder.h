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

namespace lockstep::timeline {

/// A kind of work in a span of a replica's time.
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
/// True for the calls in which other replicas take part.
[[nodiscard]] constexpr bool is_call(SpanKind kind) noexcept {
  return kind == SpanKind::reduction || kind == SpanKind::collective || kind == SpanKind::gather;
}

/// True for the work of a run between its steps.
[[nodiscard]] constexpr bool is_between_steps(SpanKind kind) noexcept {
  return kind == SpanKind::evaluation || kind == SpanKind::checkpoint;
}

/// True for spans whose id is a step's number.
[[nodiscard]] constexpr bool has_step(SpanKind kind) noexcept {
  return !is_call(kind) && kind != SpanKind::transfer;
}

/// Returns nanoseconds of the recorder's clock: the host's steady one, which its processes share.
[[nodiscard]] inline std::uint64_t recorder_now() noexcept {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

struct TrackWords;

/// A record of the work of a job's replicas, and its times: the last kSpans spans of each track. A
/// track is a thread's part of a replica: its own, and those that reduce, gather or receive beside
/// it. The memory is a process' own or a part of the job's HostMemory: it outlives a replica that
/// is killed. A replica has 2.5 MiB of addresses, but only used pages take memory.
///
/// All spans with a call's id tell how long a replica has waited for others in the call, and for
/// whom: the others wait for the last replica to begin its span (step_times.h).
///
/// Any thread of any process that shares the memory may read; a track has one writer. Readers trust
/// nothing that they read: they leave out a span that is being written, that was overwritten or
/// that no writer can have written.
class Recorder {
 public:
  static constexpr std::uint64_t kSpans = 4096;
  static constexpr std::size_t kTracks = 8;     ///< of a replica; the last is its launcher's alone
  static constexpr std::uint32_t kNames = 512;  ///< of a track, from 1
  static constexpr std::uint32_t kOthers = kNames - 1;  ///< stands for all that come later

  class Track;
  /// A span as a track writes it: 64 bytes in all.
  struct Details {
    SpanKind kind;
    std::uint32_t name = 0;   ///< Track::name(); 0: none
    std::uint64_t bytes = 0;  ///< that the span moves
    /// A call's id is the same in its spans on all replicas, and no other call's. A transfer's is
    /// the other host, another span's the number of its step; 0 if its writer knows none.
    std::uint64_t id = 0;
  };
  /// A span as readers get it.
  struct Span {
    std::uint64_t number = 0;  ///< among its track's, from 1
    SpanKind kind = SpanKind::step;
    std::string name{};       ///< "psum over 'data' at model.cpp:44", printable
    std::uint64_t begin = 0;  ///< recorder_now() …
    std::uint64_t end = 0;    ///< … and at the end; 0: it goes on, or its writer was killed in it
    std::uint64_t bytes = 0;
    std::uint64_t id = 0;
    LOCKSTEP_FIELDS(number, kind, name, begin, end, bytes, id)
  };
  struct Recording {
    std::string track;        ///< "replica", "reductions"; "" if nobody has used it
    std::uint64_t begun = 0;  ///< how many spans the track ever had
    std::vector<Span> spans;  ///< by number
    LOCKSTEP_FIELDS(track, begun, spans)
  };

  /// Makes rings for `replicas` in this process' own memory.
  explicit Recorder(int replicas);
  /// Makes rings in shared memory, in the bytes_for(replicas) bytes behind `descriptor` from
  /// `offset` (whole pages) on, which must exist, zero at first. The descriptor stays the caller's.
  Recorder(int replicas, int descriptor, std::size_t offset);
  /// Returns the bytes of `replicas`: whole pages.
  [[nodiscard]] static std::size_t bytes_for(int replicas) noexcept;

  /// Takes a free track of `replica` for one thread: the one that had this name (31 bytes at most)
  /// before, or another. Returns nullptr if all are taken. Throws ValueError if there is no such
  /// replica. The recorder may go before its tracks.
  [[nodiscard]] std::unique_ptr<Track> take(int replica, std::string_view name);
  /// Takes the track "launcher", which the replica's launcher writes; nullptr while it is taken.
  [[nodiscard]] std::unique_ptr<Track> take_launchers(int replica);

  /// A reader's choice to get the spans' names, which take most of its time.
  enum class Names { read, left_out };
  /// Returns the spans of a track that are still there and have numbers greater than `after`. A
  /// span that goes on may be read again, with the same number, when it has ended. A span that was
  /// overwritten while it lasted is written again when it ends, with a new number.
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

/// The writer of a track, which is free again when the writer is gone. One thread at a time may use
/// it; in a process that this one forks, it records nothing. A begin and an end of a span take two
/// readings of the clock and a line of the cache: nothing is allocated or locked.
class Recorder::Track : private NonCopyable {
 public:
  /// Use Recorder::take().
  Track(const Recorder& recorder, int replica, std::size_t track, std::string_view name);
  ~Track();

  /// Returns the recorder that has this track.
  [[nodiscard]] const Recorder& recorder() const noexcept { return recorder_; }
  /// Takes another track of the same replica: see Recorder::take().
  [[nodiscard]] std::unique_ptr<Track> beside(std::string_view name) {
    return recorder_.take(replica_, name);
  }
  /// Reads this track as Recorder::read() does.
  [[nodiscard]] Recording read(std::uint64_t after, Names names = Names::read) const {
    return recorder_.read(replica_, track_, after, names);
  }
  /// Reads another track of this replica; returns nothing if nobody has used one of this name.
  [[nodiscard]] Recording read_beside(std::string_view track, std::uint64_t after,
                                      Names names = Names::read) const;

  /// Returns the number of a name. `text` is called only at the first time with this `key`: a hash
  /// of all that the name says. A name of more than 127 bytes is cut.
  template <typename Text>
  [[nodiscard]] std::uint32_t name(std::uint64_t key, const Text& text) {
    for (std::size_t i = key % kKnown;; i = (i + 1) % kKnown) {
      if (known_[i].key == key && known_[i].name != 0) return known_[i].name;
      if (known_[i].name != 0) continue;
      // One place stays free: it ends every search.
      return known_count_ + 1 < kKnown ? add_name(known_[i], key, text()) : kOthers;
    }
  }

  /// Begins a span at the time `at`. Returns its number; 0 if it is not recorded.
  [[nodiscard]] std::uint64_t begin(const Details& details, std::uint64_t at) noexcept;
  /// Ends a span. `details` and `began` are those of begin().
  void end(std::uint64_t number, const Details& details, std::uint64_t began) noexcept;
  /// Adds a span that is over.
  void add(const Details& details, std::uint64_t began,
           std::uint64_t ended = recorder_now()) noexcept;

  /// Ends step `number` of a loop that has no spans of steps. The step began where the one before
  /// ended: the first one has no span, since nobody knows its begin. If two loops call this in
  /// turns, their steps mix: let one of them call it. Within a span of a step this does nothing.
  void end_step(std::uint64_t number) noexcept;
  /// Returns the number of the step that goes on, by spans or end_step(); 0 if nobody knows it.
  [[nodiscard]] std::uint64_t step() const noexcept;
  /// Returns the number after the last step that has a span, or an end.
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
  std::uint64_t step_ = 0;        // the last step that has a span, or an end
  bool in_step_ = false;          // while that span goes on
  std::uint64_t step_ended_ = 0;  // when end_step() was last called
  std::size_t known_count_ = 0;
  std::array<Known, kKnown> known_{};
};

/// The replica's track in which this thread records; nullptr outside of jobs, and in threads of
/// maps.
inline constinit thread_local Recorder::Track* track_here = nullptr;

/// The kind of the spans of this thread's calls.
inline constinit thread_local SpanKind call_kind_here = SpanKind::collective;

/// A scope in which this thread's calls are reductions, or gathers.
class CallKindScope : ScopedValue<SpanKind> {
 public:
  explicit CallKindScope(SpanKind kind) noexcept : ScopedValue(call_kind_here, kind) {}
};

/// A scope in which this thread records in `track`.
class TrackScope : ScopedValue<Recorder::Track*> {
 public:
  explicit TrackScope(Recorder::Track* track) noexcept : ScopedValue(track_here, track) {}
};

/// A span of the calling thread while this object lives. Without a track nothing is recorded.
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

}  // namespace lockstep::timeline
