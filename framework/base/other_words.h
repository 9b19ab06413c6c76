#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns `word` in lower case, with '_' for '-': "adamw" for "AdamW".
[[nodiscard]] std::string folded(std::string_view word);

/// Returns our words for another program's `word`: {"lr"} for "learning_rate", {"width", "hidden"}
/// for "hidden_size"; none for most words. The same for all words of one folded() form.
[[nodiscard]] std::vector<std::string> own_words(std::string_view word);

}  // namespace lockstep
