#include "framework/comm/network/tcp_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/mutex.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/comm/network/connect.h"
#include "framework/comm/network/listener.h"
#include "framework/comm/network/tcp_connection.h"
#include "framework/comm/network_communicator.h"

namespace lockstep::comm {
namespace {

using SteadyClock = std::chrono::steady_clock;

// The time between two looks of a waiting thread: at the clock, and for the link's end.
constexpr std::chrono::milliseconds kLook{50};
// The time to ask the store for one of several addresses, and to try a host that may be away.
constexpr std::chrono::milliseconds kAsk{20};
constexpr std::chrono::milliseconds kTry{1000};
// The time that an end that has greeted has to say which replica it is.
constexpr std::chrono::milliseconds kHelloPatience{5000};
constexpr std::size_t kMostArrivals = 256;
// The longest wait for the others to take a goodbye.
constexpr std::chrono::milliseconds kLeave{1000};

// After the greeting the connector says which replica it is; these answers say if this is the
// connection. If both sides connect at once, the connection of the higher rank counts.
constexpr std::string_view kWelcome = "welcome";
constexpr std::string_view kAwaitMine = "await mine";

std::string address_of(int rank) {
  return str("address/", rank);
}

std::string hello_of(int rank, std::size_t size) {
  return str("replica ", rank, " of ", size);
}

}  // namespace

// Messages over TCP connections. Each connection is made by the side that first posts a message for
// it; the processes find each other through a store.
//
// One thread accepts, sends and receives. So messages move while callers compute, and strangers are
// dealt with. Another thread connects.
class TcpLink final : public MessageLink {
 public:
  // Publishes "address/<rank>" in the store, as process `rank` of `size`. With one process there
  // are no threads and no address. Throws CommError if the address is not one of this host.
  TcpLink(std::shared_ptr<Store> store, int rank, int size, const NetworkOptions& network,
          const ConnectOptions& options, const TransferRecord& record)
      : store_(std::move(store)),
        rank_(rank),
        network_(network),
        options_(options),
        track_(record.track) {
    for (int peer = 0; peer < size; ++peer) peers_.push_back(std::make_unique<Peer>(dead_));
    for (std::size_t peer = 0; track_ != nullptr && peer < peers_.size(); ++peer) {
      peers_[peer]->connection.record(track_.get(),
                                      static_cast<std::uint64_t>(record.host_of.at(peer)));
    }
    if (size == 1) return;
    wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    require_done<CommError>(wake_.open(), "cannot make an eventfd");
    listener_.emplace(HostAndPort{network.address, 0}, network.secret, network.job,
                      Listener::Limits{});
    store_->set(address_of(rank), HostAndPort{network.address, listener_->port()}.text());
    io_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    connector_ = std::jthread([this](const std::stop_token& stop) { connect_wanted(stop); });
  }

  // Says goodbye to the others. Nobody may be in exchange().
  ~TcpLink() override {
    io_.request_stop();
    wake_io();
  }

  // Throws Timeout if no byte of these messages has moved for the timeout. Time in which a replica
  // has not published its address yet counts towards connect_timeout alone. When this has thrown,
  // the group is dead: messages that still come for it are dropped.
  void exchange(const MessageGroup& group, const Key& tag,
                std::span<const PeerMessage> wanted) override {
    const Cancellation& user = group.user;
    user.check();
    if (wanted.empty()) return;
    TcpWait wait;
    wait.pending = wanted.size();
    std::deque<TcpMessage> messages;
    for (const PeerMessage& each : wanted) {
      // Messages of different sizes never meet: replicas that are out of step wait instead of
      // reading each other's bytes as something else.
      messages.push_back({each, group.key.bits(), tag.fold(each.bytes()).bits(), &wait});
    }
    Turn turn(*this);
    // Receives come first: a message that arrives early finds its buffer.
    const auto post = [&](bool receives) LOCKSTEP_REQUIRES(mutex_) {
      for (TcpMessage& message : messages) {
        if (message.is_received() != receives) continue;
        Peer& peer = *peers_[static_cast<std::size_t>(message.peer)];
        if (peer.state == Peer::State::unknown) want(message.peer);
        const short before = peer.connection.polled();
        peer.connection.post(message);
        note_loss(peer);
        if ((peer.connection.polled() & ~before) != 0) wake_io();
        if (!receives) ledger_.bytes_sent += message.bytes();
      }
    };
    waits_.insert(&wait);
    try {
      user.check();
      post(true);
      post(false);
      ++ledger_.rounds;
      wait_for(user, messages, wait, turn);
    } catch (...) {
      waits_.erase(&wait);
      for (TcpMessage& message : messages) {
        Peer& peer = *peers_[static_cast<std::size_t>(message.peer)];
        if (!message.is_done) peer.connection.withdraw(message);
        note_loss(peer);
      }
      drop(group.key.bits());
      throw;
    }
    waits_.erase(&wait);
  }

