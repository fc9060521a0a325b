// What kernels print: vprintf's text, and the line that a failed assertion leaves.
//
// Formats are interpreted piece by piece; the host's printf sees one conversion at a time, with a
// value of the type that conversion takes, so that no format can make it read what is not there.
#pragma once

#include <deque>
#include <string>

#include "softgpu/ptx/code.h"

namespace tandem::ptx {

// What __assertfail says: a line for each lane, as the driver words it. Its message, file, line and
// function are in a, b, c and d.
std::string AssertionText(const WarpContext& w, const Instruction& in, uint32_t active);

class PrintBuffer {
 public:
  // vprintf with format a and arguments b by each lane in turn; dst gets what it returns. False: an
  // address that may not be read.
  bool PrintLanes(const WarpContext& w, const Instruction& in, uint32_t active);
  // All that was printed since the last call.
  std::string Take();

 private:
  bool Print(const WarpContext& w, int lane, uint64_t format, uint64_t arguments, int* count);

  // Like the driver's, of a fixed size: the oldest output is dropped when it is full.
  std::deque<std::string> lines_;
  size_t bytes_ = 0;
};

}  // namespace tandem::ptx
