#include "framework/launch/supervisor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/errors.h"
#include "framework/base/limits.h"
#include "framework/base/logging.h"
#include "framework/base/memory.h"
#include "framework/base/output.h"
#include "framework/base/poll_set.h"
#include "framework/base/terminal.h"
#include "framework/base/text.h"
#include "framework/base/waited.h"
#include "framework/calls/long_waits.h"
#include "framework/comm/socket_store.h"
#include "framework/launch/job_failure.h"
#include "framework/launch/prints.h"
#include "framework/launch/running_job.h"
#include "framework/launch/worker.h"
#include "framework/timeline/pause_watch.h"

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

// A worker that failed as a consequence may be seen first: wait this long for the root cause.
constexpr milliseconds kProcessesGrace{400};
// The time from asking a worker to end to killing it, and from that to giving up on it.
constexpr milliseconds kTermGrace{500};
constexpr milliseconds kReapInterval{2};
constexpr milliseconds kPatrolInterval{100};
constexpr milliseconds kHostsInterval{20};
// The supervisor waits this much longer than workers for each other: workers are to report first.
constexpr milliseconds kStillGrace{1000};
// A longer line becomes several if it gets a prefix.
constexpr std::size_t kLongestLine = std::size_t{64} << 10;

// The last lines of a text as a terminal shows them: an overwritten line (a progress bar's) in its
// last version, a long line cut. Lockstep's own lines are left out, since the cause repeats them.
class LastLines {
 public:
  void add(std::string_view text) {
    for (const char letter : text) {
      std::string& line = lines_.back();
      if (letter == '\n') {
        if (is_own(line)) {
          line.clear();
        } else {
          lines_.emplace_back();
        }
        if (lines_.size() > kLines + 1) lines_.pop_front();
      } else {
        if (returned_) line.clear();
        if (letter != '\r' && line.size() < kMost) line += letter;
      }
      returned_ = letter == '\r';
    }
  }

  [[nodiscard]] std::deque<std::string> lines() const {
    std::deque<std::string> lines = lines_;
    if (lines.back().empty() || is_own(lines.back())) lines.pop_back();
    if (lines.size() > kLines) lines.pop_front();
    return lines;
  }

 private:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kMost = 2000;  // letters of a line

  static bool is_own(std::string_view line) { return line.starts_with("lockstep: "); }

  std::deque<std::string> lines_{std::string()};  // the last is unfinished
  bool returned_ = false;
};

// One of a worker's output streams on its way to the launcher's own.
class Relay {
 public:
  Relay(Descriptor source, int target, std::optional<std::string> prefix)
      : source_(std::move(source)),
        target_(target),
        output_(&Output::of(target)),
        prefix_(std::move(prefix)) {}

  // Returns the descriptor to poll; -1 without room for output: the worker's prints then wait.
  [[nodiscard]] int fd() const { return output_->has_room() ? source_.get() : -1; }

  // Passes some bytes on, and returns how many. Closes the source at its end.
  std::size_t pass_on() {
    std::array<char, 16384> buffer{};
    const ssize_t count = ::read(source_.get(), buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (count <= 0) {
      close();
      return 0;
    }
    const std::string_view text(buffer.data(), static_cast<std::size_t>(count));
    last_lines_.add(text);
    if (!prefix_) {
      has_left_out_ = true;
    } else if (prefix_->empty()) {
      output_->write(at_line_start_ ? str(start_, text) : text);
      at_line_start_ = text.ends_with('\n');
    } else {
      for (const char letter : text) {
        if (letter != '\n') line_ += letter;
        if (letter == '\n' || line_.size() == kLongestLine) finish_line();
      }
    }
    return text.size();
  }

  // Passes on the bytes that the ended writer has left. Programs that it started may still hold the
  // other end: their later output is not waited for.
  void finish() {
    int left = 0;
    if (!source_.open() || ::ioctl(source_.get(), FIONREAD, &left) != 0) return;
    for (std::size_t passed = 0; passed < static_cast<std::size_t>(left) && source_.open();) {
      passed += pass_on();
    }
    close();
  }

  [[nodiscard]] std::deque<std::string> last_lines() const { return last_lines_.lines(); }
  [[nodiscard]] bool has_left_out() const noexcept { return has_left_out_; }

 private:
  void close() {
    if (!line_.empty()) finish_line();
    source_.close();
  }

  void finish_line() {
    output_->write(str(start_, *prefix_, line_, "\n"));
    line_.clear();
  }

  Descriptor source_;
  int target_;
  Output* output_;
  // "" passes bytes on as they come; without a prefix they are left out.
  std::optional<std::string> prefix_;
  // Progress, which comes on worker 0's stdout, begins its line itself.
  std::string_view start_ =
      target_ == STDOUT_FILENO && prefix_ == "" ? std::string_view() : line_start(target_);
  bool at_line_start_ = true;
  bool has_left_out_ = false;
  std::string line_;  // unfinished, and still without its prefix
  LastLines last_lines_;
};

// The wait status of a process for which something else in this program has waited.
constexpr int kTaken = -1;

// Returns the prefix of a worker's lines; "" for the worker whose lines pass as they are.
std::string prefix_of(const WorkerProcess& process) {
  if (process.index == 0) return "";
  if (process.replicas.size > 1) return str("[worker ", process.index, "] ");
  return str("[replica ", process.replicas.offset, "] ");
}

struct Watched : WorkerProcess {
  Watched(WorkerProcess process, std::string on_host, Prints prints)
      : WorkerProcess(std::move(process)),
        host(std::move(on_host)),
        out_relay(std::move(out), STDOUT_FILENO,
                  prints == Prints::all ? std::optional(prefix_of(*this)) : std::nullopt),
        err_relay(std::move(err), STDERR_FILENO, prefix_of(*this)) {}

