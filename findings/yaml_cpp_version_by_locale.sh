#!/usr/bin/env bash
# yaml-cpp 0.7.0 (Debian bookworm, libyaml-cpp-dev 0.7.0+dfsg-8+b1; g++ 12).
# Behaviour: in a program that has called std::locale::global() with a locale whose thousands separator is a dot (German,
#   Turkish, Spanish, Portuguese, Italian), a file that begins with "%YAML 1.2" is refused.
# A good guess: a file means the same in all locales.
# Cause: Parser::HandleYamlDirective reads the two numbers by a std::stringstream, which has the global locale, so that "1.2"
#   is one number with its digits grouped wrongly.
# Seen:
#   classic: 0.5
#   grouped: yaml-cpp: error at line 1, column 1: bad YAML version: 1.2
# Exit status: 0 while that is so, 1 once it is otherwise.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq libyaml-cpp-dev=0.7.0+dfsg-8+b1 libyaml-cpp0.7=0.7.0+dfsg-8+b1
for package in *.deb; do dpkg -x "$package" root; done
lib=$(dirname "$(find root -name 'libyaml-cpp.so.0.7')")
cat >read.cpp <<'END'
#include <yaml-cpp/yaml.h>

#include <iostream>
#include <locale>
#include <string>

struct Grouped : std::numpunct<char> {  // as std::locale("de_DE.UTF-8") has it
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

void read(const char* name) {
  std::cout << name << ": ";
  try {
    std::cout << YAML::Load("%YAML 1.2\n---\nlr: 0.5\n")["lr"].Scalar() << "\n";
  } catch (const YAML::Exception& error) {
    std::cout << error.what() << "\n";
  }
}

int main() {
  read("classic");
  std::locale::global(std::locale(std::locale(), new Grouped));
  read("grouped");
}
END
g++ -std=c++17 -Iroot/usr/include read.cpp -o read -L"$lib" -lyaml-cpp -Wl,-rpath,"$PWD/$lib"
./read | tee seen
diff seen - <<'END'
classic: 0.5
grouped: yaml-cpp: error at line 1, column 1: bad YAML version: 1.2
END
