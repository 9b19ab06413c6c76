#include "framework/comm/host_members.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/bytes.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/pages.h"
#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/round_up.h"
#include "framework/base/text.h"
#include "framework/comm/hierarchy.h"
#include "framework/comm/schedule_choice.h"
#include "framework/reduce/partial_sums.h"

namespace lockstep::comm {
namespace {

// The bytes of a piece, about: verbs on larger buffers go through common memory in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 20;
// How many pieces the leader sends at one time: while one waits for an answer, the other has the
// link.
constexpr std::size_t kUnderWay = 2;
// Pieces are of whole cache lines.
constexpr std::size_t kLine = 64;

std::size_t whole_lines(std::size_t bytes) {
  return round_up(bytes, kLine);
}

// All workers of the job.
struct Workers {
  std::shared_ptr<Communicator> local;
  std::shared_ptr<Communicator> network;
  std::vector<int> host_of;

  [[nodiscard]] int own_host() const { return host_of[static_cast<std::size_t>(network->rank())]; }
  /// The first worker of this host.
  [[nodiscard]] int first_here() const {
    return static_cast<int>(std::ranges::find(host_of, own_host()) - host_of.begin());
  }

  /// The hosts of a group of `members`.
  [[nodiscard]] GroupLayout layout(std::span<const int> members) const {
    std::vector<watch::GroupMember> on_hosts(members.size());
    for (std::size_t place = 0; place < members.size(); ++place) {
      on_hosts[place].worker = host_of[static_cast<std::size_t>(members[place])];
    }
    return {on_hosts, own_host()};
  }
};

// How the leader's part of a verb has ended, for the other members of its host.
class LeadersError {
 public:
  explicit LeadersError(const std::exception_ptr& error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      // For the others, the leader's being out of memory is a failure of the job.
      const auto* const ours = dynamic_cast<const Error*>(&known);
      kind_ = ours != nullptr ? ours->kind() : ErrorKind::comm;
      std::string_view(known.what()).copy(text_.data(), text_.size() - 1);
    }
  }

  [[nodiscard]] Bytes bytes() { return std::as_writable_bytes(std::span(this, 1)); }

  void check() const {
    if (kind_) throw_as(*kind_, text_.data());
  }

 private:
  std::optional<ErrorKind> kind_;  // none: it went well
  std::array<char, 992> text_{};   // ends with a zero
};

// The members of a group that are on one host. A verb of a group that spans hosts goes one of two
// ways, the same on all hosts:
// - In pieces, if what a host sends of a piece is one message of the outer group's verb. The
//   members make the message of a piece in common memory, and the leader sends it. Meanwhile they
//   take the result of an earlier piece, and make the message of the next one.
// - By the leader: the members put their inputs into common memory, and the leader does the verb
//   for all, as the last of a worker's threads does.
//
// Pieces use the slots of common memory in turn. There is one slot more than pieces are under way:
// a member takes the piece in a slot before it calls the verb of the local group that makes the
// next piece there. This verb writes nothing before all members have called it, so nobody
// overwrites a piece that another member has not taken yet.
class HostMembers final : public LocalMembers {
 public:
  HostMembers(std::shared_ptr<const Workers> job, std::vector<int> members, std::uint64_t channel)
      : HostMembers(job, std::move(members), channel, job->layout(members)) {}

  void meet(int place, std::uint64_t mark, const Verb& verb) override;
  std::shared_ptr<LocalMembers> subgroup(std::span<const int> members, int place,
                                         std::uint64_t channel) override;

  void interrupt(const std::exception_ptr& error) noexcept override {
    local_->interrupt(error);
    interrupt_leaders(error);
  }
  void abort(const std::string& reason) noexcept override {
    workers_->local->abort(reason);
    workers_->network->abort(reason);
  }
  bool is_network() const noexcept override { return spans_hosts(); }
  bool shares_memory() const noexcept override { return hosts() < layout().size(); }
  SharedAddress shared_address(ConstBytes memory) const override {
    return spans_hosts() ? SharedAddress{} : local_->shared_address(memory);
  }
  std::optional<LinkSpeed> link_speed() const override {
    return spans_hosts() ? workers_->network->link_speed() : std::nullopt;
  }
  void set_link_speed(const LinkSpeed& speed) override { workers_->network->set_link_speed(speed); }
  const Ledger& ledger() const noexcept override {
    return spans_hosts() ? workers_->network->ledger() : local_->ledger();
  }