  // A replica's span that lasts as long as the worker is stopped.
  struct Pause {
    std::unique_ptr<timeline::Recorder::Track> track;
    timeline::RecordedSpan span{track.get(), {.kind = timeline::SpanKind::pause}};
  };
  void begin_pauses(timeline::Recorder& recorder) {
    pauses.clear();
    for (std::int64_t replica = replicas.offset; replica < replicas.end(); ++replica) {
      pauses.emplace_back(recorder.take_launchers(static_cast<int>(replica)));
    }
  }

  std::list<Pause> pauses;
  std::string host;  // "", or "host 1, "
  Relay out_relay;
  Relay err_relay;
  std::optional<Report> reported;  // the report that counts
  bool ending = false;             // has closed its end of the store
  bool stopped = false;            // by a signal
  std::optional<int> wait_status;  // once it has ended
  std::uint64_t activity = 0;      // in the call table
  Waited inactive{};
};

// Returns " (pid 17)", for several replicas " (worker 1, pid 17)", for several hosts " (host 1, pid
// 17)".
std::string origin_text(const Watched& worker) {
  if (worker.replicas.size == 1) return str(" (", worker.host, "pid ", worker.pid, ")");
  return str(" (", worker.host, "worker ", worker.index, ", pid ", worker.pid, ")");
}

// Returns "replica 3 (pid 17)", or "replicas 2 to 4 (worker 1, pid 17)".
std::string text_of(const Watched& worker) {
  const auto [first, count] = worker.replicas;
  if (count == 1) return str("replica ", first, origin_text(worker));
  return str("replicas ", first, count == 2 ? " and " : " to ", first + count - 1,
             origin_text(worker));
}

int doubt(const Watched& worker) {
  return worker.reported ? traits_of(worker.reported->kind).doubt : 0;
}

// Names memory limits: libraries that run out of memory end the process in ways of their own.
std::string memory_note() {
  std::string text;
  for (const MemoryLimit& limit : memory_limits()) {
    text +=
        str("; a process may have no more than ", text_of_bytes(limit.bytes), " of ", limit.name);
  }
  return text;
}

class Supervisor {
 public:
  Supervisor(std::vector<WorkerProcess> processes, calls::CallTable& table,
             timeline::Recorder& recorder, Hosts& hosts, const LaunchOptions& options,
             const StopSignals& stop, std::int64_t restarts)
      : table_(table),
        recorder_(recorder),
        options_(options),
        restarts_(restarts),
        timeout_(hosts.plan.in_turns(options.timeout)),
        long_waits_(table, {processes.front().index, std::ssize(processes)},
                    hosts.plan.in_turns(options.stall_warning)),
        pauses_(recorder, {processes.front().replicas.offset,
                           processes.back().replicas.end() - processes.front().replicas.offset}),
        stop_(stop),
        job_(hosts, options, store_, table) {
    const std::string host = job_.has_hosts() ? str("host ", job_.own(), ", ") : "";
    for (WorkerProcess& process : processes)
      workers_.emplace_back(std::move(process), host, options.prints);
    job_.trace(recorder, options.trace, mapped(workers_, [](const Watched& worker) {
                 return std::pair(static_cast<int>(worker.index), worker.pid);
               }));
  }

