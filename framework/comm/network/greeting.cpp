#include "framework/comm/network/greeting.h"

#include <algorithm>
#include <span>

#include "framework/base/text.h"
#include "framework/storage/checksum.h"

namespace lockstep::comm {

JobName job_name_of(const std::string& text) {
  JobName name{};
  std::string all = text;
  if (text.size() > name.size()) {
    storage::Checksum sum;
    sum.add(std::as_bytes(std::span(text)));
    const std::string end = "… " + sum.text();
    all = std::string(beginning(text, name.size() - end.size())) + end;
  }
  std::ranges::copy(all, name.begin());
  return name;
}

std::string text_of(const JobName& name) {
  return {name.begin(), std::ranges::find(name, '\0')};
}

Nonce new_nonce() {
  Nonce nonce{};
  fill_randomly(nonce);
  return nonce;
}

Mac greeting_mac(const Secret& secret, std::string_view label, const Greeted& greeted,
                 const JobName& name) {
  return secret.mac({std::as_bytes(std::span(label)), greeted.job, greeted.of_listener,
                     greeted.of_connector, std::as_bytes(std::span(name))});
}

}  // namespace lockstep::comm
