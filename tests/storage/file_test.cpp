#include "framework/storage/file.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "framework/base/errors.h"
#include "framework/base/process.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/support/message_of.h"
#include "tests/support/programs.h"
#include "tests/support/refuse_calls.h"

using namespace lockstep;

TEST_CASE("a file that may not grow (ulimit -f) is an error with the limit") {
  const testing::TemporaryFolder folder;
  const testing::Ended end = testing::run_forked([&] {
    prepare_process();
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::cout << testing::message_of<Error>(
        [&] { write_file_atomically(folder.path() / "file", std::string(8192, 'x')); });
    return 0;
  });
  CHECK(end.status == 0);
  CHECK_THAT(end.out, ContainsSubstring("can't be written: File too large; files may have no more "
                                        "than 4.0 KiB (ulimit -f)"));
  CHECK(testing::entries(folder.path()) == 0);
}

TEST_CASE("a file gets its name also where the system gives none to a file without one") {
  const std::string text(100'000, 'x');
  for (const int error : {EOPNOTSUPP, EPERM, ENOSYS, ENOENT}) {  // the last: no /proc
    INFO(std::strerror(error));
    const testing::TemporaryFolder folder;
    const auto path = folder.path() / "file";
    const testing::Ended end = testing::run_forked([&] {
      ::umask(0);
      testing::refuse_calls({SYS_linkat}, error);
      const bool is_new = write_new_file(path, text) && !write_new_file(path, "another");
      NewFile over(path, 0600);
      over.write(text + "y");
      over.publish_over();
      return is_new ? 0 : 1;
    });
    INFO(end.err);
    CHECK(end.status == 0);
    CHECK(testing::read_text(path) == text + "y");
    CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0600));
    CHECK(testing::entries(folder.path()) == 1);
  }
}

TEST_CASE("a file can be looked at in parts, from any byte to any") {
  const testing::TemporaryFolder folder;
  std::string text((std::size_t{17} << 20) + 123, '\0');
  std::uint32_t value = 1;
  for (char& byte : text) byte = static_cast<char>((value = value * 1664525 + 1013904223) >> 24);
  const File file(folder.path() / "file", O_CREAT | O_RDWR);
  file.write(text);
  file.begin_sync(0, text.size());
  file.sync();
  for (const auto& [offset, size] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, text.size()},
                                                        {0, 0},
                                                        {text.size(), 0},
                                                        {5, 100},
                                                        {4095, 2},
                                                        {4097, 200'000},
                                                        {8'388'000, 900},
                                                        {8'388'000, 9'000'000},
                                                        {text.size() - 70'000, 70'000}}) {
    std::string seen;
    file.look(offset, size, [&](ConstBytes part) {
      seen.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    INFO(size << " bytes from " << offset);
    CHECK(seen == text.substr(offset, size));
  }
  // The last page of a mapped file has zeros behind its end.
  for (const std::size_t offset : {text.size(), text.size() - 5, text.size() - 100'000}) {
    CHECK_THROWS_AS(file.look(offset, text.size() - offset + 1, [](ConstBytes) {}), Error);
  }
}
