#include "framework/comm/host_members.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <semaphore>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "framework/base/bytes.h"
#include "framework/base/errors.h"
#include "framework/base/logging.h"
#include "framework/base/non_copyable.h"
#include "framework/base/pages.h"
#include "framework/base/random.h"
#include "framework/base/range.h"
#include "framework/base/text.h"
#include "framework/comm/group_layout.h"
#include "framework/comm/schedule_choice.h"
#include "framework/comm/together.h"
#include "framework/reduce/partial_sums.h"

namespace lockstep::comm {
namespace {

// The size of a piece, about: verbs on larger buffers go through common memory in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 20;
// Pieces are of whole cache lines.
constexpr std::size_t kLine = 64;

bool is_reduction(const Verb& verb) {
  return verb.kind == Verb::Kind::all_reduce || verb.kind == Verb::Kind::reduce_scatter;
}

std::size_t whole_lines(std::size_t bytes) {
  return round_up(bytes, kLine);
}

// All workers of the job.
struct Workers {
  std::shared_ptr<Communicator> local;
  std::shared_ptr<Communicator> network;
  std::vector<int> host_of;

  [[nodiscard]] int own_host() const { return host_of[static_cast<std::size_t>(network->rank())]; }
  /// Returns the first worker of this host.
  [[nodiscard]] int first_here() const {
    return static_cast<int>(std::ranges::find(host_of, own_host()) - host_of.begin());
  }

  /// Returns the hosts of a group of `members`.
  [[nodiscard]] GroupLayout layout(std::span<const int> members) const {
    std::vector<calls::GroupMember> on_hosts(members.size());
    for (std::size_t place = 0; place < members.size(); ++place) {
      on_hosts[place].worker = host_of[static_cast<std::size_t>(members[place])];
    }
    return {on_hosts, own_host()};
  }
};

// The error of the leader's part of a verb, for the other members of its host. It is in memory that
// they share, zero at first: nothing has failed.
class LeadersError {
 public:
  void set(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      // For the others, an error that is not ours, such as std::bad_alloc, is a failure of the job.
      const auto* const ours = dynamic_cast<const Error*>(&known);
      has_failed_ = true;
      kind_ = ours != nullptr ? ours->kind() : ErrorKind::comm;
      std::string_view(known.what()).copy(text_.data(), text_.size() - 1);
    }
  }

  void check() const {
    if (has_failed_) throw_as(kind_, text_.data());
  }

 private:
  bool has_failed_;
  ErrorKind kind_;
  std::array<char, 984> text_;  // ends with a zero
};

// tell() uses two errors in turn: a member may still read the one of the call before.
constexpr std::size_t kErrorBytes = 2048;
static_assert(2 * sizeof(LeadersError) <= kErrorBytes);

// A thread that does one task at a time; the first task starts it.
class Helper : private NonCopyable {
 public:
  ~Helper() {
    thread_.request_stop();
    begun_.release();
  }
  void begin(std::function<void()> task) {
    if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& s) { work(s); });
    task_ = std::move(task);
    is_busy_ = true;
    begun_.release();
  }
  // Waits for the task, if there is one, and returns what it has thrown.
  std::exception_ptr finish() {
    if (std::exchange(is_busy_, false)) ended_.acquire();
    return std::exchange(error_, nullptr);
  }

 private:
  void work(const std::stop_token& stop) {
    for (begun_.acquire(); !stop.stop_requested(); begun_.acquire()) {
      error_ = thrown_by(task_);
      ended_.release();
    }
  }

  std::function<void()> task_;
  std::exception_ptr error_;
  bool is_busy_ = false;
  std::binary_semaphore begun_{0};
  std::binary_semaphore ended_{0};
  std::jthread thread_;
};

