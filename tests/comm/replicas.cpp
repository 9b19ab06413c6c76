#include "tests/comm/replicas.h"

#include <csignal>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/text.h"
#include "framework/comm/shared/shared_communicator.h"
#include "framework/comm/store.h"

namespace lockstep::testing {

const char* name_of(Backend backend) {
  return backend == Backend::gloo ? "gloo" : "shared";
}

std::shared_ptr<comm::Communicator> connect(Backend backend,
                                            const std::shared_ptr<comm::HostMemory>& memory,
                                            std::shared_ptr<comm::Store> store, int rank, int size,
                                            const comm::ConnectOptions& options) {
  if (backend == Backend::gloo) return comm::connect_gloo(std::move(store), rank, size, options);
  return comm::connect_shared(memory, std::move(store), rank, size, options);
}

std::shared_ptr<comm::HostMemory> make_host_memory(int members) {
  const int descriptor = comm::HostMemory::make_memory(members);
  auto memory = std::make_shared<comm::HostMemory>(members, descriptor);
  ::close(descriptor);
  return memory;
}

void in_threads(Backend backend, int replicas, const ReplicaFunction& body,
                const comm::ConnectOptions& options) {
  const auto memory = make_host_memory(replicas);
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
        auto communicator = connect(backend, memory, store, rank, replicas, options);
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

namespace {

// The child's whole life. What went wrong goes to `report`, so that the parent's test can show it.
[[noreturn]] void replica_process(Backend backend, const std::shared_ptr<comm::HostMemory>& memory,
                                  int rank, int replicas, int socket, int report,
                                  const ReplicaFunction& body,
                                  const comm::ConnectOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    auto communicator = connect(backend, memory, std::make_shared<comm::SocketStore>(socket), rank,
                                replicas, options);
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

}  // namespace

void in_processes(Backend backend, int replicas, const ReplicaFunction& body,
                  const comm::ConnectOptions& options) {
  const auto memory = make_host_memory(replicas);
  std::vector<pollfd> sockets;
  std::vector<pid_t> children;
  int report[2];
  if (::pipe(report) != 0) throw std::runtime_error("pipe");
  for (int rank = 0; rank < replicas; ++rank) {
    const auto [ours, theirs] = comm::make_socket_pair();
    const pid_t child = ::fork();
    if (child == 0) {
      for (const pollfd& other : sockets) ::close(other.fd);
      ::close(ours);
      replica_process(backend, memory, rank, replicas, theirs, report[1], body, options);
    }
    ::close(theirs);
    sockets.push_back({ours, POLLIN, 0});
    children.push_back(child);
  }
  ::close(report[1]);

  comm::StoreServer server;
  for (std::size_t open = sockets.size(); open > 0;) {
    ::poll(sockets.data(), sockets.size(), -1);
    for (pollfd& socket : sockets) {
      if (socket.fd < 0 || socket.revents == 0 || server.answer(socket.fd)) continue;
      ::close(socket.fd);
      socket.fd = -1;
      --open;
    }
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

}  // namespace lockstep::testing
