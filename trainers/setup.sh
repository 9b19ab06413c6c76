# Sourced by trainers/run.sh, tests/run.sh, tests/fuzz.sh, tests/hosts.sh and tests/engines.sh: installs what the build needs
# (and what extra_packages names) where it is missing, configures the release build, and defines build. On Debian and its
# kin by apt, as root or with sudo; elsewhere it says what to install.

[[ -v extra_packages ]] || extra_packages=()
packages=(g++ mold cmake ninja-build libgloo-dev libopenblas0-openmp libcxxopts-dev libyaml-cpp-dev
          nlohmann-json3-dev libsimdjson-dev libxxhash-dev zlib1g-dev libpng-dev libjpeg62-turbo-dev libssl-dev
          libprotobuf-dev protobuf-compiler libjs-dygraphs catch2 dataset-fashion-mnist python3 "${extra_packages[@]}")
# A LibTorch of one's own is picked by CMAKE_PREFIX_PATH.
[[ -n ${CMAKE_PREFIX_PATH-} ]] || packages+=(libtorch-dev)

install_missing() {
  local package missing=()
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${Status}' "$package" 2>/dev/null) == 'install ok installed' ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "To install as root: apt-get install --no-install-recommends ${missing[*]}" >&2
      return 2
    fi
    as_root=(sudo)
  fi
  echo "Installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

say_what_to_install() {
  cat >&2 <<'LIST'

The build could not be configured. Lockstep needs: a C++20 compiler (g++ 12 or newer), CMake 3.25 or
newer, Ninja, LibTorch 1.13 or newer (CMAKE_PREFIX_PATH picks one), Gloo, cxxopts, yaml-cpp,
nlohmann-json, simdjson, xxHash, zlib, libpng, libjpeg-turbo, OpenSSL, Protocol Buffers with protoc, dygraphs,
python3 (3.9 or newer) for bench, and for the tests Catch2, NumPy and matplotlib for python3 (3.11 or newer), and the Fashion-MNIST files that Debian's
package dataset-fashion-mnist has. A fast BLAS such as OpenBLAS with OpenMP is strongly advised.
LIST
  return 2
}

# build TARGET PROGRAM MINUTES: builds the target; the first time, when PROGRAM is not there, it says how long that takes,
# of MINUTES of processor time.
build() {
  local cores
  cores=$(nproc)
  [[ -x build/release/$2 ]] || echo "Building $1 for the first time, about $((($3 + cores - 1) / cores)) minutes on $cores cores"
  cmake --build --preset release --target "$1"
}

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  install_missing
fi
# What CMake has found it keeps: another CMAKE_PREFIX_PATH starts over.
prefix_file=build/release/prefix-path
if [[ ! -f build/release/build.ninja || $(cat "$prefix_file" 2>/dev/null) != "${CMAKE_PREFIX_PATH-}" ]]; then
  cmake --fresh --preset release || say_what_to_install
  echo "${CMAKE_PREFIX_PATH-}" >"$prefix_file"
fi
