#!/usr/bin/env bash
# LibTorch 1.13.1 (Debian bookworm, libtorch1.13 and libtorch-dev 1.13.1+dfsg-4; g++ 12, glibc 2.36).
# Behaviour: torch::optim::SGD loses its momentum, and Adam its moments, without a word, when the program sets another global
#   locale between two steps (std::locale::global, as GUI libraries do), if that locale groups digits. The old state stays in
#   memory beside the new one.
# A good guess: an optimizer's state belongs to its parameters, so a locale, which concerns texts, leaves it alone.
# Cause: the optimizer finds a parameter's state by a text of its address, which a stream of the global locale writes:
#   "0x5581d0c3a2e0" and "0x55,81d,0c3,a2e0" are two keys. (PyTorch 2.x has addresses as keys.)
# Seen (a parameter after two steps of -1 each with momentum 0.5, thus -1 and -1.5; and the optimizer's number of states):
#   same locale: -2.5, 1 state
#   other locale: -2, 2 states
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq libtorch1.13=1.13.1+dfsg-4 libtorch-dev=1.13.1+dfsg-4
for package in *.deb; do dpkg -x "$package" root; done
lib=$(dirname "$(find root -name 'libtorch_cpu.so.1.13')")
cat >state.cpp <<'END'
#include <torch/torch.h>

#include <iostream>
#include <locale>

struct Grouping : std::numpunct<char> {
  std::string do_grouping() const override { return "\3"; }
};

int main() {
  for (const bool changes : {false, true}) {
    at::Tensor value = torch::zeros({1}, torch::requires_grad());
    torch::optim::SGD optimizer({value}, torch::optim::SGDOptions(1).momentum(0.5));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      value.sum().backward();
      optimizer.step();
      if (changes) std::locale::global(std::locale(std::locale::classic(), new Grouping));
    }
    std::locale::global(std::locale::classic());
    const std::size_t states = optimizer.state().size();
    std::cout << (changes ? "other" : "same") << " locale: " << value.item<float>() << ", " << states << " state"
              << (states == 1 ? "" : "s") << "\n";
  }
}
END
g++ -std=c++17 -w -Iroot/usr/include -Iroot/usr/include/torch/csrc/api/include state.cpp -o state -L"$lib" \
  -Wl,-rpath,"$PWD/$lib" -ltorch -Wl,--no-as-needed -ltorch_cpu -lc10
./state | tee seen
diff seen - <<'END'
same locale: -2.5, 1 state
other locale: -2, 2 states
END
