#include "framework/comm/gloo/link.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <sched.h>

#include "framework/base/errors.h"
#include "framework/base/process.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"

namespace lockstep {
namespace {

// How long an interrupted message stays for a peer that is about to post its side.
constexpr std::chrono::milliseconds kLinger{20};

// While it lives, threads that this one starts preempt nobody when they wake. Gloo's I/O thread
// must not take the core from a thread that is sending: it would spin for the lock which that one
// holds, until the system moves on, which is milliseconds later where replicas outnumber cores.
class WithoutPreemption {
 public:
  WithoutPreemption() : policy_(::sched_getscheduler(0)) {
    if (policy_ == SCHED_OTHER) set(SCHED_BATCH);
  }
  ~WithoutPreemption() {
    if (policy_ == SCHED_OTHER) set(policy_);
  }
  WithoutPreemption(const WithoutPreemption&) = delete;
  WithoutPreemption& operator=(const WithoutPreemption&) = delete;

 private:
  // Slower where it is not allowed, and no worse.
  static void set(int policy) {
    const sched_param none{};
    static_cast<void>(::sched_setscheduler(0, policy, &none));
  }
  int policy_;
};

// The tag of a message that nobody sends.
constexpr std::uint64_t kNeverSent = 0x6c6f737420706565;
constexpr std::chrono::hours kForever{24 * 365};
// How often the clock is looked at.
constexpr std::chrono::milliseconds kLookAround{50};

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
struct GlooLink::Message {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  const User* user;
  int peer;
  bool is_received;
  std::size_t bytes;
  std::optional<Waited> waited = {};  // once someone waits for it; guarded, as is the next
  bool late = false;

  [[nodiscard]] bool wait(std::chrono::milliseconds limit) const {
    return is_received ? buffer->waitRecv(limit) : buffer->waitSend(limit);
  }
  void end() const {
    buffer->abortWaitRecv();
    buffer->abortWaitSend();
  }
};

GlooLink::GlooLink(std::shared_ptr<Store> store, int rank, int size, const ConnectOptions& options)
    : rank_(rank), size_(size), timeout_(options.timeout) {
  if (size == 1) return;
  prepare_process();  // Gloo writes without MSG_NOSIGNAL
  try {
    connect(*store, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(
        str("replica ", rank, " could not connect on ", options.address, ": ", error.what()));
  }
  watcher_ = std::thread([this] { watch(); });
  clock_ = std::thread([this] { look_at_the_clock(); });
}

GlooLink::~GlooLink() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (watched_ != nullptr) watched_->abortWaitRecv();
  }
  closing_changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  if (clock_.joinable()) clock_.join();
}

// Every pair has an address of its own, which the other end must know: each replica publishes one
// an other replica, then connects to all.
void GlooLink::connect(Store& store, const ConnectOptions& options) {
  {
    const WithoutPreemption for_its_thread;
    device_ = gloo::transport::tcp::CreateDevice(options.address.c_str());
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
  // Gloo's connect waits for the peer and cannot be interrupted. So nobody returns, and fails
  // perhaps, before all have connected: a failure would end those who still look for addresses, and
  // leave who waits for one of them waiting until the timeout.
  store.set(connected_key(rank_), "");
  for (int peer = 0; peer < size_; ++peer)
    (void)store.get(connected_key(peer), options.connect_timeout);
}

// Where a connection ends, Gloo tells those whose messages have not begun, and forgets the one that
// is half read or half written: who waits for that would wait in vain. So one message from every
// peer never begins, and whoever waits for these tells all others.
void GlooLink::watch() {
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) peers.push_back(peer);
  }
  for (;;) {
    std::byte nothing{};
    const auto message = context_->createUnboundBuffer(&nothing, sizeof nothing);
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
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
      // Which one it was shows when the next message is to come from it.
    }
    const std::lock_guard lock(mutex_);
    watched_ = nullptr;
    if (closing) return;
  }
}

void GlooLink::look_at_the_clock() {
  std::unique_lock lock(mutex_);
  while (!closing_changed_.wait_for(lock, kLookAround, [&] { return closing_; })) {
    end_messages([&](Message& message) {
      if (message.late || !message.waited || message.waited->look() < timeout_) return false;
      message.late = true;
      return true;
    });
  }
}

template <typename Which>
void GlooLink::end_messages(const Which& which) {
  for (Message* message : in_flight_) {
    if (which(*message)) message->end();
  }
}

