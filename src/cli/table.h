// Table: rows for a terminal, made to fit it: columns are left out before a line would wrap.
//
// Pure, but for OwnScreen. Threading: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::cli {

// What the text is for.
struct Screen {
  size_t columns = 0;  // 0: as many as it takes
  bool colours = false;
};
// Of standard output: a terminal has as many columns as COLUMNS or it itself says, and colours
// where neither NO_COLOR nor TERM=dumb says otherwise. Anything else takes all columns, unless
// COLUMNS is set.
Screen OwnScreen();

// The first characters of `text`, and "…", where it takes more than `most` columns.
std::string CutText(std::string text, size_t most);
// How many columns of a terminal `text` takes: code points, near enough.
size_t WidthOf(std::string_view text);

struct Column {
  std::string title;
  int keep = 0;            // 0: always; else the column with the lowest is left out first
  bool stretches = false;  // it is cut to what the others leave
};
struct Cell {
  std::string text;
  const char* colour = "";  // of the terminal, as in "32"
};

// The cells beside each other, in their colours where the screen has any.
std::string ShowLine(const std::vector<Cell>& cells, const Screen& screen);

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: a cell for each column.
  void Add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // The titles and the rows, of which each cell is as wide as its column. No row is wider than the
  // screen.
  std::vector<std::vector<Cell>> Lay(const Screen& screen) const;
  std::string Show(const Screen& screen) const;

 private:
  struct Shown {
    size_t column;
    size_t width;
  };
  std::vector<Shown> Fit(size_t most) const;
  size_t WidthOfColumn(size_t column) const;

  const std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace tandem::cli