  Ending run() {
    std::string still;
    const auto goes_on = [&] {
      return failed_.empty() && stop_.signal() == 0 && still.empty() && !job_.has_failure();
    };
    while (running() > 0 && goes_on()) {
      step(interval());
      still = patrol();
      for (const calls::Stall& stall : long_waits_.stalls(recorder_)) job_.warn(stall);
      pass_stops_on();
    }
    if (goes_on()) job_.report({});
    while (!job_.verdict() && goes_on()) {
      step(interval());
      pass_stops_on();
    }
    const int signal = stop_.signal();
    const bool is_well = goes_on();
    if (is_well) job_.flush();
    if (is_well && stop_.asked() == 0) {
      drain();
      return {};
    }
    JobFailure failure = noticed();  // before the others notice
    const Watched* root = nullptr;
    if (signal == 0 && !failed_.empty()) {
      step_for(kProcessesGrace, [this] { return doubt(*root_cause()) == 0; });
      root = root_cause();  // before the others are ended
    }
    // Reported at once: other hosts' replicas may wait for replicas here. If another host has
    // failed first, this host has nothing to add.
    if (signal != 0 || root != nullptr || !still.empty()) job_.report(own_end(signal, root, still));
    for (const int ask : {SIGTERM, SIGKILL}) {
      if (ask == SIGTERM && stop_.asks()) continue;  // replicas then ignore it
      for (const Watched& w : workers_) {
        if (!w.wait_status) ::kill(w.pid, ask);
      }
      step_for(kTermGrace, [] { return false; });
    }
    drain();
    Ending end = is_well ? stopped(stop_.asked()) : own_end(signal, root, still);
    if (!is_well) {
      while (!job_.verdict()) step(kReapInterval);
      job_.flush();
      // A job on one host takes its own end, which has the workers' last lines only now.
      if (job_.has_hosts() && job_.verdict()->status != 0) end = *job_.verdict();
    }
    leave_progress_line();
    const bool may_restart = restarts_ < options_.max_restarts;
    failure.verdict = end.text;
    failure.is_lost = end.is_lost;
    failure.starts_again = may_restart && end.is_lost;
    if (!is_status_of_stop(end.status)) tell_failure(failure, options_);
    log_error(end.text);
    if (!may_restart || !end.is_lost) return {end.status};
    const auto stops = [this] { return stop_.signal() != 0 || stop_.asked() != 0; };
    step_for(std::chrono::hours(24 * 365), stops);  // a process with much memory takes long to end
    return {end.status, "", !stops()};
  }

 private:
  // Returns the failure as known when noticed, with all replicas' recordings, also of lost ones.
  [[nodiscard]] JobFailure noticed() const {
    return {.restarts = restarts_,
            .host = static_cast<std::int64_t>(job_.own()),
            .hosts = options_.hosts.count,
            .noticed = timeline::recorder_now(),
            .replicas = options_.after_failure ? timeline::read_replicas(recorder_)
                                               : std::vector<timeline::ReplicaRecording>{}};
  }

  static Ending stopped(int signal) { return {status_of_stop(signal), stopped_text(signal)}; }

  // Returns why the job ends, as this host sees it.
  Ending own_end(int signal, const Watched* root, const std::string& still) const {
    if (signal != 0) return stopped(signal);
    if (root != nullptr) return explain(*root);
    return {3, "Timeout: " + still, /*is_lost=*/true};
  }

  // Passes on signals that ask replicas to end: to other hosts, from other hosts, and to people.
  void pass_stops_on() {
    if (stop_.asked() == 0 && job_.asked() != 0) stop_.ask(job_.asked());
    stop_.tell_early();
    if (stop_.asked() == 0 || std::exchange(told_, true)) return;
    const bool is_elsewhere = job_.asked() != 0;
    if (!is_elsewhere) job_.ask(stop_.asked());
    tell_asked(stop_.asked(), is_elsewhere);
  }