  void begin(const MessageGroup& group) override {
    const Turn turn(*this);
    dead_.erase(group.key.bits());
  }

  // Drops messages that still come for the group: nobody will want them.
  void end(const MessageGroup& group) noexcept override {
    const Turn turn(*this);
    drop(group.key.bits());
    wake_waits();
  }

  void end_all() noexcept override {
    const Turn turn(*this);
    wake_waits();
  }

 private:
  struct Peer {
    enum class State { unknown, wanted, connecting, awaited, open, lost };

    explicit Peer(const std::set<std::uint64_t>& dead) : connection(dead) {}

    State state = State::unknown;
    bool is_there = false;           // has published its address
    std::string address = {};        // once the connector knows it
    SteadyClock::time_point wanted;  // the time since which it is wanted
    std::exception_ptr error;        // why there is no connection
    TcpConnection connection;
  };

  // An end that has proved the secret, and has not yet said which replica it is.
  struct Arrival {
    std::unique_ptr<Link> link;
    SteadyClock::time_point deadline;
  };

  // The callers' lock: the thread that sends and receives lets them in between.
  class LOCKSTEP_SCOPED_LOCK Turn : public MutexLock {
   public:
    explicit Turn(TcpLink& link) LOCKSTEP_ACQUIRE(link.mutex_)
        : MutexLock((++link.callers_, link.mutex_)) {
      --link.callers_;
    }
    ~Turn() LOCKSTEP_RELEASE() = default;
  };

  // Notes that the connection has ended, if it has, whoever has seen it first.
  void note_loss(Peer& peer) LOCKSTEP_REQUIRES(mutex_) {
    if (peer.state != Peer::State::open || peer.connection.is_open()) return;
    peer.state = Peer::State::lost;
    --ledger_.connections;
    wake_waits();
  }

  void wait_for(const Cancellation& user, const std::deque<TcpMessage>& messages, TcpWait& wait,
                MutexLock& lock) LOCKSTEP_REQUIRES(mutex_) {
    std::optional<Waited> waited;
    std::size_t last = 0;
    while (wait.pending > 0) {
      user.check();
      std::size_t moved = 0;
      bool all_are_there = true;
      const TcpMessage* first = nullptr;
      for (const TcpMessage& message : messages) {
        moved += message.moved;
        if (message.is_done) continue;
        const Peer& peer = *peers_[static_cast<std::size_t>(message.peer)];
        if (peer.error) std::rethrow_exception(peer.error);
        if (peer.state == Peer::State::lost) {
          throw ReplicaLost(str("replica ", rank_, " lost its connection to replica ", message.peer,
                                " (", peer.connection.why_lost(), ")"));
        }
        all_are_there = all_are_there && peer.is_there;
        if (first == nullptr) first = &message;
      }
      if (!waited || !all_are_there || moved != last) waited.emplace();
      last = moved;
      require<Timeout>(waited->look() < options_.timeout, "replica ", rank_, " waited ",
                       options_.timeout.count(), " ms to ",
                       first->is_received() ? "receive from" : "send to", " replica ", first->peer,
                       ", which did not arrive");
      wait.changed.wait_for(lock, kLook);
    }
  }

  void wake_waits() LOCKSTEP_REQUIRES(mutex_) {
    for (TcpWait* wait : waits_) wait->changed.notify_all();
  }

  void wake_io() noexcept {
    const std::uint64_t one = 1;
    if (wake_.open()) (void)!::write(wake_.get(), &one, sizeof one);
  }

  void drop(std::uint64_t group) LOCKSTEP_REQUIRES(mutex_) {
    dead_.insert(group);
    for (const auto& peer : peers_) peer->connection.drop_kept(group);
    wake_io();  // the thread may have stopped reading
  }

  // Asks for a connection.
  void want(int peer) LOCKSTEP_REQUIRES(mutex_) {
    Peer& at = *peers_[static_cast<std::size_t>(peer)];
    at.state = Peer::State::wanted;
    at.wanted = SteadyClock::now();
    wanted_.push_back(peer);
    wanted_changed_.notify_all();
  }

  void open(int peer, Descriptor socket, bool begins) LOCKSTEP_REQUIRES(mutex_) {
    Peer& at = *peers_[static_cast<std::size_t>(peer)];
    // No TCP_USER_TIMEOUT: it would also end a connection to a process that is only paused.
    keep_alive(socket.get(), options_.timeout.count() / 1000);
    at.state = Peer::State::open;
    at.is_there = true;
    ++ledger_.connections;
    at.connection.open(std::move(socket), begins);
    note_loss(at);
    wake_io();
  }