// A group whose members are on any hosts. On one host it uses the local group. If each host has one
// member, it uses the network's group; so does an all_to_all, in which nothing is sent twice. Other
// verbs go in pieces. The members of a host make a piece's message in common memory: in a reduction
// the host's sum, if other hosts need no more, or their inputs. The leader sends it. Meanwhile the
// members take the result of an earlier piece, and make the message of the next one.
//
// Pieces use the slots of common memory in turn. There is one slot more than pieces are under way:
// a member takes the piece in a slot before it calls the verb of the local group that makes the
// next piece there. This verb writes nothing before all members have called it, so nobody
// overwrites a piece that another member has not taken yet.
class HostMembers final : public Communicator {
 public:
  HostMembers(std::shared_ptr<const Workers> job, std::vector<int> members, int place,
              std::uint64_t channel)
      : Communicator(place, static_cast<int>(members.size())),
        workers_(std::move(job)),
        members_(std::move(members)),
        layout_(workers_->layout(members_)),
        channel_(Key(channel).fold("hosts").fold(members_).bits()) {
    std::vector<int> here = items_at(members_, layout_.own_places());
    for (int& worker : here) worker -= workers_->first_here();
    local_ = workers_->local->subgroup(here, channel_);
    if (!spans_hosts()) return;
    network_ = workers_->network->subgroup(members_, channel);
    if (!shares_memory() || own_index() > 0) return;
    const auto leaders = mapped(layout_.places(), [&](const auto& places) {
      return members_[static_cast<std::size_t>(places[0])];
    });
    for (std::uint64_t i = 0; i < kPiecesUnderWay; ++i) {
      senders_.emplace_back(new Sender{
          {layout_, workers_->network->subgroup(leaders, Key(channel_).fold(i).bits())}, {}});
    }
  }

  void run(const Verb& verb) override {
    const std::uint64_t mark = next_mark();
    local_->mark(mark);
    if (!spans_hosts()) return local_->run(verb);
    if (verb.kind == Verb::Kind::allocate) {
      *verb.buffer = local_->allocate(verb.bytes, verb.copies);
      if (verb.copies == Copies::one) verb.buffer->holders = layout_.places();
      return;
    }
    if (!shares_memory() || verb.kind == Verb::Kind::all_to_all) {
      network_->mark(mark);
      return network_->run(verb);
    }
    for (const auto& sender : senders_) sender->hosts.workers()->mark(mark);
    // Some verbs exchange no sizes here. Members with other sizes must not meet.
    Key sizes = Key(mark).fold(static_cast<std::uint64_t>(verb.kind));
    for (const std::size_t size : {verb.input.size(), verb.output.size()}) sizes = sizes.fold(size);
    local_->mark(sizes.bits());
    in_pieces(verb);
  }

  void interrupt(const std::exception_ptr& error) noexcept override {
    local_->interrupt(error);
    if (network_) network_->interrupt(error);
    interrupt_leaders(error);
  }
  void abort(const std::string& reason) noexcept override {
    workers_->local->abort(reason);
    workers_->network->abort(reason);
  }
  bool is_network() const noexcept override { return spans_hosts(); }
  bool shares_memory() const noexcept override { return hosts() < layout_.size(); }
  SharedAddress shared_address(ConstBytes memory) const override {
    return spans_hosts() ? SharedAddress{} : local_->shared_address(memory);
  }
  void set_link_speed(const LinkSpeed& speed) override { workers_->network->set_link_speed(speed); }
  double all_reduce_seconds(std::size_t bytes) const override {
    if (!spans_hosts()) return 0;
    const ScheduleChoice choice(static_cast<int>(hosts()), workers_->network->link_speed());
    return choice.all_reduce_seconds(bytes);
  }
  const Ledger& ledger() const noexcept override {
    return spans_hosts() ? workers_->network->ledger() : local_->ledger();
  }

 private:
  // Columns [offset, offset + bytes) of all rows of a verb. The slot has them once (sums) or once a
  // member (inputs); results overwrite the first member's rows, or each member's own.
  struct Piece {
    std::size_t offset;
    std::size_t bytes;
    std::size_t rows;
    Bytes slot;

