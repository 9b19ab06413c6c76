#include "framework/base/limits.h"

#include <functional>
#include <string>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"

using namespace lockstep;

namespace {

// Whether `text`, with this limit, has the part. In a fork: limits can't be raised again.
bool has_part_under(__rlimit_resource resource, rlim_t bytes, const std::string& part,
                    const std::function<std::string()>& text) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{bytes, bytes};
    ::setrlimit(resource, &limit);
    ::_exit(text().find(part) == std::string::npos ? 1 : 0);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("limits are told by their names, with their numbers") {
  CHECK(has_part_under(RLIMIT_FSIZE, 3 << 20, "; files may have no more than 3.0 MiB (ulimit -f)",
                       file_limit_text));
  // The sanitizers take more addresses than any limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr rlim_t kAddresses = rlim_t{5} << 30;
  CHECK(has_part_under(RLIMIT_AS, kAddresses, "; of its 5.0 GiB of addresses (ulimit -v) ",
                       address_limit_text));
  CHECK(
      has_part_under(RLIMIT_AS, kAddresses, "5.0 GiB of addresses (ulimit -v)", thread_limit_text));
#endif
  CHECK(has_part_under(RLIMIT_NPROC, 4321, "; this user may have 4321 threads (ulimit -u)",
                       thread_limit_text));
}

TEST_CASE("a stack that is too small is refused, with the limit") {
  const auto refusal = [] { return testing::message_of<ValueError>(require_stack); };
  CHECK(has_part_under(RLIMIT_STACK, 64 << 10,
                       "a stack may have no more than 64.0 KiB here (ulimit -s), and replicas need "
                       "512.0 KiB at least",
                       refusal));
  CHECK(has_part_under(RLIMIT_STACK, 1 << 20, "fine", [] {
    require_stack();
    return std::string("fine");
  }));
}
