#include "framework/base/logging.h"

#include <mutex>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "framework/base/output.h"
#include "framework/base/terminal.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  void sink_it_(const spdlog::details::log_msg& message) override {
    Output::of(STDERR_FILENO)
        .write(std::string(message.payload.data(), message.payload.size()) + '\n');
  }
  void flush_() override {}
};

spdlog::logger& logger() {
  // Never destroyed: a thread may still log while the program's statics go away.
  static auto* const instance = new spdlog::logger("lockstep", std::make_shared<StderrSink>());
  return *instance;
}

}  // namespace

void log_info(std::string_view message) {
  logger().info("{}lockstep: {}", line_start(STDERR_FILENO), printable(message));
}
void log_warning(std::string_view message) {
  logger().warn("{}lockstep: warning: {}", line_start(STDERR_FILENO), printable(message));
}
void log_error(std::string_view message) {
  logger().error("{}lockstep: error: {}", line_start(STDERR_FILENO), printable(message));
}

void set_quiet(bool quiet) {
  logger().set_level(quiet ? spdlog::level::warn : spdlog::level::info);
}

}  // namespace lockstep