 private:
  // A part of a verb that goes in pieces: `bytes` from `offset` on of each of its rows.
  struct Piece {
    std::size_t offset;
    std::size_t bytes;
    Bytes slot;
  };

  HostMembers(std::shared_ptr<const Workers> job, std::vector<int> members, std::uint64_t channel,
              GroupLayout layout);

  bool spans_hosts() const noexcept { return layout().workers() > 1; }
  std::size_t hosts() const noexcept { return layout().workers(); }
  std::size_t own_host() const noexcept { return layout().own(); }
  std::size_t own_index() const noexcept { return static_cast<std::size_t>(local_->rank()); }
  std::size_t members_here() const noexcept { return layout().own_places().size(); }

  // Members may have one output together. They then take turns in writing its pieces.
  struct Writers {
    std::size_t turn = 0;       ///< this member's number among those who have its output
    std::size_t count = 1;      ///< how many have it
    bool any_together = false;  ///< whether any members here have an output together
  };
  Writers writers(const Verb& verb);

  bool goes_in_pieces(const Verb& verb) const;
  void in_pieces(const Verb& verb);
  void make(const Verb& verb, const Piece& piece);
  void send(const Verb& verb, const Piece& piece, Communicator& outer) const;
  void interrupt_leaders(const std::exception_ptr& error) noexcept {
    if (outer() == nullptr) return;
    outer()->interrupt(error);
    other_outer_->interrupt(error);
  }
  void take(const Verb& verb, const Piece& piece) const;

  void by_leader(std::uint64_t mark, const Verb& verb);
  void check_sizes(const Verb& verb, std::span<const std::size_t> said) const;

  Bytes common_memory(std::size_t bytes);
  void tell(const std::exception_ptr& error);

