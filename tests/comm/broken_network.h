#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "framework/base/errors.h"
#include "framework/comm/communicator.h"

namespace lockstep::testing {

/// A network that moves nothing. Verbs on fewer than `least` bytes fail: by default, all verbs.
class BrokenNetwork final : public comm::Communicator {
 public:
  BrokenNetwork(int rank, int size, ErrorKind kind,
                std::size_t least = std::numeric_limits<std::size_t>::max())
      : Communicator(rank, size), kind_(kind), least_(least) {}

  void run(const comm::Verb& verb) override {
    if (verb.output.size() < least_) throw_as(kind_, "it is broken");
  }
  void interrupt(const std::exception_ptr& /*error*/) noexcept override {}
  void abort(const std::string& /*reason*/) noexcept override {}
  bool is_network() const noexcept override { return true; }
  bool shares_memory() const noexcept override { return false; }
  const comm::Ledger& ledger() const noexcept override { return ledger_; }

 private:
  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t /*channel*/) override {
    return std::make_shared<BrokenNetwork>(own_place, static_cast<int>(members.size()), kind_,
                                           least_);
  }

  ErrorKind kind_;
  std::size_t least_;
  comm::Ledger ledger_;
};

}  // namespace lockstep::testing
