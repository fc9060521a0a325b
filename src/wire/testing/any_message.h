// Messages of all kinds that messages.h has, for tests that say anything: no kind can be forgotten.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "src/wire/messages.h"

namespace tandem::wire {

// One of each, with nothing in its fields.
inline std::vector<Message> EveryKind() {
  return []<size_t... I>(std::index_sequence<I...>) {
    return std::vector<Message>{std::variant_alternative_t<I, AnyKind>()...};
  }
  (std::make_index_sequence<std::variant_size_v<AnyKind>>());
}

// Calls `fill` for each of the message's fields, which are unsigned numbers and strings.
template <typename Fill>
void FillFields(Message& message, Fill fill) {
  std::visit(
      [&](auto& m) {
        if constexpr (std::is_same_v<decltype(m), Answer&>) {
          fill(m.json);
        } else {
          std::apply([&](auto&... field) { (fill(field), ...); }, m.Fields());
        }
      },
      message);
}

}  // namespace tandem::wire