void GlooLink::lose(int peer, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  lost_[peer] = reason;
  end_messages([&](const Message& message) { return message.peer == peer; });
}

bool GlooLink::has_lost(int peer) {
  const std::lock_guard lock(mutex_);
  return lost_.count(peer) > 0;
}

void GlooLink::throw_if_ended(const User& user) const {
  if (user.error) std::rethrow_exception(user.error);
  if (aborted_) throw Aborted(abort_reason_);
}

template <typename Step>
void GlooLink::guarded(const Message& message, const Step& step) {
  std::string what;
  try {
    if (step()) return;
    what = "interrupted";
  } catch (const std::exception& error) {
    what = error.what();
  }
  const int peer = message.peer;
  const std::lock_guard lock(mutex_);
  throw_if_ended(*message.user);
  if (const auto lost = lost_.find(peer); lost != lost_.end()) what = lost->second;
  // The clock may have ended another message between the two.
  const bool is_late = std::ranges::any_of(in_flight_, [&](const Message* other) {
    return other->user == message.user && other->peer == peer && other->late;
  });
  if (is_late) {
    throw Timeout(str("replica ", rank_, " waited ", timeout_.count(), " ms to ",
                      message.is_received ? "receive from" : "send to", " replica ", peer,
                      ", which did not arrive"));
  }
  throw ReplicaLost(
      str("replica ", rank_, " lost its connection to replica ", peer, " (", what, ")"));
}

void GlooLink::check(const User& user) {
  const std::lock_guard lock(mutex_);
  throw_if_ended(user);
}

void GlooLink::exchange(const User& user, std::uint64_t tag, std::span<const Outgoing> outgoing,
                        std::span<const Incoming> incoming) {
  check(user);
  std::vector<Message> messages;
  messages.reserve(incoming.size() + outgoing.size());  // they stay where they are
  const auto add = [&](int peer, void* data, std::size_t bytes, bool is_received) {
    if (bytes == 0) return;
    auto buffer = context_->createUnboundBuffer(data, bytes);
    messages.push_back({std::move(buffer), &user, peer, is_received, bytes});
  };
  for (const Incoming& message : incoming) {
    add(message.peer, message.data.data(), message.data.size(), true);
  }
  for (const Outgoing& message : outgoing) {
    // Gloo takes a pointer to mutable bytes for both directions; a send only reads.
    add(message.peer, const_cast<std::byte*>(message.data.data()), message.data.size(), false);
  }
  if (messages.empty()) return;

  struct InFlight {
    GlooLink& link;
    const User& user;
    ~InFlight() {
      const std::lock_guard lock(link.mutex_);
      std::erase_if(link.in_flight_, [&](const Message* other) { return other->user == &user; });
    }
  } const in_flight{*this, user};
  for (Message& message : messages) {
    {
      const std::lock_guard lock(mutex_);
      throw_if_ended(user);
      in_flight_.push_back(&message);
    }
    const std::uint64_t slot = slot_of(tag, message.bytes);
    guarded(message, [&] {
      message.is_received ? message.buffer->recv(message.peer, slot)
                          : message.buffer->send(message.peer, slot);
      return true;
    });
    if (!message.is_received) ledger_.bytes_sent += message.bytes;
  }
  ++ledger_.rounds;
  try {
    for (Message& message : messages) {
      {
        const std::lock_guard lock(mutex_);
        message.waited.emplace();
      }
      // A message that was there before its peer was lost counts, though its wait was ended, too.
      // Where it was not, Gloo takes this for a timeout and ends the link's other connections.
      constexpr std::chrono::milliseconds kAlready{0};
      guarded(message, [&] {
        return message.wait(kForever) || (has_lost(message.peer) && message.wait(kAlready));
      });
    }
  } catch (...) {
    // A peer that was about to post its side must still find ours: where Gloo finds that a buffer
    // has gone, nothing moves on that connection ever again.
    std::unique_lock lock(mutex_);
    const bool is_interrupted = user.error && !aborted_;
    lock.unlock();
    if (is_interrupted) std::this_thread::sleep_for(kLinger);
    throw;
  }
}

void GlooLink::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  abort_reason_ = reason;
  end_messages([](const Message&) { return true; });
}

void GlooLink::interrupt(User& user, const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (user.error) return;
  user.error = error;
  end_messages([&](const Message& message) { return message.user == &user; });
}

}  // namespace lockstep
