#!/usr/bin/env bash
# LibTorch 1.13.1 (Debian bookworm, libtorch1.13 and libtorch-dev 1.13.1+dfsg-4; g++ 12). PyTorch 2.6.0 behaves alike.
# Behaviour: a backward that runs while autocast is on computes weight gradients in bfloat16, though its forward ran in float32
#   without autocast. The gradients' dtype stays float32, and nothing is said.
# A good guess: as the documentation of torch.amp says, "Backward ops run in the same type that autocast used for corresponding
#   forward ops": those of a forward without autocast in float32.
# Cause: autocast is a state of the thread that looks at each operator; on CPUs the backward runs in the calling thread, and its
#   matrix products are operators as any other.
# Seen (whether the gradient differs by more than 1e-4 of its norm from that of a backward without autocast):
#   weight: Float, differs 1
#   bias: Float, differs 0
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq libtorch1.13=1.13.1+dfsg-4 libtorch-dev=1.13.1+dfsg-4
for package in *.deb; do dpkg -x "$package" root; done
lib=$(dirname "$(find root -name 'libtorch_cpu.so.1.13')")
cat >backward.cpp <<'END'
#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <iostream>

torch::nn::Linear layer{nullptr};

std::vector<at::Tensor> gradients(const at::Tensor& inputs, bool autocast) {
  layer->zero_grad();
  const at::Tensor loss = layer(inputs).square().mean();
  at::autocast::set_cpu_enabled(autocast);
  loss.backward();
  at::autocast::set_cpu_enabled(false);
  return {layer->weight.grad().clone(), layer->bias.grad().clone()};
}

int main() {
  torch::manual_seed(0);
  const at::Tensor inputs = torch::randn({64, 32});
  layer = torch::nn::Linear(32, 16);
  const auto plain = gradients(inputs, false);
  const auto cast = gradients(inputs, true);
  for (const std::size_t i : {0, 1}) {
    const auto difference = (cast[i] - plain[i]).norm() / plain[i].norm();
    std::cout << (i == 0 ? "weight" : "bias") << ": " << c10::toString(cast[i].scalar_type()) << ", differs "
              << (difference.item<double>() > 1e-4) << "\n";
  }
}
END
g++ -std=c++17 -w -Iroot/usr/include -Iroot/usr/include/torch/csrc/api/include backward.cpp -o backward -L"$lib" \
  -Wl,-rpath,"$PWD/$lib" -ltorch -Wl,--no-as-needed -ltorch_cpu -lc10
./backward 2>warnings | tee seen
diff seen - <<'END'
weight: Float, differs 1
bias: Float, differs 0
END
