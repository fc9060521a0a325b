// Controls: what the keys of `tandem top` do to the view, and which orders they give.
//
// An order is given only after `y`. Pure. Threading: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "src/cli/top/view.h"
#include "src/wire/messages.h"

namespace tandem::cli::top {

// Keys beside characters. Others are none of these and do nothing.
enum Key : int {
  kKeyUp = 0x110000,
  kKeyDown,
  kKeyPageUp,
  kKeyPageDown,
  kKeyEnter,
  kKeyEscape,
  kKeyErase
};

// What the caller does next.
struct Effect {
  bool quit = false;
  std::optional<wire::Control> order;
};

class Controls {
 public:
  explicit Controls(View* view) : view_(*view) {}

  // `key`: a character, or a Key.
  Effect Press(int key, const Model& model);

 private:
  enum class Asks { kNothing, kUser, kLimit, kConfirmation };

  void Command(int key, const Model& model, Effect* effect);
  void Move(int by, const Model& model);
  void Order(const char* what, const Model& model);
  void Type(int key);
  void Finish();
  void Confirm(const std::string& question);
  void Ask(Asks what);
  void ShowQuestion();

  View& view_;
  Asks asks_ = Asks::kNothing;
  std::string typed_;
  wire::Control order_;  // that waits for `y`
  std::string subject_;  // whom it is about, in words
};

}  // namespace tandem::cli::top