  // Runs the thread that sends and receives.
  void run(const std::stop_token& stop) {
    PollSet polled;  // kept for its memory
    bool has_arrivals = false;
    const auto note_arrival = [&](short) { has_arrivals = true; };
    while (!stop.stop_requested()) {
      polled.clear();
      has_arrivals = false;
      polled.add(wake_.get(), [&](short) {
        std::uint64_t count = 0;
        (void)!::read(wake_.get(), &count, sizeof count);
      });
      listener_->add_to(polled, note_arrival);
      for (const Arrival& arrival : arrivals_) polled.add(arrival.link->polled(), note_arrival);
      while (callers_ > 0) std::this_thread::yield();
      {
        const MutexLock lock(mutex_);
        for (const auto& peer : peers_) {
          const TcpConnection& connection = peer->connection;
          polled.add({connection.descriptor(), connection.polled(), 0},
                     [this, &at = *peer](short events) { serve(at, events); });
        }
      }
      const auto when = arrivals_.empty() ? listener_->when() : std::min(listener_->when(), kLook);
      polled.wait(when);
      if (has_arrivals || when != std::chrono::milliseconds::max()) accept();
    }
    take_leave();
  }

  void accept() {
    for (auto& link : listener_->progress()) {
      if (arrivals_.size() == kMostArrivals) arrivals_.erase(arrivals_.begin());
      arrivals_.push_back({std::move(link), SteadyClock::now() + kHelloPatience});
    }
    std::erase_if(arrivals_, [&](Arrival& arrival) {
      Link& link = *arrival.link;
      link.progress();
      const auto hello = link.receive();
      if (!hello) return !link.is_open() || SteadyClock::now() >= arrival.deadline;
      int peer = -1;
      const MutexLock lock(mutex_);
      const std::string answer = answer_to(*hello, peer);
      link.send(answer);
      if (answer != kWelcome) {
        link.progress();
        return true;
      }
      // progress() would read on, but the bytes after the answer are not for the link.
      if (Descriptor socket = link.release(); socket.open()) {
        open(peer, std::move(socket), /*begins=*/false);
      }
      return true;
    });
  }

  // Returns the answer to a hello. Sets `peer` if it is welcome.
  [[nodiscard]] std::string answer_to(const std::string& hello, int& peer)
      LOCKSTEP_REQUIRES(mutex_) {
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      const int other = static_cast<int>(rank);
      if (other == rank_ || hello != hello_of(other, peers_.size())) continue;
      const Peer::State state = peers_[rank]->state;
      if (state == Peer::State::open) return "it has a connection already";
      if (state == Peer::State::lost) return "it has lost this replica before";
      if (state == Peer::State::connecting && rank_ > other) return std::string(kAwaitMine);
      peer = other;
      return std::string(kWelcome);
    }
    return str("it is replica ", rank_, " of ", peers_.size(), ", and this is ", cut(hello));
  }

  void serve(Peer& peer, short events) {
    while (callers_ > 0) std::this_thread::yield();
    const MutexLock lock(mutex_);
    TcpConnection& connection = peer.connection;
    connection.receive_some();
    connection.send_some();
    if ((events & (POLLERR | POLLHUP)) != 0 && (connection.polled() & POLLIN) == 0) {
      connection.lose("it has ended");
    }
    note_loss(peer);
  }

  // Says goodbye, and waits a moment until the others have taken what was sent: a connection that
  // is closed while bytes come loses what was sent.
  void take_leave() {
    listener_.reset();
    arrivals_.clear();
    const MutexLock lock(mutex_);
    for (const auto& peer : peers_) {
      if (peer->connection.is_open()) peer->connection.say_goodbye();
    }
    const auto deadline = SteadyClock::now() + kLeave;
    while (SteadyClock::now() < deadline) {
      PollSet polled;
      for (const auto& peer : peers_) {
        const TcpConnection& connection = peer->connection;
        polled.add({connection.descriptor(), connection.polled(), 0});
      }
      if (polled.is_empty()) return;
      polled.wait(kLook);
      for (const auto& peer : peers_) {
        peer->connection.receive_some();
        peer->connection.send_some();
      }
    }
  }

