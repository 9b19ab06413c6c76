// Open MPI, one process a replica.
//
// openmpi --version        prints the library's name and version, and needs no mpirun
// mpirun … openmpi FOLDER  a replica, see link.h

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "framework/base/errors.h"
#include "framework/base/text.h"
#include "trainers/bench/systems/link.h"

namespace lockstep::bench {
namespace {

class MpiCollectives : public ReplicaTask {
 public:
  MpiCollectives(int rank, int replicas) : rank_(rank), replicas_(replicas) {}

  std::string prepare(const std::string& name, std::int64_t bytes) override {
    scatters_ = name == "reduce_scatter";
    gathers_ = name == "all_gather";
    const auto floats = static_cast<std::size_t>(bytes) / sizeof(float);
    const std::size_t part = floats / static_cast<std::size_t>(replicas_);
    input_ = output_ = {};
    input_.assign(gathers_ ? part : floats, static_cast<float>(rank_ + 1));
    output_.assign(scatters_ ? part : floats, 0);
    call();
    const auto sum = static_cast<float>(replicas_ * (replicas_ + 1) / 2);
    for (std::size_t i = 0; i < output_.size(); ++i) {
      const auto giver = static_cast<float>(i / input_.size() + 1);
      require<Error>(output_[i] == (gathers_ ? giver : sum), name, ": the result is wrong");
    }
    return "";
  }

  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }

  void call() override {
    const auto sent = static_cast<int>(input_.size());
    const auto received = static_cast<int>(output_.size());
    if (scatters_) {
      MPI_Reduce_scatter_block(input_.data(), output_.data(), received, MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
    } else if (gathers_) {
      MPI_Allgather(input_.data(), sent, MPI_FLOAT, output_.data(), sent, MPI_FLOAT,
                    MPI_COMM_WORLD);
    } else {
      MPI_Allreduce(input_.data(), output_.data(), sent, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
  }

 private:
  int rank_;
  int replicas_;
  bool scatters_ = false;
  bool gathers_ = false;
  std::vector<float> input_;
  std::vector<float> output_;
};

// "Open MPI v4.1.4, package: …" becomes "Open MPI 4.1.4".
std::string version() {
  std::string text(MPI_MAX_LIBRARY_VERSION_STRING, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  text = text.substr(0, text.find(','));
  const std::size_t v = text.find(" v");
  if (v != std::string::npos) text.erase(v + 1, 1);
  return text;
}

int run(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::cout << version() << std::endl;
    return 0;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  int replicas = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &replicas);
  try {
    MpiCollectives task(rank, replicas);
    serve(task, argv[1], rank);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  return lockstep::bench::run(argc, argv);
}
