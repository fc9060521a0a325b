// Answer: what a request is answered with, before HTTP.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::serve {

struct Answer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::string attachment;  // the name of the file that a browser shall keep; empty: show it
  bool lasting = false;    // the body under this path never changes
};

// {"error": ...}, escaped. `message`: one sentence, and what to do.
Answer ErrorAnswer(int status, const std::string& message);
// kInvalid is the client's fault; kNotFound, kRefused and kUnavailable have statuses of their own.
Answer ErrorAnswer(const Error& error);

}  // namespace tandem::serve
