#include "tests/comm/replicas.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/descriptor.h"
#include "framework/base/poll_set.h"
#include "framework/base/socket.h"
#include "framework/base/text.h"
#include "framework/comm/host_members.h"
#include "framework/comm/memory_store.h"
#include "framework/comm/shared/shared_communicator.h"
#include "framework/comm/socket_store.h"
#include "tests/comm/words.h"

namespace lockstep::testing {

namespace {

// The part of a store whose keys begin with `prefix`, which it hides: the store of one host.
class PrefixedStore final : public comm::Store {
 public:
  PrefixedStore(std::shared_ptr<comm::Store> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::string& value) override {
    store_->set(prefix_ + key, value);
  }
  [[nodiscard]] std::string get(const std::string& key,
                                std::chrono::milliseconds timeout) override {
    return store_->get(prefix_ + key, timeout);
  }

 private:
  std::shared_ptr<comm::Store> store_;
  std::string prefix_;
};

// The way in which a test's replicas connect. It is there before they are.
class Connections {
 public:
  Connections(Backend backend, std::vector<int> host_of)
      : backend_(backend), host_of_(std::move(host_of)) {
    for (const int host : host_of_) {
      const auto here = static_cast<int>(std::ranges::count(host_of_, host));
      if (memories_.count(host) == 0) memories_[host] = make_host_memory(here);
    }
  }

  [[nodiscard]] int replicas() const { return static_cast<int>(host_of_.size()); }

  [[nodiscard]] std::shared_ptr<comm::Communicator> connect(
      const std::shared_ptr<comm::Store>& store, int rank,
      const comm::ConnectOptions& options) const {
    if (backend_ == Backend::gloo) return comm::connect_gloo(store, rank, replicas(), options);
    if (backend_ == Backend::tcp) {
      return comm::connect_tcp(store, rank, replicas(), network(), options);
    }
    const int host = host_of_[static_cast<std::size_t>(rank)];
    const auto here = static_cast<int>(std::ranges::count(host_of_, host));
    const auto before = static_cast<int>(std::ranges::find(host_of_, host) - host_of_.begin());
    auto local = comm::connect_shared(
        memories_.at(host), std::make_shared<PrefixedStore>(store, str("host/", host, "/")),
        rank - before, here, options);
    if (backend_ == Backend::shared) return local;
    return comm::join_hosts(
        std::move(local), comm::connect_tcp(store, rank, replicas(), network(), options), host_of_);
  }