  std::size_t running() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(workers_, [](const Watched& w) { return !w.wait_status; }));
  }

  // Returns the least doubtful failed worker; among equals the one that was seen first.
  const Watched* root_cause() const {
    return *std::ranges::min_element(failed_, {}, [](const Watched* w) { return doubt(*w); });
  }

  // Handles events, for `most` at most, while workers run and it is not `enough`.
  void step_for(milliseconds most, const std::function<bool()>& enough) {
    Waited waited;
    while (running() > 0 && !enough() && waited.look() < most) step(interval());
  }

  // Waits for events, for `timeout` at most, and handles them.
  void step(milliseconds timeout) {
    PollSet polled;
    if (stop_.signal() == 0) polled.add(stop_.descriptor());
    for (Watched& w : workers_) {
      // A worker that closed its store ends soon, and no descriptor tells when: look again soon. A
      // program that a worker started may hold the worker's descriptors open: look now and then.
      if (!w.wait_status) timeout = std::min(timeout, w.ending ? kReapInterval : interval());
      polled.add(w.err_relay.fd(), [&](short) { w.err_relay.pass_on(); });
      polled.add(w.out_relay.fd(), [&](short) { w.out_relay.pass_on(); });
      polled.add(w.report.get(), [&](short) { look_for_report(w); });
      polled.add(w.store.get(), [&](short) {
        if (store_.answer(w.store.get())) return;
        w.store.close();
        w.ending = true;
      });
    }
    for (const int target : {STDOUT_FILENO, STDERR_FILENO}) Output::of(target).add_to(polled);
    job_.add_to(polled);
    // Time in which the launcher itself is busy is no pause.
    pauses_.begin_wait();
    polled.wait(timeout, [this] { pauses_.look(); });
    job_.progress();
    for (Watched& w : workers_) {
      if (!w.wait_status) reap(w);
    }
    look_for_left_out();
  }

  // Says once that stdout leaves some prints out.
  void look_for_left_out() {
    if (told_left_out_) return;
    for (const Watched& w : workers_) {
      if (!w.out_relay.has_left_out()) continue;
      told_left_out_ = true;
      return log_info(text_of(w) +
                      " prints, too, but stdout has what worker 0 prints alone; all are shown with "
                      "LaunchOptions::prints, in a config parallel.prints: all");
    }
  }

  // Returns how often to look around: soon enough for other hosts' requests, and for reading rings
  // before they are full.
  milliseconds interval() const {
    const milliseconds usual = job_.has_hosts() ? kHostsInterval : kPatrolInterval;
    return std::min(usual, job_.pace().value_or(usual));
  }

  // Returns the workers that only the launcher can end, and why, or "".
  std::string patrol() {
    const auto is_stopped = [](const Watched& w) { return !w.wait_status && w.stopped; };
    const auto stopped = mapped(workers_ | std::views::filter(is_stopped), text_of);
    if (stopped.size() < running()) all_stopped_ = Waited();
    if (all_stopped_.look() >= timeout_ + kStillGrace) {
      return str(join(stopped), stopped.size() == 1 ? " has" : " have",
                 " been stopped by a signal for longer than ", timeout_.count(), " ms");
    }
    if (const auto now = Waited::Clock::now(); now - looked_ >= kPatrolInterval) {
      looked_ = now;
      job_.hold_up(wait_for_reader(mapped(workers_, &Watched::pid)));
    }
    for (Watched& w : workers_) {
      if (w.wait_status) continue;
      const std::uint64_t activity = table_.activity(static_cast<int>(w.index));
      if (activity != w.activity) w.inactive = Waited();
      w.activity = activity;
      if (w.inactive.look() < timeout_ + kStillGrace) continue;
      const std::string pending = pending_of(w);
      if (pending.empty()) continue;
      return str(text_of(w), w.stopped ? " has been stopped by a signal" : " has stood still",
                 " for longer than ", timeout_.count(), " ms in a wait: ", pending);
    }
    return "";
  }

  // Returns a wait of one of the worker's replicas, or "".
  std::string pending_of(const Watched& worker) const {
    for (const calls::CallTable::Wait& wait : table_.waits(static_cast<int>(worker.index))) {
      const std::string text = table_.text_of(wait);
      const std::string absent = table_.absentees(wait);
      if (!text.empty() && !absent.empty()) return str(text, ": ", absent);
    }
    return "";
  }

  void look_for_report(Watched& worker) {
    read_reports(worker.report, worker.reported);
    // The worker is about to end.
    if (worker.reported && !worker.reported->done()) note_failed(worker);
  }

  void note_failed(const Watched& worker) {
    if (std::ranges::find(failed_, &worker) == failed_.end()) failed_.push_back(&worker);
  }

  void reap(Watched& worker) {
    int status = 0;
    const pid_t changed = ::waitpid(worker.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
    const bool taken = changed < 0 && errno == ECHILD;
    if (changed != worker.pid && !taken) return;
    if (!taken && (WIFSTOPPED(status) || WIFCONTINUED(status))) {
      worker.stopped = WIFSTOPPED(status);
      worker.stopped ? worker.begin_pauses(recorder_) : worker.pauses.clear();
      table_.set_stopped(static_cast<int>(worker.index), worker.stopped);
      return;
    }
    look_for_report(worker);
    worker.wait_status = taken ? kTaken : status;
    const bool is_well = worker.reported && worker.reported->done() && (taken || status == 0);
    if (!is_well) note_failed(worker);
  }

  // Passes on the unread output of ended workers.
  void drain() {
    for (Watched& w : workers_) {
      w.out_relay.finish();
      w.err_relay.finish();
    }
    look_for_left_out();
  }

  // Returns what a crashed worker was in: "; replica 1 has been in its forward of step 7 for 1 s".
  std::string crash_text(const Watched& root, int signal) const {
    if (signal == SIGKILL || signal == SIGTERM) return "";  // the worker is not to blame
    auto its = timeline::read_replicas(recorder_);
    std::erase_if(its, [&](const timeline::ReplicaRecording& each) {
      return each.replica < root.replicas.offset || each.replica >= root.replicas.end();
    });
    const std::string doing = timeline::doing_text(its);
    return doing.empty() ? "" : "; " + doing;
  }

  Ending explain(const Watched& root) const {
    const bool one = root.replicas.size == 1;
    const std::string lost = text_of(root) + (one ? " was lost: " : " were lost: ");
    const char* const before =
        one ? " before its function returned" : " before their functions returned";
    Ending end{3, "", /*is_lost=*/true, doubt(root)};
    if (root.reported && !root.reported->done()) {
      const Report& report = *root.reported;
      end.status = report.status();
      end.is_lost = end.status == 3 && report.kind != ErrorKind::mismatch;
      // The error of a map in this replica may begin with the replica's name already.
      const std::string name = str("replica ", report.replica, ": ");
      const std::size_t said = report.message.starts_with(name) ? name.size() : 0;
      end.text = str("replica ", report.replica, origin_text(root), " failed with ", report.type,
                     ", exit status ", end.status, ": ", report.message.substr(said));
    } else if (root.wait_status == kTaken) {
      end.text = str(lost, "ended", before, "; the program has taken its exit status elsewhere");
    } else if (WIFSIGNALED(*root.wait_status)) {
      const int signal = WTERMSIG(*root.wait_status);
      const ClassicLocale classic;
      end.text = str(lost, "killed by signal ", signal, " (", ::strsignal(signal), ")",
                     crash_text(root, signal));
    } else {
      end.text = str(lost, "exited with status ", WEXITSTATUS(*root.wait_status), before);
    }
    if (!root.reported || root.reported->done()) end.text += memory_note();
    const auto last_lines = root.err_relay.last_lines();
    if (!last_lines.empty()) end.text += "\nits last lines on stderr:";
    for (const std::string& line : last_lines) end.text += "\n  | " + line;
    return end;
  }

  calls::CallTable& table_;
  timeline::Recorder& recorder_;
  const LaunchOptions& options_;
  std::int64_t restarts_;  // before this run
  milliseconds timeout_;
  calls::LongWaits long_waits_;
  timeline::PauseWatch pauses_;
  const StopSignals& stop_;
  bool told_ = false;  // that replicas are asked to end
  bool told_left_out_ = false;
  Waited all_stopped_;
  Waited::Clock::time_point looked_{};  // for prints that wait
  comm::StoreServer store_;
  RunningJob job_;
  std::deque<Watched> workers_;
  std::vector<const Watched*> failed_;  // in the order in which they were seen
};

}  // namespace

Ending supervise(std::vector<WorkerProcess> workers, calls::CallTable& table,
                 timeline::Recorder& recorder, Hosts& hosts, const LaunchOptions& options,
                 const StopSignals& stop, std::int64_t restarts) {
  return Supervisor(std::move(workers), table, recorder, hosts, options, stop, restarts).run();
}

}  // namespace lockstep::launcher
