// View: what a person has chosen to see, and the lines that say what the keys have come to.
//
// Pure. Threading: none.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "src/cli/top/model.h"

namespace tandem::cli::top {

enum class Sort { kGpu, kActive, kResident, kWaited, kUser, kName };
inline constexpr std::array<const char*, 6> kSortNames = {"GPU",    "activity", "memory",
                                                          "waited", "user",     "name"};

enum class Page { kSessions, kHelp, kDetails };

struct View {
  Page page = Page::kSessions;
  Sort sort = Sort::kGpu;
  bool tree = false;  // below their users
  bool paused = false;
  std::string user;      // only this one's; empty: all
  std::string selected;  // Row::key; empty: none yet
  std::string prompt;    // a question that waits for keys
  std::string message;   // what an order has come to
};

// The rows to show, in their order.
std::vector<Row> Choose(const Model& model, const View& view);

// Of `rows` the selected one, else the first; null where there is none.
const Row* Selected(const std::vector<Row>& rows, const View& view);

}  // namespace tandem::cli::top
