#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/base/bytes.h"
#include "framework/base/descriptor.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/comm/link_speed.h"
#include "framework/comm/message_link.h"
#include "framework/timeline/recorder.h"

namespace lockstep::comm {

/// A thread's wait for its messages that are not done. The link's mutex guards it.
struct TcpWait {
  Condition changed;
  std::size_t pending = 0;
};

/// A message that a thread waits for. It meets the one with the same slot on the other side, in the
/// order in which both were posted. Its buffer is used from post() until it is done or withdrawn.
struct TcpMessage : PeerMessage {
  std::uint64_t group;
  std::uint64_t slot;
  TcpWait* wait;
  std::uint64_t id = 0;   ///< the receiver's number for a large message
  std::size_t moved = 0;  ///< bytes that have come or gone
  bool is_done = false;
};

/// The messages between this process and another one, and the TCP connection that carries them once
/// it is there. Messages can be posted before.
///
/// Small messages are sent at once, and kept by a receiver that has not posted yet. For a large one
/// the receiver says when it has posted; then its parts come, in turn with other messages. So no
/// message of a group holds up those of another for long.
///
/// All bytes that come are checked: a frame that breaks the rules ends the connection. No method
/// blocks. The caller has one mutex for all methods.
class TcpConnection : private NonCopyable {
 public:
  static constexpr std::size_t kLargestSmall = kSentAtOnce;
  static constexpr std::size_t kLargestPart = std::size_t{1} << 20;
  /// The most bytes kept of messages without a posted receive; with more, the socket is not read.
  static constexpr std::size_t kMostKept = std::size_t{16} << 20;

  /// Messages of `dead` groups are dropped when they come.
  explicit TcpConnection(const std::set<std::uint64_t>& dead) : dead_(dead) {}

  /// Records transfers from `host` from now on, on `track`, which is the receiving thread's. A
  /// transfer lasts while any large message is on its way, from its first byte on.
  void record(timeline::Recorder::Track* track, std::uint64_t host) {
    track_ = track;
    host_ = host;
  }

  /// Goes on over `socket`, which does not block. The end that has connected `begins`: the other
  /// one sends nothing before something has come.
  void open(Descriptor socket, bool begins);
  [[nodiscard]] bool is_open() const noexcept { return socket_.open(); }
  /// Ends the connection for good. Messages that are not done stay so.
  void lose(std::string why);
  /// Returns why the connection was lost; "" if it was not.
  [[nodiscard]] const std::string& why_lost() const noexcept { return why_lost_; }

  /// Posts `message`, which stays where it is until it is done or withdrawn.
  void post(TcpMessage& message);
  /// Withdraws `message`: its buffer is free afterwards. The connection stays of use for others.
  void withdraw(TcpMessage& message);
  /// Drops the messages that were kept for a group.
  void drop_kept(std::uint64_t group);

  /// Sends, or receives, as much as it can now; much data takes several calls.
  void send_some();
  void receive_some();
  /// Returns the events to poll for.
  [[nodiscard]] short polled() const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// Sends the frames that were queued, then ends. The other end finds all that was sent.
  void say_goodbye();

 private:
  enum class Kind : std::uint32_t { start, small, ready, part, withdrawn, goodbye };
  // The beginning of each frame. All hosts have the same order of bytes: a start shows that.
  struct Header {
    Kind kind{};
    std::uint32_t bytes = 0;  // that follow
    std::uint64_t slot = 0;
    std::uint64_t whole = 0;  // of the message
    std::uint64_t id = 0;
    std::uint64_t group = 0;
  };
  struct Frame {
    Header header;
    ConstBytes payload = {};
    TcpMessage* message = nullptr;  // whose payload it is
    std::size_t written = 0;
    std::vector<std::byte> own = {};  // the payload of a message that was withdrawn
  };
  struct Kept {
    std::uint64_t group;
    std::vector<std::byte> bytes;
  };
  struct Ready {
    std::uint64_t id;
    std::uint64_t bytes;
  };
  // Entries by slot; the entries of a slot stay in the order in which they came.
  template <typename T>
  using BySlot = std::multimap<std::uint64_t, T>;
  using Waiting = BySlot<TcpMessage*>;

  static Header header_of(Kind kind, const TcpMessage& message, std::size_t bytes = 0);
  static void finish(TcpMessage& message);
  // Returns the first entry of a slot, or the end.
  template <typename T>
  static auto first_of(BySlot<T>& waiting, std::uint64_t slot) {
    const auto first = waiting.lower_bound(slot);
    return first != waiting.end() && first->first == slot ? first : waiting.end();
  }

  void post_receive(TcpMessage& message);
  void post_send(TcpMessage& message);
  void queue(const Header& header) { out_.push_back({.header = header}); }
  void cut_off(const TcpMessage& message);
  bool next_frame();
  void frame_is_out();

  [[nodiscard]] bool is_full() const noexcept { return kept_bytes_ >= kMostKept && !is_ending_; }
  void consume(ConstBytes bytes);
  void payload_came(std::size_t bytes);
  void end_transfer(std::size_t bytes);
  // Each returns what is wrong, or nullptr.
  const char* begin_frame();
  const char* begin_small();
  const char* begin_part();
  const char* take_ready();
  void take_withdrawn();
  void keep();

  const std::set<std::uint64_t>& dead_;
  Descriptor socket_;
  std::string why_lost_;
  bool is_ending_ = false;

  // Going out.
  bool may_send_ = false;
  bool waits_to_send_ = false;
  std::deque<Frame> out_;
  std::optional<Frame> going_;       // in part
  Waiting large_;                    // messages without a ready receiver
  std::deque<TcpMessage*> flowing_;  // messages whose parts go out, in turn
  BySlot<Ready> ready_;              // receivers without a message here

  // Coming in.
  bool has_started_ = false;
  Header header_{};
  std::size_t header_bytes_ = 0;  // that have come
  std::size_t payload_left_ = 0;
  TcpMessage* coming_ = nullptr;                 // the message whose payload comes …
  std::optional<std::vector<std::byte>> early_;  // … or an early one; without both it is dropped
  std::size_t early_bytes_ = 0;
  Waiting small_;                                // posted, small
  std::map<std::uint64_t, TcpMessage*> posted_;  // posted, large, by their numbers
  std::uint64_t next_id_ = 1;
  timeline::Recorder::Track* track_ = nullptr;
  std::uint64_t host_ = 0;
  std::size_t transfers_ = 0;  // large messages of which a part has come
  timeline::Recorder::Details transfer_{.kind = timeline::SpanKind::transfer};
  std::uint64_t transfer_begin_ = 0;
  BySlot<Kept> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace lockstep::comm
