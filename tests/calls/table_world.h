#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/text.h"
#include "framework/calls/call_table.h"
#include "tests/catch.h"

namespace lockstep::testing {

/// Texts of calls.
inline constexpr std::string_view kPsum = "psum over 'data' at model.cpp:44 with (64, 10) float32";
inline constexpr std::string_view kPmean =
    "pmean over 'data' at model.cpp:41 with (64, 10) float32";
inline constexpr std::string_view kPmap = "pmap over 'batch' at x.cpp:7";

/// Returns a call. Calls of a test agree exactly if their texts are the same.
inline calls::CallRecord call_of(std::string_view text) {
  return calls::CallRecord{std::hash<std::string_view>{}(text), std::string(text)};
}

/// Replicas in a call table, moved by one thread: each has a worker of its own, or all have one.
class TableWorld {
 public:
  enum class Workers { one, each };

  TableWorld(int replicas, Workers workers) : TableWorld(replicas, workers, replicas) {}
  /// Gives slots only to the first `with_slot` of them.
  TableWorld(int replicas, Workers workers, int with_slot)
      : workers_(workers), table_(workers == Workers::one ? 1 : replicas) {
    for (int i = 0; i < replicas; ++i) {
      members_.push_back({.id = static_cast<std::uint64_t>(i) + 1, .worker = worker_of(i)});
      slots_.emplace_back();
      if (i < with_slot) sit(i, str(i));
    }
  }

  calls::CallTable& call_table() { return table_; }
  calls::CallTable::Slot& slot(int member) { return *slots_.at(static_cast<std::size_t>(member)); }
  void free_slot(int member) { slots_.at(static_cast<std::size_t>(member)).reset(); }

  /// Adds a member that the map of `parent` runs, on its worker. Returns the member's number.
  int add_child(int parent, bool has_slot = true) {
    const calls::GroupMember& of = members_.at(static_cast<std::size_t>(parent));
    members_.push_back({.id = members_.size() + 1,
                        .worker = of.worker,
                        .ancestors = {of.id, of.ancestors[0], of.ancestors[1]}});
    slots_.emplace_back();
    const int child = static_cast<int>(members_.size()) - 1;
    if (has_slot) sit(child, str("(", parent, ", ", child, ")"));
    return child;
  }
  void sit(int member, const std::string& name) {
    const calls::GroupMember& who = members_.at(static_cast<std::size_t>(member));
    slots_.at(static_cast<std::size_t>(member)) =
        table_.take_slot(who.worker, who.id, who.ancestors[0], name);
  }

  /// Lets `member` wait in `text` on the group of `members`.
  void start(int member, const std::vector<int>& members, std::string_view text) {
    std::vector<calls::GroupMember> group;
    int place = 0;
    std::uint64_t key = 17;
    for (std::size_t i = 0; i < members.size(); ++i) {
      group.push_back(members_.at(static_cast<std::size_t>(members[i])));
      key = key * 1000 + static_cast<std::uint64_t>(members[i]);
      if (members[i] == member) place = static_cast<int>(i);
    }
    const int worker = members_.at(static_cast<std::size_t>(member)).worker;
    held_.push_back(table_.group(worker, key, group));
    slot(member).start(*held_.back(), place, call_of(text));
  }
  void start_all(const std::vector<int>& members, std::string_view text) {
    for (const int member : members) start(member, members, text);
  }
  void finish_all(const std::vector<int>& members) {
    for (const int member : members) slot(member).finish();
  }

  /// Returns the report that `member` finds: "", or "mismatch: ", "failed: " or "lost: " and text.
  std::string found(int member, bool settled_only = false) {
    const auto report = table_.examine(slot(member), settled_only);
    if (!report) return "";
    const char* const kind = report->kind == ErrorKind::mismatch  ? "mismatch: "
                             : report->kind == ErrorKind::aborted ? "failed: "
                                                                  : "lost: ";
    return kind + report->text;
  }

 private:
  [[nodiscard]] std::int32_t worker_of(int replica) const {
    return workers_ == Workers::one ? 0 : replica;
  }

  Workers workers_;
  calls::CallTable table_;
  std::vector<calls::GroupMember> members_;
  std::vector<std::unique_ptr<calls::CallTable::Slot>> slots_;
  std::vector<std::shared_ptr<calls::CallTable::Group>> held_;
};

/// Runs the rest of a test case with one worker for all replicas, then with one for each.
inline TableWorld::Workers any_workers() {
  return GENERATE(TableWorld::Workers::one, TableWorld::Workers::each);
}

}  // namespace lockstep::testing