  // Runs the thread that connects.
  void connect_wanted(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      int peer = 0;
      {
        MutexLock lock(mutex_);
        if (!wanted_changed_.wait(lock, stop,
                                  [&]() LOCKSTEP_REQUIRES(mutex_) { return !wanted_.empty(); }))
          return;
        peer = wanted_.front();
        wanted_.pop_front();
      }
      try {
        connect_to(peer, stop);
      } catch (...) {
        const MutexLock lock(mutex_);
        Peer& at = *peers_[static_cast<std::size_t>(peer)];
        if (at.state == Peer::State::open || at.state == Peer::State::lost) continue;
        at.error = std::current_exception();
        at.state = Peer::State::lost;
        at.connection.lose("there is none");
        wake_waits();
      }
    }
  }

  // Tries once. A peer that is not found goes to the end of the queue, so that nobody waits for it.
  void connect_to(int peer, const std::stop_token& stop) {
    Peer& at = *peers_[static_cast<std::size_t>(peer)];
    const auto begun = SteadyClock::now();
    const auto again = [&](const char* why, std::chrono::milliseconds longest) {
      const MutexLock lock(mutex_);
      // A try ends by itself within `longest`: for the rest of its time this process was paused.
      const auto paused = std::max(SteadyClock::now() - begun - longest, SteadyClock::duration{});
      for (const auto& each : peers_) each->wanted += paused;
      require<Timeout>(SteadyClock::now() - at.wanted < options_.connect_timeout, "replica ", rank_,
                       " could not connect to replica ", peer, " within ",
                       options_.connect_timeout.count(), " ms: ", why);
      wanted_.push_back(peer);
    };
    if (at.address.empty()) {
      try {
        at.address = store_->get(address_of(peer), std::min(kAsk, options_.connect_timeout));
      } catch (const Timeout&) {
        return again("it has not published its address", kAsk);
      }
    }
    {
      const MutexLock lock(mutex_);
      at.is_there = true;
      if (at.state != Peer::State::wanted && at.state != Peer::State::connecting) return;
      at.state = Peer::State::connecting;
    }
    try {
      const auto link = connect(HostAndPort::parse(at.address), network_.secret,
                                std::min(kTry, options_.connect_timeout), network_.job);
      const std::string answer = ask(*link, stop);
      const MutexLock lock(mutex_);
      if (at.state != Peer::State::connecting) return;  // the other side was faster
      if (answer == kAwaitMine) {
        at.state = Peer::State::awaited;
        return;
      }
      if (answer != kWelcome) throw ReplicaLost(answer);
      Descriptor socket = link->release();
      if (!socket.open()) throw ReplicaLost(link->why_closed());
      open(peer, std::move(socket), /*begins=*/true);
    } catch (const Timeout& error) {
      again(error.what(), kAsk + kTry);
    } catch (const ReplicaLost& error) {
      throw ReplicaLost(str("replica ", rank_, " lost its connection to replica ", peer, " (",
                            error.what(), ")"));
    } catch (const CommError& error) {
      throw CommError(
          str("replica ", rank_, " cannot connect to replica ", peer, ": ", error.what()));
    }
  }

  // Returns the other end's answer to this connection.
  [[nodiscard]] std::string ask(Link& link, const std::stop_token& stop) const {
    link.send(hello_of(rank_, peers_.size()));
    Waited waited;
    while (waited.look() < options_.connect_timeout && !stop.stop_requested()) {
      link.progress();
      if (auto answer = link.receive()) return *answer;
      if (!link.is_open()) throw ReplicaLost(link.why_closed());
      lockstep::wait_for(link.polled(), kLook);
    }
    throw Timeout("it does not answer");
  }

  const std::shared_ptr<Store> store_;
  const int rank_;
  const NetworkOptions network_;
  const ConnectOptions options_;
  const std::shared_ptr<timeline::Recorder::Track> track_;  // of the thread that receives

  // Only the thread that sends and receives uses these.
  std::optional<Listener> listener_;
  std::vector<Arrival> arrivals_;

  Descriptor wake_;  // an eventfd
  std::atomic<int> callers_{0};

  Mutex mutex_;
  std::set<std::uint64_t> dead_ LOCKSTEP_GUARDED_BY(mutex_);
  // Peers by rank. The list stays as it is; the mutex guards all of a Peer but its address.
  std::vector<std::unique_ptr<Peer>> peers_;
  std::set<TcpWait*> waits_ LOCKSTEP_GUARDED_BY(mutex_);
  // The peers to connect to.
  std::deque<int> wanted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::condition_variable_any wanted_changed_;

  std::jthread io_;
  std::jthread connector_;  // ends before the other
};

std::shared_ptr<Communicator> connect_tcp(std::shared_ptr<Store> store, int rank, int size,
                                          const NetworkOptions& network,
                                          const ConnectOptions& options,
                                          const TransferRecord& record) {
  require(rank >= 0 && rank < size, "connect_tcp: rank ", rank, " is not in a group of ", size);
  auto link = std::make_shared<TcpLink>(std::move(store), rank, size, network, options, record);
  return std::make_shared<NetworkCommunicator>(std::move(link), consecutive(0, size), rank, 0);
}

}  // namespace lockstep::comm