    [[nodiscard]] Bytes rows_of(std::size_t member) const {
      return slot.subspan(member * rows * bytes, rows * bytes);
    }
    [[nodiscard]] Bytes row(std::size_t index, std::size_t member = 0) const {
      return rows_of(member).subspan(index * bytes, bytes);
    }
  };
  // The leaders' group for every second piece, and the thread that sends it. Only leaders have one.
  struct Sender {
    Together hosts;
    Helper helper;
  };

  bool spans_hosts() const noexcept { return hosts() > 1; }
  std::size_t hosts() const noexcept { return layout_.workers(); }
  std::size_t own_host() const noexcept { return layout_.own(); }
  std::size_t own_index() const noexcept { return static_cast<std::size_t>(local_->rank()); }
  std::size_t members_here() const noexcept { return layout_.own_places().size(); }
  // True when hosts reduce their partial sums as if each had one member. Members then make a mean
  // of the sum themselves.
  bool is_of_hosts(const Verb& verb) const {
    return layout_.plan(verb.type, verb.op).is_one_sum_each() &&
           (verb.kind == Verb::Kind::all_reduce || layout_.has_blocks());
  }
  // True when a slot has rows of each member here.
  bool has_inputs(const Verb& verb) const { return is_reduction(verb) && !is_of_hosts(verb); }

  // An all_gather has one row a member, padded to the largest host. A reduce_scatter has one a host
  // (sums) or a member (inputs). Another verb's buffer is one row.
  std::size_t rows_of(const Verb& verb) const {
    if (verb.kind == Verb::Kind::all_gather) return hosts() * layout_.most_members();
    if (verb.kind != Verb::Kind::reduce_scatter) return 1;
    return is_of_hosts(verb) ? hosts() : layout_.size();
  }

  std::shared_ptr<Communicator> do_subgroup(std::span<const int> members, int own_place,
                                            std::uint64_t channel) override {
    return std::make_shared<HostMembers>(workers_, items_at(members_, members), own_place, channel);
  }

  // An all_gather and a broadcast may write to an output that members here share. Then no member
  // returns before all have written: it may change the output.
  struct Outputs {
    bool are_one = false;     ///< all members here have the same
    bool are_shared = false;  ///< some members here have the same
  };

  Outputs outputs(const Verb& verb) {
    const bool may_have = verb.kind == Verb::Kind::all_gather || verb.kind == Verb::Kind::broadcast;
    if (!may_have || verb.output.empty()) return {};
    const SharedAddress own = local_->shared_address(verb.output);
    const std::vector<SharedAddress> all = local_->all_gather(own);
    const auto is_of_several = [&](const SharedAddress& each) {
      return each.extent != 0 && std::ranges::count(all, each) > 1;
    };
    return {own.extent != 0 && std::ranges::count(all, own) == std::ssize(all),
            std::ranges::any_of(all, is_of_several)};
  }

  void in_pieces(const Verb& verb) {
    const std::size_t rows = rows_of(verb);
    const std::size_t inputs = has_inputs(verb) ? layout_.most_members() : 1;
    const std::size_t row = verb.kind == Verb::Kind::all_gather ? verb.input.size()
                            : is_reduction(verb)                ? verb.input.size() / rows
                                                                : verb.output.size();
    const HostPieces pieces(rows, row);
    const std::size_t most = pieces.bytes;
    // A barrier is one piece of nothing.
    const std::size_t count = verb.kind == Verb::Kind::barrier ? 1 : pieces.count;
    if (count == 0) return;
    const std::size_t slot = whole_lines(inputs * rows * most);
    constexpr std::size_t kSlots = kPiecesUnderWay + 1;
    const Bytes slots = common_memory(std::min(count, kSlots) * slot);
    const auto piece = [&](std::size_t index) {
      const std::size_t bytes = std::min(most, row - index * most);
      return Piece{index * most, bytes, rows, slots.subspan(index % kSlots * slot, slot)};
    };

    // If all members here have one output, they take turns in writing its pieces.
    const auto [is_common, is_shared] = outputs(verb);
    const std::size_t writers = is_common ? members_here() : 1;
    // An exception first interrupts the leader's messages, and then waits for them.
    struct Leaving {
      HostMembers& members;
      bool done = false;
      ~Leaving() {
        if (done || members.senders_.empty()) return;
        members.interrupt_leaders(
            std::make_exception_ptr(Aborted("the members of this host have failed")));
        for (const auto& sender : members.senders_) (void)sender->helper.finish();
      }
    } leaving{*this};
    std::exception_ptr error;
    for (std::size_t index = 0; index < count + kPiecesUnderWay; ++index) {
      if (index < count) make(verb, piece(index));
      if (!senders_.empty()) {
        Sender& sender = *senders_[index % kPiecesUnderWay];
        const std::exception_ptr failed = sender.helper.finish();
        if (!error) error = failed;
        if (index < count && !error) {
          const auto task = [&, now = piece(index)] { send(verb, now, sender.hosts); };
          // One piece needs no other thread.
          error = count == 1 ? thrown_by(task) : thrown_by([&] { sender.helper.begin(task); });
        }
      }
      if (index < kPiecesUnderWay) continue;
      tell(error, index);
      const std::size_t sent = index - kPiecesUnderWay;
      if (writers == 1 || sent % writers == own_index()) take(verb, piece(sent));
    }
    leaving.done = true;
    if (is_shared) local_->barrier();
  }

