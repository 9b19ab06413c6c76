#include "framework/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include "framework/base/errors.h"
#include "framework/base/mutex.h"
#include "framework/base/non_copyable.h"
#include "framework/base/process.h"
#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/comm/cancellation.h"
#include "framework/comm/network_communicator.h"

namespace lockstep::comm {
namespace {

// The time that an interrupted message stays for a peer that is about to post its side.
constexpr std::chrono::milliseconds kLinger{20};
// The tag of a message that nobody sends.
constexpr std::uint64_t kNeverSent = 0x6c6f737420706565;
constexpr std::chrono::hours kForever{24 * 365};
// The address of connections; the port is any that is free.
constexpr const char* kAddress = "127.0.0.1";
// The time between two looks at the clock.
constexpr std::chrono::milliseconds kLookAround{50};

// While it lives, threads that this one starts preempt nobody when they wake. Gloo's I/O thread
// must not take the core from a thread that is sending: it would spin for that thread's lock until
// the system moves on, which is milliseconds later where replicas outnumber cores.
class WithoutPreemption : private NonCopyable {
 public:
  WithoutPreemption() : policy_(::sched_getscheduler(0)) {
    if (policy_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~WithoutPreemption() {
    if (policy_ == SCHED_OTHER) set(policy_);
  }

 private:
  // A system that does not allow it is slower, and no worse.
  static void set(int policy) {
    const sched_param none{};
    static_cast<void>(::sched_setscheduler(0, policy, &none));
  }
  int policy_;
};

std::string address_key(int from, int to) {
  return str("address/", from, "/", to);
}

std::string connected_key(int rank) {
  return str("connected/", rank);
}

// Messages of different sizes never meet: replicas that are out of step wait instead of reading
// each other's bytes as something else.
std::uint64_t slot_of(std::uint64_t tag, std::size_t bytes) {
  return (tag ^ (static_cast<std::uint64_t>(bytes) * 0x9e3779b97f4a7c15U)) * 0xff51afd7ed558ccdU;
}

}  // namespace

// One message under way: its buffer is in use until this is gone.
struct GlooMessage : PeerMessage {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  const Cancellation* user;
  std::optional<Waited> waited = {};  // since its thread began to wait; guarded by the link's mutex
  bool late = false;                  // guarded by the link's mutex

  [[nodiscard]] bool wait(std::chrono::milliseconds limit) const {
    return is_received() ? buffer->waitRecv(limit) : buffer->waitSend(limit);
  }
  void end() const {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
};

// Messages over Gloo's transport: a full mesh of pairs that found each other through a store. A
// group is known by its user's Cancellation.
class GlooLink final : public MessageLink {
 public:
  GlooLink(Store& store, int rank, int size, const ConnectOptions& options)
      : rank_(rank), size_(size), timeout_(options.timeout) {
    if (size == 1) return;
    prepare_process();  // Gloo writes without MSG_NOSIGNAL
    try {
      connect(store, options);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw CommError(
          str("replica ", rank, " could not connect on ", kAddress, ": ", error.what()));
    }
    watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    clock_ = std::jthread([this](const std::stop_token& stop) { look_at_the_clock(stop); });
  }
  ~GlooLink() override {
    watcher_.request_stop();
    const MutexLock lock(mutex_);
    if (watched_ != nullptr) watched_->abortWaitRecv();
  }

  void exchange(const MessageGroup& group, const Key& tag,
                std::span<const PeerMessage> wanted) override {
    const Cancellation& user = group.user;
    user.check();
    if (wanted.empty()) return;
    std::vector<GlooMessage> messages;
    for (const PeerMessage& each : wanted) {
      // Gloo takes a pointer to mutable bytes for both directions; a send only reads.
      std::byte* const data =
          each.is_received() ? each.received.data() : const_cast<std::byte*>(each.sent.data());
      messages.push_back({each, context_->createUnboundBuffer(data, each.bytes()), &user});
    }
    // Receives come first: a message that arrives early finds its buffer.
    std::ranges::stable_partition(messages, &GlooMessage::is_received);
    struct InFlight {
      GlooLink& link;
      const Cancellation& user;
      ~InFlight() {
        const MutexLock lock(link.mutex_);
        std::erase_if(link.in_flight_,
                      [&](const GlooMessage* other) { return other->user == &user; });
      }
    } const in_flight{*this, user};
    for (GlooMessage& message : messages) {
      {
        const MutexLock lock(mutex_);
        user.check();
        in_flight_.push_back(&message);
      }
      const std::uint64_t slot = slot_of(tag.bits(), message.bytes());
      guarded(message, [&] {
        message.is_received() ? message.buffer->recv(message.peer, slot)
                              : message.buffer->send(message.peer, slot);
        return true;
      });
      if (!message.is_received()) ledger_.bytes_sent += message.bytes();
    }
    ++ledger_.rounds;
    try {
      for (GlooMessage& message : messages) {
        {
          const MutexLock lock(mutex_);
          message.waited.emplace();
        }
        // A message that was there before its peer was lost counts, though its wait was ended, too.
        // For any other, Gloo takes this for a timeout and ends the link's other connections.
        constexpr std::chrono::milliseconds kAlready{0};
        guarded(message, [&] {
          return message.wait(kForever) || (has_lost(message.peer) && message.wait(kAlready));
        });
      }
    } catch (...) {
      // A peer that was about to post its side must still find ours: if Gloo finds that a buffer
      // has gone, nothing moves on that connection ever again.
      const bool is_interrupted = user.error() && !cancellation()->is_cancelled();
      if (is_interrupted) std::this_thread::sleep_for(kLinger);
      throw;
    }
  }

