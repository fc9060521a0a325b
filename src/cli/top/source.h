// Source: where a Model's answers come from: the daemon, over one connection as long as it lives.
//
// Threading: none.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/cli/top/model.h"
#include "src/wire/channel.h"

namespace tandem::cli::top {

class Source {
 public:
  // Asks the daemon once, for a bounded time. Where none answers, the model is told why.
  void Refresh(Model* model);

  // What the order has come to, in a line.
  std::string Give(const wire::Control& order);

 private:
  Status Ask(Model* model);

  wire::Channel channel_;
};

}  // namespace tandem::cli::top