  // Makes the members' part of a message, in common memory.
  void make(const Verb& verb, const Piece& piece) {
    switch (verb.kind) {
      case Verb::Kind::all_reduce:
      case Verb::Kind::reduce_scatter:
        return make_sum(verb, piece);
      case Verb::Kind::all_gather: {
        const std::size_t first = own_host() * layout_.most_members();
        return local_->all_gather(
            verb.input.subspan(piece.offset, piece.bytes),
            piece.slot.subspan(first * piece.bytes, members_here() * piece.bytes));
      }
      case Verb::Kind::broadcast: {
        local_->barrier();  // all have taken the slot's piece
        if (layout_.worker_of(verb.root) != own_host()) return;
        if (verb.root == rank()) {
          copy_bytes(verb.output.subspan(piece.offset, piece.bytes), piece.row(0));
        }
        return local_->barrier();
      }
      default:
        return local_->barrier();
    }
  }

  void make_sum(const Verb& verb, const Piece& piece) {
    const bool copies = has_inputs(verb);
    if (copies) local_->barrier();  // all have taken the slot's piece
    const Bytes all = piece.rows_of(copies ? own_index() : 0);
    const auto add = [&](ConstBytes input, Bytes to) {
      if (copies) return copy_bytes(input, to);
      local_->all_reduce(input, to, verb.type, reduce::partial_op(verb.op));
    };
    const std::size_t row = verb.input.size() / piece.rows;
    if (piece.bytes == row) {
      add(verb.input, all);
    } else {
      for (std::size_t i = 0; i < piece.rows; ++i) {
        add(verb.input.subspan(i * row + piece.offset, piece.bytes),
            all.subspan(i * piece.bytes, piece.bytes));
      }
    }
    if (copies) local_->barrier();
  }

  // Does the leader's part: the leaders' verb on the slot.
  void send(const Verb& verb, const Piece& piece, Together& hosts) const {
    if (has_inputs(verb)) return send_inputs(verb, piece, hosts);
    const Bytes all = piece.rows_of(0);
    Verb of_hosts = verb;
    of_hosts.op = reduce::partial_op(verb.op);
    of_hosts.input = of_hosts.output = all;
    switch (verb.kind) {
      case Verb::Kind::reduce_scatter:
        of_hosts.output = piece.row(own_host());
        break;
      case Verb::Kind::all_gather: {
        const std::size_t block = layout_.most_members() * piece.bytes;
        of_hosts.input = all.subspan(own_host() * block, block);
        break;
      }
      default:
        of_hosts.root = static_cast<int>(layout_.worker_of(verb.root));
    }
    hosts.workers()->run(of_hosts);
  }

