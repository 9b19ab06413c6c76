#include "framework/base/open_file.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

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

// A server that exports a folder gives its clients leases of files, and ends them where others
// open.
TEST_CASE("a file of which another program has a lease is waited for") {
  const testing::TemporaryFolder home;
  const std::string path = home.write("file", "x");
  int leased[2];
  REQUIRE(::pipe(leased) == 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    ::alarm(30);
    sigset_t asked;
    ::sigemptyset(&asked);
    ::sigaddset(&asked, SIGIO);
    ::sigprocmask(SIG_BLOCK, &asked, nullptr);
    const int file = ::open(path.c_str(), O_RDWR);
    const char has_one = ::fcntl(file, F_SETLEASE, F_WRLCK) == 0 ? 1 : 0;
    (void)!::write(leased[1], &has_one, 1);
    int signal = 0;
    if (has_one == 1) ::sigwait(&asked, &signal);
    ::usleep(100'000);
    ::fcntl(file, F_SETLEASE, F_UNLCK);
    ::_exit(signal == SIGIO ? 0 : 1);
  }
  char has_one = 0;
  REQUIRE(::read(leased[0], &has_one, 1) == 1);
  const OpenedFile opened = open_file(path, O_RDONLY);
  int status = 0;
  REQUIRE(::waitpid(holder, &status, 0) == holder);
  if (has_one == 0) return;  // this file system has no leases
  CHECK(status == 0);
  CHECK(opened.reason.empty());
  CHECK(opened.descriptor.open());
}

TEST_CASE("a file that the system does not open is refused with its reason") {
  const testing::TemporaryFolder home;
  fs::create_symlink("loop", home.path() / "loop");
  const OpenedFile loop = open_file(home.path() / "loop", O_RDONLY);
  CHECK(loop.error == ELOOP);
  CHECK(loop.reason == std::strerror(ELOOP));
  CHECK(open_file(home.path() / "none", O_RDONLY).error == ENOENT);
}
