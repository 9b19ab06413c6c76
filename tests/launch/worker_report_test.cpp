#include <optional>

#include "framework/base/errors.h"
#include "framework/base/socket.h"
#include "framework/launch/worker_process.h"
#include "tests/catch.h"
#include "tests/support/error_kinds.h"

namespace lockstep::launcher {
namespace {

Report sent(const Report& report) {
  auto [reader, writer] = make_socket_pair();
  send_report(writer.get(), report);
  std::optional<Report> counts;
  read_reports(reader, counts);
  return counts.value();
}

}  // namespace

TEST_CASE("a report says of each kind of error what it is and how the program ends") {
  for (const ErrorKind kind : testing::error_kinds()) {
    const Report report = sent({3, kind, traits_of(kind).name, "it is\ngone"});
    CHECK(report.replica == 3);
    CHECK(report.kind == kind);
    CHECK(report.type == traits_of(kind).name);
    CHECK(report.message == "it is\ngone");
    CHECK_FALSE(report.done());
    CHECK(report.status() == traits_of(kind).exit_status);
  }
  const Report own = sent({0, ErrorKind::comm, "LinkDown", "no carrier"});
  CHECK(own.type == "LinkDown");
  CHECK(own.status() == 3);
  CHECK(sent({}).done());
  CHECK(sent({}).status() == 0);
}

}  // namespace lockstep::launcher
