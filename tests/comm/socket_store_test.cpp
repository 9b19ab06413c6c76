#include "framework/comm/socket_store.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "framework/base/errors.h"
#include "framework/base/socket.h"
#include "tests/catch.h"

using namespace lockstep;

TEST_CASE("of many workers that wait for a key each asks its launcher less often") {
  // Returns the requests of one of so many workers until its wait ends.
  const auto requests = [](std::int64_t workers) {
    auto [ours, theirs] = make_socket_pair();
    comm::StoreServer server;
    int count = 0;
    server.on_missing = [&](const std::string& /*key*/) { ++count; };
    std::thread launcher([&, socket = std::move(ours)] {
      while (server.answer(socket.get())) continue;
    });
    {
      comm::SocketStore store(std::move(theirs), workers);
      CHECK_THROWS_AS(store.get("key", std::chrono::milliseconds(1000)), Timeout);
    }
    launcher.join();
    return count;
  };
  const int of_many = requests(64);
  CHECK(of_many > 5);
  CHECK(of_many < 30);  // a pause doubles to 102 ms at most
  CHECK(requests(2) < 550);
}