  // Does the verb of all members here on their inputs in the slot.
  void send_inputs(const Verb& verb, const Piece& piece, Together& hosts) const {
    std::vector<Verb> verbs(members_here(), verb);
    std::vector<const Verb*> all;
    for (std::size_t member = 0; member < verbs.size(); ++member) {
      const auto place = static_cast<std::size_t>(layout_.own_places()[member]);
      verbs[member].input = piece.rows_of(member);
      verbs[member].output =
          verb.kind == Verb::Kind::all_reduce ? piece.row(0) : piece.row(place, member);
      all.push_back(&verbs[member]);
    }
    hosts.run(all);
  }

  // Takes a member's part of the result.
  void take(const Verb& verb, const Piece& piece) const {
    switch (verb.kind) {
      case Verb::Kind::all_reduce:
      case Verb::Kind::reduce_scatter: {
        // A member takes the part of the piece that is in its own slice.
        const bool scatters = verb.kind == Verb::Kind::reduce_scatter;
        const bool is_of_hosts = this->is_of_hosts(verb);
        const std::size_t slice = scatters && is_of_hosts ? own_index() * verb.output.size() : 0;
        const Bytes row = !scatters     ? piece.row(0)
                          : is_of_hosts ? piece.row(own_host())
                                        : piece.row(static_cast<std::size_t>(rank()), own_index());
        const auto common =
            intersection<std::size_t>({piece.offset, piece.bytes}, {slice, verb.output.size()});
        if (common.size == 0) return;
        const Bytes to = verb.output.subspan(common.offset - slice, common.size);
        copy_bytes(row.subspan(common.offset - piece.offset, common.size), to);
        if (is_of_hosts) reduce::divide(to, size(), verb.type, verb.op);
        return;
      }
      case Verb::Kind::all_gather:
        for (std::size_t place = 0; place < layout_.size(); ++place) {
          const std::size_t row =
              layout_.worker_of(place) * layout_.most_members() + layout_.index_of(place);
          copy_bytes(piece.row(row), verb.output.subspan(place * verb.input.size() + piece.offset));
        }
        return;
      case Verb::Kind::broadcast:
        return copy_bytes(piece.row(0), verb.output.subspan(piece.offset));
      default:
        return;
    }
  }

  // Returns memory that all members here share until the next call, behind the leader's errors. It
  // is kept, as in Scratch, up to Scratch's limit for each member's input and a result.
  Bytes common_memory(std::size_t bytes) {
    const std::size_t all = kErrorBytes + bytes;
    const std::size_t kept = (members_here() + 1) * Scratch::kKept;
    if (all > common_.own.size() || common_.own.size() > kept) {
      common_ = {};
      common_ = local_->allocate(std::max(all, kPage), Copies::one);
    }
    return common_.own.subspan(kErrorBytes, bytes);
  }

  // Ends the leader's part of a piece. If it has failed, all members throw the error.
  void tell(const std::exception_ptr& error, std::size_t turn) {
    auto& told = reinterpret_cast<LeadersError*>(common_.own.data())[turn % 2];
    if (error) told.set(error);
    local_->barrier();
    if (error) std::rethrow_exception(error);
    told.check();
  }

  void interrupt_leaders(const std::exception_ptr& error) noexcept {
    for (const auto& sender : senders_) sender->hosts.workers()->interrupt(error);
  }

  std::shared_ptr<const Workers> workers_;
  std::vector<int> members_;  // their ranks in the job, in the group's order
  GroupLayout layout_;        // of hosts
  std::uint64_t channel_;     // of the local and the leaders' group: leaders may lead other groups
  std::shared_ptr<Communicator> local_;
  std::shared_ptr<Communicator> network_;  // of all members, if they are on several hosts
  std::vector<std::unique_ptr<Sender>> senders_;
  SymmetricBuffer common_;
};

}  // namespace

HostPieces::HostPieces(std::size_t rows, std::size_t row)
    : bytes(std::min(row, whole_lines(std::max<std::size_t>(1, kPiece / rows)))),
      count(row == 0 ? 0 : ceil_div(row, bytes)) {}

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
  return std::make_shared<HostMembers>(job, consecutive(0, job->host_of.size()), rank, 0);
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