  std::shared_ptr<const Workers> workers_;
  std::vector<int> members_;  // their ranks in the job, in the group's order
  std::shared_ptr<Communicator> local_;
  std::shared_ptr<Communicator> other_outer_;  // the leaders', for every other piece
  bool have_blocks_;                           // the layout's has_blocks()
  SymmetricBuffer common_;
};

// A channel for a group's leaders and its members here. Other groups may have the same leaders.
std::uint64_t channel_of(std::span<const int> members, std::uint64_t channel) {
  Key key = Key(channel).fold("hosts");
  for (const int member : members) key = key.fold(static_cast<std::uint64_t>(member));
  return key.bits();
}

// The Communicator of the leaders; nullptr where this worker is none, or where there is one host.
std::shared_ptr<Communicator> leaders_of(const Workers& job, const GroupLayout& layout,
                                         std::span<const int> members, std::uint64_t channel) {
  std::vector<int> leaders;
  for (const auto& places : layout.places()) {
    leaders.push_back(members[static_cast<std::size_t>(places[0])]);
  }
  if (leaders.size() == 1 || leaders[layout.own()] != job.network->rank()) return nullptr;
  return job.network->subgroup(leaders, channel_of(members, channel));
}

HostMembers::HostMembers(std::shared_ptr<const Workers> job, std::vector<int> members,
                         std::uint64_t channel, GroupLayout layout)
    : LocalMembers(layout, leaders_of(*job, layout, members, channel)),
      workers_(std::move(job)),
      members_(std::move(members)),
      other_outer_(leaders_of(*workers_, layout, members_, Key(channel).fold("other").bits())),
      have_blocks_(layout.has_blocks()) {
  std::vector<int> here;
  for (const int place : layout.own_places()) {
    here.push_back(members_[static_cast<std::size_t>(place)] - workers_->first_here());
  }
  local_ = workers_->local->subgroup(here, channel_of(members_, channel));
}

std::shared_ptr<LocalMembers> HostMembers::subgroup(std::span<const int> members, int,
                                                    std::uint64_t channel) {
  std::vector<int> in_job;
  for (const int member : members) in_job.push_back(members_[static_cast<std::size_t>(member)]);
  return std::make_shared<HostMembers>(workers_, std::move(in_job), channel);
}

void HostMembers::meet(int, std::uint64_t mark, const Verb& verb) {
  local_->mark(mark);
  if (!spans_hosts()) return local_->run(verb);
  if (verb.kind == Verb::Kind::allocate) {
    *verb.buffer = local_->allocate(verb.bytes, verb.copies);
    if (verb.copies == Copies::one) verb.buffer->holders = layout().places();
    return;
  }
  if (hosts() == layout().size()) {  // the outer group is the group
    const Verb* const own = &verb;
    return run_all(mark, {&own, 1});
  }
  if (!goes_in_pieces(verb)) return by_leader(mark, verb);
  if (outer() != nullptr) {
    outer()->mark(mark);
    other_outer_->mark(mark);
  }
  in_pieces(verb);
}

bool HostMembers::goes_in_pieces(const Verb& verb) const {
  switch (verb.kind) {
    case Verb::Kind::all_reduce:
      return reduce::ReductionPlan(layout().places(), verb.type, verb.op).is_one_sum_each();
    case Verb::Kind::reduce_scatter:
      return have_blocks_ &&
             reduce::ReductionPlan(layout().places(), verb.type, verb.op).is_one_sum_each();
    case Verb::Kind::all_gather:
      return have_blocks_;
    case Verb::Kind::broadcast:
    case Verb::Kind::barrier:
      return true;
    default:
      return false;
  }
}

// Rows are: the buffer of an all_reduce or broadcast; in a reduce_scatter's input, the slices of
// each host's members; in an all_gather's output, what comes from each member.
void HostMembers::in_pieces(const Verb& verb) {
  const bool scatters = verb.kind == Verb::Kind::reduce_scatter;
  const bool gathers = verb.kind == Verb::Kind::all_gather;
  const std::size_t rows = scatters ? hosts() : gathers ? layout().size() : 1;
  const std::size_t row = (scatters ? verb.input.size() : verb.output.size()) / rows;
  const std::size_t most = std::min(row, whole_lines(kPiece / rows));
  // A barrier is one piece of nothing.
  const std::size_t count = verb.kind == Verb::Kind::barrier ? 1
                            : row == 0                       ? 0
                                                             : ceil_div(row, most);
  const std::size_t slot = whole_lines(rows * most);
  constexpr std::size_t kSlots = kUnderWay + 1;
  const Bytes slots = common_memory(std::min(count, kSlots) * slot);
  const auto piece = [&](std::size_t index) {
    const std::size_t bytes = std::min(most, row - index * most);
    return Piece{index * most, bytes, slots.subspan(index % kSlots * slot).first(rows * bytes)};
  };

  if (count == 0) return;
  const Writers writers = this->writers(verb);
  std::array<std::future<void>, kUnderWay> sending;
  // An exception first interrupts the leader's messages: the futures' destructors wait for them.
  const struct Leaving {
    HostMembers& members;
    const std::array<std::future<void>, kUnderWay>& sending;
    ~Leaving() {
      if (std::ranges::none_of(sending, &std::future<void>::valid)) return;
      members.interrupt_leaders(
          std::make_exception_ptr(Aborted("the members of this host have failed")));
    }
  } leaving{*this, sending};
  // One piece needs no other thread.
  const auto policy = count > 1 ? std::launch::async : std::launch::deferred;
  std::exception_ptr error;
  for (std::size_t index = 0; index < count + kUnderWay; ++index) {
    if (index < count) make(verb, piece(index));
    std::future<void>& own = sending[index % kUnderWay];
    Communicator* const leaders = index % kUnderWay == 0 ? outer() : other_outer_.get();
    try {
      if (own.valid()) own.get();
      if (index < count && leaders != nullptr && !error) {
        own = std::async(policy, [&, leaders, now = piece(index)] { send(verb, now, *leaders); });
      }
    } catch (...) {
      error = std::current_exception();
    }
    if (index < kUnderWay) continue;
    tell(error);
    const std::size_t sent = index - kUnderWay;
    if (sent % writers.count == writers.turn) take(verb, piece(sent));
  }
  if (writers.any_together) local_->barrier();
}

// An all_gather and a broadcast may write to an output that members have together.
HostMembers::Writers HostMembers::writers(const Verb& verb) {
  const bool writes_one = verb.kind == Verb::Kind::all_gather || verb.kind == Verb::Kind::broadcast;
  if (!writes_one || verb.output.empty()) return {};
  const SharedAddress own = local_->shared_address(verb.output);
  std::vector<SharedAddress> all(members_here());
  local_->all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  const auto together = [&](std::size_t one, std::size_t other) {
    return one == other || (all[one].extent != 0 && all[one] == all[other]);
  };
  Writers writers{.count = 0};
  for (std::size_t member = 0; member < all.size(); ++member) {
    if (together(member, own_index())) writers.turn += member < own_index() ? 1 : 0;
    if (together(member, own_index())) ++writers.count;
    for (std::size_t other = 0; other < member; ++other) {
      writers.any_together = writers.any_together || together(member, other);
    }
  }
  return writers;
}

// The members' part of a message, in common memory.
void HostMembers::make(const Verb& verb, const Piece& piece) {
  const auto [offset, bytes, slot] = piece;
  switch (verb.kind) {
    case Verb::Kind::all_reduce:
      return local_->all_reduce(verb.input.subspan(offset, bytes), slot, verb.type,
                                reduce::partial_op(verb.op));
    case Verb::Kind::reduce_scatter: {
      const std::size_t row = verb.input.size() / hosts();
      if (bytes == row) {
        return local_->all_reduce(verb.input, slot, verb.type, reduce::partial_op(verb.op));
      }
      for (std::size_t host = 0; host < hosts(); ++host) {
        local_->all_reduce(verb.input.subspan(host * row + offset, bytes),
                           slot.subspan(host * bytes, bytes), verb.type,
                           reduce::partial_op(verb.op));
      }
      return;
    }
    case Verb::Kind::all_gather: {
      const std::size_t own = members_here() * bytes;
      return local_->all_gather(verb.input.subspan(offset, bytes),
                                slot.subspan(own_host() * own, own));
    }
    case Verb::Kind::broadcast: {
      local_->barrier();  // all have taken what the slot held
      const auto root = static_cast<std::size_t>(verb.root);
      if (layout().worker_of(root) != own_host()) return;
      if (layout().index_of(root) == own_index())
        copy_bytes(verb.output.subspan(offset, bytes), slot);
      return local_->barrier();
    }
    default:
      return local_->barrier();
  }
}

// The leader's part: the outer group's verb on the slot.
void HostMembers::send(const Verb& verb, const Piece& piece, Communicator& outer) const {
  const Bytes slot = piece.slot;
  const Bytes own = slot.subspan(own_host() * (slot.size() / hosts()));
  switch (verb.kind) {
    case Verb::Kind::all_reduce:
      return outer.all_reduce(slot, slot, verb.type, reduce::partial_op(verb.op));
    case Verb::Kind::reduce_scatter:
      return outer.reduce_scatter(slot, own.first(piece.bytes), verb.type,
                                  reduce::partial_op(verb.op));
    case Verb::Kind::all_gather:
      return outer.all_gather(own.first(members_here() * piece.bytes), slot);
    case Verb::Kind::broadcast:
      return outer.broadcast(slot, static_cast<int>(layout().worker_of(verb.root)));
    default:
      return outer.barrier();
  }
}

// A member's part of the result.
void HostMembers::take(const Verb& verb, const Piece& piece) const {
  const auto [offset, bytes, slot] = piece;
  const auto take_part = [&](ConstBytes from, std::size_t at) {
    const Bytes to = verb.output.subspan(at, from.size());
    copy_bytes(from, to);
    if (verb.op == reduce::ReduceOp::mean) {
      reduce::divide(to, static_cast<int>(layout().size()), verb.type);
    }
  };
  switch (verb.kind) {
    case Verb::Kind::all_reduce:
      return take_part(slot, offset);
    case Verb::Kind::reduce_scatter: {
      // The part of the piece that is in the own slice.
      const std::size_t slice = own_index() * verb.output.size();
      const auto common = intersection<std::size_t>({offset, bytes}, {slice, verb.output.size()});
      if (common.size == 0) return;
      return take_part(slot.subspan(own_host() * bytes + common.offset - offset, common.size),
                       common.offset - slice);
    }
    case Verb::Kind::all_gather:
      for (std::size_t place = 0; place < layout().size(); ++place) {
        copy_bytes(slot.subspan(place * bytes, bytes),
                   verb.output.subspan(place * verb.input.size() + offset));
      }
      return;
    case Verb::Kind::broadcast:
      return copy_bytes(slot, verb.output.subspan(offset));
    default:
      return;
  }
}

// The leader reads each member's buffers by the sizes that it has said. Every member checks what
// all have `said`, so that all throw or none.
void HostMembers::check_sizes(const Verb& verb, std::span<const std::size_t> said) const {
  const std::size_t numbers = said.size() / members_here();
  const std::size_t replicas = verb.send_sizes.size();
  const auto of = [&](std::size_t member) { return said.subspan(member * numbers, numbers); };
  const auto place = [&](std::size_t member) {
    return static_cast<std::size_t>(layout().own_places()[member]);
  };
  bool agree = true;
  for (std::size_t one = 0; one < members_here(); ++one) {
    if (verb.kind != Verb::Kind::all_to_all) agree = agree && std::ranges::equal(of(one), of(0));
    for (std::size_t to = 0; replicas > 0 && to < members_here(); ++to) {
      agree = agree && of(one)[place(to)] == of(to)[replicas + place(one)];
    }
  }
  if (!agree) throw CollectiveMismatch("replicas of a host called collectives of other sizes");
}

void HostMembers::by_leader(std::uint64_t mark, const Verb& verb) {
  // Members tell each other the sizes of what they send to each replica and receive.
  std::vector<std::size_t> own_sizes(verb.send_sizes.begin(), verb.send_sizes.end());
  own_sizes.insert(own_sizes.end(), verb.recv_sizes.begin(), verb.recv_sizes.end());
  own_sizes.push_back(verb.input.size());
  own_sizes.push_back(verb.output.size());
  const std::size_t numbers = own_sizes.size();
  std::vector<std::size_t> sizes(numbers * members_here());
  local_->all_gather(std::as_bytes(std::span(own_sizes)), std::as_writable_bytes(std::span(sizes)));

  check_sizes(verb, sizes);

  // Common memory has each member's input and output. An all_reduce or all_gather has one output.
  const bool is_one = verb.kind == Verb::Kind::all_reduce || verb.kind == Verb::Kind::all_gather;
  std::vector<Verb> verbs(members_here(), verb);
  std::size_t total = 0;
  const auto place = [&](std::size_t bytes) {
    return std::exchange(total, total + whole_lines(bytes));
  };
  std::vector<std::size_t> inputs;
  std::vector<std::size_t> outputs;
  for (std::size_t member = 0; member < members_here(); ++member) {
    const auto said = std::span(sizes).subspan(member * numbers, numbers);
    verbs[member].send_sizes = said.first(verb.send_sizes.size());
    verbs[member].recv_sizes = said.subspan(verb.send_sizes.size(), verb.recv_sizes.size());
    inputs.push_back(place(said[numbers - 2]));
    outputs.push_back(is_one && member > 0 ? outputs[0] : place(said[numbers - 1]));
  }
  const Bytes common = common_memory(total);
  for (std::size_t member = 0; member < members_here(); ++member) {
    const auto said = std::span(sizes).subspan(member * numbers, numbers);
    verbs[member].input = common.subspan(inputs[member], said[numbers - 2]);
    verbs[member].output = common.subspan(outputs[member], said[numbers - 1]);
  }

  const Verb& own = verbs[own_index()];
  copy_bytes(verb.input, common.subspan(inputs[own_index()], verb.input.size()));
  local_->barrier();
  std::exception_ptr error;
  if (outer() != nullptr) {
    std::vector<const Verb*> all;
    for (const Verb& each : verbs) all.push_back(&each);
    try {
      run_all(mark, all);
    } catch (...) {
      error = std::current_exception();
    }
  }
  tell(error);
  const Writers writers = this->writers(verb);
  if (writers.turn == 0) copy_bytes(own.output, verb.output);
  if (writers.any_together) local_->barrier();
}

// Memory that all members here share, until the next call. Up to Scratch's limit for each member's
// input and a result it is kept: fresh pages cost more than the copies into them.
Bytes HostMembers::common_memory(std::size_t bytes) {
  const std::size_t kept = (members_here() + 1) * Scratch::kKept;
  if (bytes > common_.own.size() || common_.own.size() > kept) {
    common_ = {};
    if (bytes > 0) common_ = local_->allocate(std::max(bytes, kPage), Copies::one);
  }
  return common_.own.first(bytes);
}

// Ends the leader's part of a verb. If it has failed, all members throw the error.
void HostMembers::tell(const std::exception_ptr& error) {
  LeadersError outcome(error);
  local_->broadcast(outcome.bytes(), 0);
  if (error) std::rethrow_exception(error);
  outcome.check();
}

}  // namespace

