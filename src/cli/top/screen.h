// Screen: a terminal of which `tandem top` has all, through ncurses, which writes only what has
// changed. Its end restores the terminal.
//
// Threading: one thread; one at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "src/cli/top/frame.h"

namespace tandem::cli::top {

class TerminalScreen {
 public:
  // Null where standard input and output are no terminal that can do this.
  static std::unique_ptr<TerminalScreen> Open(bool colours);
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  void Show(const Frame& frame);
  // Its size now.
  size_t columns() const;
  size_t rows() const;
  // The next key as Controls has it; -1: none is there; 0: one that means nothing, or a new size.
  int NextKey();

 private:
  explicit TerminalScreen(void* terminal) : terminal_(terminal) {}

  void* const terminal_;  // ncurses' SCREEN, whose header has macros that are kept out of this one
};

// Whether the locale that the environment asks for shows UTF-8.
bool ShowsUnicode();

}  // namespace tandem::cli::top
