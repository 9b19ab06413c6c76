#include "framework/base/limits.h"

#include <cerrno>
#include <functional>
#include <string>

#include <sys/resource.h>
#include <sys/stat.h>

#include "framework/base/errors.h"
#include "tests/base/control_groups.h"
#include "tests/catch.h"
#include "tests/support/message_of.h"
#include "tests/support/programs.h"

using namespace lockstep;

namespace {

void set_limit(__rlimit_resource resource, rlim_t number) {
  const rlimit limit{number, number};
  ::setrlimit(resource, &limit);
}

// True if `text`, with this limit, has the part. Runs in a fork: limits can't be raised again.
bool has_part_under(__rlimit_resource resource, rlim_t number, const std::string& part,
                    const std::function<std::string()>& text) {
  return testing::run_forked([&] {
           set_limit(resource, number);
           return text().find(part) == std::string::npos ? 1 : 0;
         }).status == 0;
}

}  // namespace

TEST_CASE("a call to the system that has failed is an error with what the system says") {
  const auto make = [](const char* folder) {
    require_done<DataError>(::mkdir(folder, 0700) == 0, folder, " can't be made");
  };
  CHECK(testing::message_of<DataError>([&] { make("/proc/none/x"); }) ==
        "/proc/none/x can't be made: No such file or directory");
  CHECK_NOTHROW(require_done<DataError>(true, "nothing is wrong"));
}

TEST_CASE("limits are told by their names, with their numbers") {
  CHECK(has_part_under(RLIMIT_FSIZE, 3 << 20, "; files may have no more than 3.0 MiB (ulimit -f)",
                       file_limit_text));
  CHECK(has_part_under(RLIMIT_FSIZE, 3 << 20, "File too large; files may have no more than 3.0 MiB",
                       [] { return text_of_errno(EFBIG); }));
  CHECK(has_part_under(RLIMIT_NOFILE, 20,
                       "Too many open files; a process may have no more than 20 (ulimit -n)",
                       [] { return text_of_errno(EMFILE); }));
  CHECK(text_of_errno(ENOENT) == "No such file or directory");
  // The sanitizers take more addresses than any limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr rlim_t kAddresses = rlim_t{5} << 30;
  CHECK(has_part_under(RLIMIT_AS, kAddresses, "; of its 5.0 GiB of addresses (ulimit -v) ",
                       memory_limit_text));
  CHECK(has_part_under(RLIMIT_AS, kAddresses, "5.0 GiB of addresses (ulimit -v)",
                       [] { return thread_limit_text(); }));
  CHECK(has_part_under(RLIMIT_DATA, kAddresses, "; of its 5.0 GiB of private memory (ulimit -d) ",
                       memory_limit_text));
  // The limit that leaves less is named.
  CHECK(has_part_under(RLIMIT_DATA, kAddresses, "(ulimit -v)", [] {
    set_limit(RLIMIT_AS, kAddresses - (rlim_t{1} << 30));
    return memory_limit_text();
  }));
#endif
}

TEST_CASE("where no thread can be started, the limits that are near are told") {
  constexpr rlim_t kMany = 30'000;
  const auto with_memory_limit = [](__rlimit_resource resource, const std::string& part) {
    return [=] {
      set_limit(resource, rlim_t{1} << 46);  // sanitizers map much
      return thread_limit_text().find(part) == std::string::npos ? "no" : "yes";
    };
  };
  // Other containers' threads of this user may not be seen: without other reasons this is told.
  CHECK(has_part_under(RLIMIT_NPROC, kMany, ", and may have 30000 (ulimit -u)",
                       [] { return thread_limit_text(); }));
  CHECK(has_part_under(RLIMIT_NPROC, kMany, "no", with_memory_limit(RLIMIT_DATA, "(ulimit -u)")));
  CHECK(has_part_under(RLIMIT_NPROC, kMany, "yes", with_memory_limit(RLIMIT_DATA, "(ulimit -d)")));
  CHECK(has_part_under(RLIMIT_NPROC, 1, "yes", with_memory_limit(RLIMIT_DATA, "(ulimit -u)")));

  const testing::ControlGroups groups("0::/job\n");
  groups.write("sys/fs/cgroup/job/pids.current", "950\n");
  groups.write("sys/fs/cgroup/job/pids.max", "1000\n");
  CHECK_THAT(thread_limit_text(groups.root()),
             ContainsSubstring("; a control group has 950 of the 1000 threads that it may have"));
  groups.write("sys/fs/cgroup/job/pids.max", "10000\n");
  CHECK_THAT(thread_limit_text(groups.root()), !ContainsSubstring("control group"));
  groups.write("sys/fs/cgroup/job/pids.max", "max\n");
  CHECK_THAT(thread_limit_text(groups.root()), !ContainsSubstring("control group"));
}
