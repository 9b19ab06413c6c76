#include "framework/base/open_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "tests/catch.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

void make_socket(const std::string& path) {
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof address.sun_path);
  std::strcpy(address.sun_path, path.c_str());
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

}  // namespace

TEST_CASE("only regular files are opened, and nothing else is waited for") {
  const testing::TemporaryFolder home;
  (void)home.write("file", "x");
  fs::create_symlink("file", home.path() / "link");
  for (const char* name : {"file", "link"}) {
    CHECK(open_file(home.path() / name, O_RDONLY).descriptor.open());
  }
  CHECK(open_file(home.path() / "new", O_WRONLY | O_CREAT).descriptor.open());

  REQUIRE(::mkfifo(home.path("fifo").c_str(), 0600) == 0);
  fs::create_symlink("fifo", home.path() / "to fifo");
  make_socket(home.path("socket"));
  for (const int flags : {O_RDONLY, O_WRONLY | O_APPEND | O_CREAT, O_RDWR}) {
    const auto reason = [&](const fs::path& path) {
      const OpenedFile opened = open_file(path, flags);
      CHECK_FALSE(opened.descriptor.open());
      CHECK(opened.error == 0);
      return opened.reason;
    };
    CHECK(reason(home.path() / "fifo") == "it is a FIFO, not a file");
    CHECK(reason(home.path() / "to fifo") == "it is a FIFO, not a file");
    CHECK(reason(home.path() / "socket") == "it is a socket, not a file");
    CHECK(reason("/dev/null") == "it is a device, not a file");
    CHECK(reason(home.path()) == "it is a folder, not a file");
  }
}

TEST_CASE("a file that the system does not open is refused with its reason") {
  const testing::TemporaryFolder home;
  fs::create_symlink("loop", home.path() / "loop");
  const OpenedFile loop = open_file(home.path() / "loop", O_RDONLY);
  CHECK(loop.error == ELOOP);
  CHECK(loop.reason == std::strerror(ELOOP));
  CHECK(open_file(home.path() / "none", O_RDONLY).error == ENOENT);
}