 private:
  Backend backend_;
  std::vector<int> host_of_;
  std::map<int, std::shared_ptr<comm::HostMemory>> memories_;
};

std::vector<int> hosts_for(Backend backend, int replicas) {
  if (backend == Backend::hosts) return usual_hosts(replicas);
  return std::vector<int>(static_cast<std::size_t>(replicas), 0);
}

}  // namespace

const char* name_of(Backend backend) {
  switch (backend) {
    case Backend::gloo:
      return "gloo";
    case Backend::tcp:
      return "tcp";
    case Backend::shared:
      return "shared";
    case Backend::hosts:
      return "hosts";
  }
  return "";
}

comm::NetworkOptions network() {
  return {.address = "127.0.0.1", .secret = comm::Secret({std::byte{1}}), .job = {std::byte{2}}};
}

// Returns two or three equal hosts, or unequal ones.
std::vector<int> usual_hosts(int replicas) {
  const std::map<int, std::vector<int>> some{{3, {0, 0, 1}},
                                             {4, {0, 0, 1, 1}},
                                             {5, {0, 1, 1, 1, 2}},
                                             {6, {0, 0, 1, 1, 2, 2}},
                                             {8, {0, 0, 0, 0, 1, 1, 1, 1}},
                                             {9, {0, 0, 0, 1, 1, 2, 2, 2, 2}}};
  if (const auto known = some.find(replicas); known != some.end()) return known->second;
  return everyone(replicas);
}

std::shared_ptr<comm::HostMemory> make_host_memory(int members) {
  const int descriptor = comm::HostMemory::make_memory(members);
  auto memory = std::make_shared<comm::HostMemory>(members, descriptor);
  ::close(descriptor);
  return memory;
}

namespace {

void run_in_threads(const Connections& connections, const ReplicaFunction& body,
                    const comm::ConnectOptions& options) {
  const int replicas = connections.replicas();
  const auto store = std::make_shared<comm::MemoryStore>();
  std::vector<std::shared_ptr<comm::Communicator>> communicators(
      static_cast<std::size_t>(replicas));
  std::mutex mutex;
  std::exception_ptr first;
  const auto fail = [&](std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (first) return;
    first = std::move(error);
    store->abort("another replica failed");
    for (const auto& communicator : communicators) {
      if (communicator) communicator->abort("another replica failed");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < replicas; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        auto communicator = connections.connect(store, rank, options);
        {
          const std::lock_guard lock(mutex);
          if (first) return;
          communicators[static_cast<std::size_t>(rank)] = communicator;
        }
        body(*communicator);
      } catch (...) {
        fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// Runs the child's whole life. Its error goes to `report`, so that the parent's test can show it.
[[noreturn]] void replica_process(const Connections& connections, int rank, int socket, int report,
                                  const ReplicaFunction& body,
                                  const comm::ConnectOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    auto communicator =
        connections.connect(std::make_shared<comm::SocketStore>(Descriptor(socket)), rank, options);
    body(*communicator);
    communicator->barrier();
  } catch (const std::exception& error) {
    const std::string text = str("replica ", rank, ": ", error.what());
    status = ::write(report, text.data(), text.size()) < 0 ? 2 : 1;
  }
  ::_exit(status);
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[512];
  for (ssize_t count = 0; (count = ::read(descriptor, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

void run_in_processes(const Connections& connections, const ReplicaFunction& body,
                      const comm::ConnectOptions& options) {
  std::vector<Descriptor> sockets;
  std::vector<pid_t> children;
  int report[2];
  if (::pipe(report) != 0) throw std::runtime_error("pipe");
  for (int rank = 0; rank < connections.replicas(); ++rank) {
    auto [ours, theirs] = make_socket_pair();
    const pid_t child = ::fork();
    if (child == 0) {
      sockets.clear();
      ours.close();
      replica_process(connections, rank, theirs.release(), report[1], body, options);
    }
    sockets.push_back(std::move(ours));
    children.push_back(child);
  }
  ::close(report[1]);

  comm::StoreServer server;
  while (std::ranges::any_of(sockets, &Descriptor::open)) {
    PollSet polled;
    for (Descriptor& socket : sockets) {
      polled.add(socket.get(), [&](short) {
        if (!server.answer(socket.get())) socket.close();
      });
    }
    polled.wait(std::chrono::milliseconds::max());
  }
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failed = failed || status != 0;
  }
  const std::string text = read_all(report[0]);
  ::close(report[0]);
  if (failed) throw std::runtime_error(text.empty() ? "a replica's process died" : text);
}

}  // namespace

void in_threads(Backend backend, int replicas, const ReplicaFunction& body,
                const comm::ConnectOptions& options) {
  run_in_threads({backend, hosts_for(backend, replicas)}, body, options);
}

void in_threads_on(const std::vector<int>& host_of, const ReplicaFunction& body,
                   const comm::ConnectOptions& options) {
  run_in_threads({Backend::hosts, host_of}, body, options);
}

void in_processes(Backend backend, int replicas, const ReplicaFunction& body,
                  const comm::ConnectOptions& options) {
  run_in_processes({backend, hosts_for(backend, replicas)}, body, options);
}

void in_processes_on(const std::vector<int>& host_of, const ReplicaFunction& body,
                     const comm::ConnectOptions& options) {
  run_in_processes({Backend::hosts, host_of}, body, options);
}

}  // namespace lockstep::testing
