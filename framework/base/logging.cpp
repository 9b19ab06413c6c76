#include "framework/base/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "framework/base/terminal.h"
#include "framework/base/text.h"

namespace lockstep {
namespace {

spdlog::logger& logger() {
  // Never destroyed: a thread may still log while the program's statics go away.
  static spdlog::logger* const instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    auto* made = new spdlog::logger("lockstep", std::move(sink));
    made->set_pattern("%v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
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
