// Frame: one picture of `tandem top`, as lines that fit a terminal of a given size.
//
// Pure: the model, the view and the time go in. Threading: none.
// Invariants
// 1. No line is wider than the canvas; a frame has no more lines than it, unless it has no end.
// 2. Nothing that other people chose reaches a line unescaped (fields.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/cli/table.h"
#include "src/cli/top/model.h"
#include "src/cli/top/view.h"

namespace tandem::cli::top {

struct Canvas {
  size_t columns = 80;
  size_t rows = 24;      // 0: as many as it takes, and no help for keys
  bool unicode = false;  // else ASCII alone is drawn
  double unix_s = 0;     // the time
};

struct Line {
  std::vector<Cell> cells;
  bool selected = false;
};
using Frame = std::vector<Line>;

Frame Draw(const Model& model, const View& view, const Canvas& canvas);

// The frame as text.
std::string ShowFrame(const Frame& frame, bool colours);

// Parts of the frame.
Frame DrawGpus(const Model& model, const Canvas& canvas);                        // gpu_lines.cc
Frame DrawSessions(const Model& model, const View& view, const Canvas& canvas);  // session_lines.cc
Frame DrawDetails(const Model& model, const View& view, const Canvas& canvas);   // session_lines.cc

// The frame's words for a number; "-" where it is not known.
std::string Percent(const std::optional<double>& part);
std::string PerMinute(const std::optional<double>& rate);

// Cuts a line to the columns of the canvas. Without Unicode, replaces other characters than ASCII.
void FitLine(Line* line, const Canvas& canvas);

}  // namespace tandem::cli::top
