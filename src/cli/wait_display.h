// WaitDisplay: the WaitLine of this process, on its standard error. Never waits: what a terminal
// does not take at once is left out.
//
// Threading: none.
#pragma once

#include "src/cli/wait_line.h"

namespace tandem::cli {

class WaitDisplay {
 public:
  explicit WaitDisplay(bool quiet);

  void OnWaiting(const wire::Waiting& waiting);
  void OnPause();
  // Whether the program shall end.
  bool OnInterrupt();

 private:
  void Write(const std::string& text) const;

  WaitLine line_;
};

}  // namespace tandem::cli
