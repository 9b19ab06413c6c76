#include "framework/formats/content_reader.h"

#include <cstddef>
#include <string>
#include <utility>

#include <sys/resource.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "tests/catch.h"
#include "tests/formats/idx_files.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

using namespace lockstep;
using namespace lockstep::formats;
using namespace lockstep::testing;

TEST_CASE("gzip data that unpack to more than there is room for are refused with the numbers",
          "[bulk]") {
  const TemporaryFolder folder;
  constexpr std::size_t kContent = std::size_t{64} << 20;
  const std::string path = folder.write("bomb.gz", gzip(std::string(kContent, '\0')));
  CHECK(content_of(path).bytes.size() == kContent);
  for (const auto& [resource, name] :
       {std::pair(RLIMIT_AS, "(ulimit -v)"), std::pair(RLIMIT_DATA, "(ulimit -d)")}) {
    rlimit before{};
    REQUIRE(::getrlimit(resource, &before) == 0);
    rlimit little = before;
    little.rlim_cur = rlim_t{1} << 50;  // so that what is in use is told
    REQUIRE(::setrlimit(resource, &little) == 0);
    little.rlim_cur = memory_limits().front().used + kContent / 2;
    REQUIRE(::setrlimit(resource, &little) == 0);
    const std::string message = message_of<DataError>([&] { (void)content_of(path); });
    ::setrlimit(resource, &before);
    CHECK_THAT(message, ContainsSubstring("its content, unpacked, takes ") &&
                            ContainsSubstring("iB of memory are left") && ContainsSubstring(name));
  }
}
