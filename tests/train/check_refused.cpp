// Not beside what includes LibTorch's headers: they have a CHECK of their own, which ends the
// program.
#include "framework/base/text.h"
#include "tests/catch.h"
#include "tests/support/files.h"
#include "tests/train/train_in_fork.h"

namespace lockstep::testing {

void check_refused(
    const std::filesystem::path& folder, const Flags& flags, const std::string& message,
    const std::function<Ended(const std::filesystem::path&, const Flags&)>& program) {
  const auto before = entries(folder);
  const Ended end = program(folder, flags);
  INFO(join(flags, " ") << "\n" << end.out << end.err);
  CHECK(end.status == 2);
  CHECK(end.out.empty());
  CHECK(lines_of(end.err).size() == lines_of(message).size());
  const std::string more = "…";
  const std::string expected = "lockstep: error: " + message;
  if (message.ends_with(more)) {
    CHECK_THAT(end.err,
               Catch::Matchers::StartsWith(expected.substr(0, expected.size() - more.size())));
  } else {
    CHECK(end.err == expected + "\n");
  }
  CHECK(entries(folder) == before);
}

}  // namespace lockstep::testing