  // A message that is posted more than a moment after its peer was interrupted may break the
  // connection. Callers avoid that by CallTable::published.
  void end(const MessageGroup& group) noexcept override {
    const MutexLock lock(mutex_);
    end_messages([&](const GlooMessage& message) { return message.user == &group.user; });
  }
  void end_all() noexcept override {
    const MutexLock lock(mutex_);
    end_messages([](const GlooMessage&) { return true; });
  }

 private:
  // Every pair has an address of its own, which the other end must know. Each replica publishes an
  // address for each other replica, then connects to all.
  void connect(Store& store, const ConnectOptions& options) {
    {
      const WithoutPreemption for_its_thread;
      device_ = gloo::transport::tcp::CreateDevice(kAddress);
    }
    context_ = device_->createContext(rank_, size_);
    context_->setTimeout(options.connect_timeout);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const auto& pair = context_->createPair(peer);
      pair->setLocalRank(rank_);
      const std::vector<char> address = pair->address().bytes();
      store.set(address_key(rank_, peer), std::string(address.begin(), address.end()));
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const std::string address = store.get(address_key(peer, rank_), options.connect_timeout);
      context_->getPair(peer)->connect(std::vector<char>(address.begin(), address.end()));
    }
    // Gloo's connect waits for the peer and cannot be interrupted. So no replica returns, and fails
    // perhaps, before all have connected: a failure would end replicas that still look for
    // addresses, and a replica that waits for one of these would wait until the timeout.
    store.set(connected_key(rank_), "");
    for (int peer = 0; peer < size_; ++peer)
      (void)store.get(connected_key(peer), options.connect_timeout);
  }

  // If a connection ends, Gloo tells the waiters of messages that have not begun. It forgets a
  // message that is half read or half written: its waiter would wait in vain. So one message from
  // every peer never begins, and the thread that waits for these tells all other waiters.
  void watch(const std::stop_token& stop) {
    std::vector<int> peers = consecutive(0, size_);
    std::erase(peers, rank_);
    for (;;) {
      std::byte nothing{};
      const auto message = context_->createUnboundBuffer(&nothing, sizeof nothing);
      {
        const MutexLock lock(mutex_);
        if (stop.stop_requested()) return;
        watched_ = message.get();
      }
      std::erase_if(peers, [&](int peer) {
        try {
          message->recv(peer, kNeverSent);
          return false;
        } catch (const std::exception& error) {
          lose(peer, error.what());
          return true;
        }
      });
      bool closing = false;
      try {
        closing = !message->waitRecv(kForever);
      } catch (const std::exception&) {
        // The next recv() from the lost peer throws, and so shows which one it is.
      }
      const MutexLock lock(mutex_);
      watched_ = nullptr;
      if (closing) return;
    }
  }

  // Ends messages that take longer than the timeout: Gloo's own would count pauses of the process.
  void look_at_the_clock(const std::stop_token& stop) {
    while (!stopped_within(kLookAround, stop)) {
      const MutexLock lock(mutex_);
      end_messages([&](GlooMessage& message) {
        if (message.late || !message.waited || message.waited->look() < timeout_) return false;
        message.late = true;
        return true;
      });
    }
  }

  // Ends the messages under way that `which` picks.
  template <typename Which>
  void end_messages(const Which& which) LOCKSTEP_REQUIRES(mutex_) {
    for (GlooMessage* message : in_flight_) {
      if (which(*message)) message->end();
    }
  }

  // Notes that the connection to `peer` has ended, and ends the messages under way on it.
  void lose(int peer, const std::string& reason) {
    const MutexLock lock(mutex_);
    lost_[peer] = reason;
    end_messages([&](const GlooMessage& message) { return message.peer == peer; });
  }

  bool has_lost(int peer) {
    const MutexLock lock(mutex_);
    return lost_.count(peer) > 0;
  }

  // Runs `step` of a message's transfer; a failure becomes an error of ours.
  template <typename Step>
  void guarded(const GlooMessage& message, const Step& step) {
    std::string what;
    try {
      if (step()) return;
      what = "interrupted";
    } catch (const std::exception& error) {
      what = error.what();
    }
    const int peer = message.peer;
    const MutexLock lock(mutex_);
    message.user->check();
    if (const auto lost = lost_.find(peer); lost != lost_.end()) what = lost->second;
    // The clock may have ended another message between the two replicas.
    const bool is_late = std::ranges::any_of(in_flight_, [&](const GlooMessage* other) {
      return other->user == message.user && other->peer == peer && other->late;
    });
    require<Timeout>(!is_late, "replica ", rank_, " waited ", timeout_.count(), " ms to ",
                     message.is_received() ? "receive from" : "send to", " replica ", peer,
                     ", which did not arrive");
    throw ReplicaLost(
        str("replica ", rank_, " lost its connection to replica ", peer, " (", what, ")"));
  }

  int rank_;
  int size_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;

  Mutex mutex_;
  std::vector<GlooMessage*> in_flight_ LOCKSTEP_GUARDED_BY(mutex_);
  // The lost peers, each with Gloo's reason.
  std::map<int, std::string> lost_ LOCKSTEP_GUARDED_BY(mutex_);
  // The message that the watcher waits for.
  gloo::transport::UnboundBuffer* watched_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  std::jthread watcher_;  // both end before the rest
  std::jthread clock_;
};

std::shared_ptr<Communicator> connect_gloo(std::shared_ptr<Store> store, int rank, int size,
                                           const ConnectOptions& options) {
  require(rank >= 0 && rank < size, "connect_gloo: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<GlooLink>(*store, rank, size, options);
  return std::make_shared<NetworkCommunicator>(std::move(link), consecutive(0, size), rank, 0);
}

}  // namespace lockstep::comm
