#include "src/cli/top/controls.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "src/base/bytes.h"
#include "src/cli/fields.h"

namespace tandem::cli::top {
namespace {

constexpr int kPageOfRows = 10;
constexpr size_t kMostTyped = 64;

}  // namespace

Effect Controls::Press(int key, const Model& model) {
  Effect effect;
  if (asks_ == Asks::kNothing) {
    view_.message.clear();
    Command(key, model, &effect);
  } else if (key == kKeyEscape) {
    Ask(Asks::kNothing);
  } else if (asks_ != Asks::kConfirmation) {
    Type(key);
  } else if (key == 'y' || key == 'n') {
    if (key == 'y') effect.order = std::move(order_);
    Ask(Asks::kNothing);
  }
  return effect;
}

void Controls::Command(int key, const Model& model, Effect* effect) {
  const auto turn = [&](Page page) { view_.page = view_.page == page ? Page::kSessions : page; };
  switch (key) {
    case 'q':
      effect->quit = true;
      return;
    case 'h':
    case '?':
      return turn(Page::kHelp);
    case kKeyEnter:
      return turn(Page::kDetails);
    case kKeyEscape:
      view_.page = Page::kSessions;
      return;
    case kKeyUp:
    case 'k':
      return Move(-1, model);
    case kKeyDown:
    case 'j':
      return Move(1, model);
    case kKeyPageUp:
      return Move(-kPageOfRows, model);
    case kKeyPageDown:
      return Move(kPageOfRows, model);
    case 's':
      view_.sort = static_cast<Sort>((static_cast<size_t>(view_.sort) + 1) % kSortNames.size());
      return;
    case 't':
      view_.tree = !view_.tree;
      return;
    case 'p':
      view_.paused = !view_.paused;
      return;
    case 'u':
      return Ask(Asks::kUser);
    case 'z':
      return Order("suspend", model);
    case 'r':
      return Order("resume", model);
    case 'l':
      return Order("limit", model);
    default:
      return;
  }
}

void Controls::Move(int by, const Model& model) {
  const std::vector<Row> rows = Choose(model, view_);
  const Row* const selected = Selected(rows, view_);
  if (selected == nullptr) return;
  const auto at = static_cast<int>(selected - rows.data());
  const int to = std::clamp(at + by, 0, static_cast<int>(rows.size()) - 1);
  view_.selected = rows[static_cast<size_t>(to)].key;
}

void Controls::Order(const char* what, const Model& model) {
  const std::vector<Row> rows = Choose(model, view_);
  const Row* const row = Selected(rows, view_);
  if (row == nullptr) {
    view_.message = "no session is selected";
    return;
  }
  view_.selected = row->key;  // the subject of the question stays selected
  order_ = {what, row->target, 0, {}};
  const Json& id = Member(*row->json, "id");
  subject_ = Text(Member(*row->json, "name")) + (id.is_null() ? "" : " (" + Text(id) + ")");
  if (order_.what == "limit") return Ask(Asks::kLimit);
  Confirm((order_.what == "suspend" ? "Suspend " : "Resume ") + subject_);
}

void Controls::Type(int key) {
  if (key == kKeyEnter) return Finish();
  if (key == kKeyErase && !typed_.empty()) typed_.pop_back();
  const bool shown = key > ' ' && key < 0x7f;
  if (shown && typed_.size() < kMostTyped) typed_ += static_cast<char>(key);
  ShowQuestion();
}

void Controls::Finish() {
  const std::string typed = typed_;
  if (std::exchange(asks_, Asks::kNothing) == Asks::kUser) {
    view_.user = typed;
    return Ask(Asks::kNothing);
  }
  Ask(Asks::kNothing);
  if (typed.empty()) return;
  if (typed != "all") {
    const Result<Bytes> limit = ParseSize(typed);
    if (!limit.ok() || *limit == Bytes()) {
      view_.message = limit.ok() ? "a limit is more than 0" : limit.error().message;
      return;
    }
    order_.limit_bytes = limit->count;
  }
  Confirm(fmt::format(
      "Limit the run of {} to {}", subject_,
      typed == "all" ? "all that can be shared" : FormatBytes(Bytes(order_.limit_bytes))));
}

void Controls::Confirm(const std::string& question) {
  asks_ = Asks::kConfirmation;
  view_.prompt = question + "? y/n";
}

void Controls::Ask(Asks what) {
  asks_ = what;
  typed_.clear();
  ShowQuestion();
}

void Controls::ShowQuestion() {
  view_.prompt.clear();
  if (asks_ == Asks::kUser) view_.prompt = "Show only the user (empty: all): " + typed_ + "_";
  if (asks_ == Asks::kLimit) {
    view_.prompt = fmt::format("New limit of the run of {}, as 4G or all: {}_", subject_, typed_);
  }
}

}  // namespace tandem::cli::top