std::shared_ptr<Communicator> join_hosts(std::shared_ptr<Communicator> local,
                                         std::shared_ptr<Communicator> network,
                                         std::vector<int> host_of) {
  require(host_of.size() == static_cast<std::size_t>(network->size()),
          "join_hosts: ", host_of.size(), " workers have a host, but there are ", network->size());
  for (std::size_t worker = 1; worker < host_of.size(); ++worker) {
    const auto before = std::span(host_of).first(worker);
    require(host_of[worker] == before.back() || std::ranges::count(before, host_of[worker]) == 0,
            "join_hosts: the workers of host ", host_of[worker], " are not next to each other");
  }
  const int rank = network->rank();
  const auto job = std::make_shared<const Workers>(
      Workers{std::move(local), std::move(network), std::move(host_of)});
  const auto here = std::ranges::count(job->host_of, job->own_host());
  require(job->local->size() == here && job->local->rank() == rank - job->first_here(),
          "join_hosts: worker ", rank, " is ", rank - job->first_here(), " of ", here,
          " on its host, but ", job->local->rank(), " of ", job->local->size(),
          " in what joins these");
  return std::make_shared<Hierarchy>(
      std::make_shared<HostMembers>(job, consecutive(0, job->host_of.size()), 0), rank);
}

void set_up_links(Communicator& world, const std::vector<int>& host_of,
                  const std::optional<LinkSpeed>& known) {
  std::vector<int> firsts;
  for (std::size_t worker = 0; worker < host_of.size(); ++worker) {
    if (worker == 0 || host_of[worker] != host_of[worker - 1]) {
      firsts.push_back(static_cast<int>(worker));
    }
  }
  LinkSpeed speed = known.value_or(kLoopback);
  if (!known) {
    if (std::ranges::count(firsts, world.rank()) > 0) {
      speed = measure_links(*world.subgroup(firsts, Key(0).fold("links").bits()));
    }
    world.broadcast(std::as_writable_bytes(std::span(&speed, 1)), 0);
  }
  world.set_link_speed(speed);
  if (world.rank() != 0) return;
  const ScheduleChoice choice(static_cast<int>(firsts.size()), speed);
  log_info(str(known ? "links between hosts, as configured: " : "links between hosts: ", speed,
               "; ", choice.text()));
}

}  // namespace lockstep::comm
