#include "src/cli/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tandem::cli {
namespace {

constexpr size_t kGap = 2;            // between columns
constexpr size_t kLeastStretch = 12;  // columns, or it says nothing

size_t Total(const auto& shown) {
  size_t total = 0;
  for (const auto& each : shown) total += each.width + kGap;
  return total == 0 ? 0 : total - kGap;
}

}  // namespace

Screen OwnScreen() {
  Screen screen;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  winsize size{};
  if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) screen.columns = size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  const long set = columns != nullptr ? std::strtol(columns, nullptr, 10) : 0;
  if (set > 0) screen.columns = static_cast<size_t>(set);
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  const bool refused = no_colour != nullptr && *no_colour != 0;
  screen.colours = terminal && !refused && kind != nullptr && std::strcmp(kind, "dumb") != 0;
  return screen;
}

size_t WidthOf(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string CutText(std::string text, size_t most) {
  if (WidthOf(text) <= most) return text;
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) == 0x80 || ++columns < std::max<size_t>(most, 1)) continue;
    return text.substr(0, i) + (most == 0 ? "" : "…");
  }
  return text;
}

std::string ShowLine(const std::vector<Cell>& cells, const Screen& screen) {
  std::string text;
  for (const Cell& cell : cells) {
    const bool coloured = screen.colours && *cell.colour != 0;
    text += coloured ? "\x1b[" + std::string(cell.colour) + "m" + cell.text + "\x1b[0m" : cell.text;
  }
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

size_t Table::WidthOfColumn(size_t column) const {
  size_t width = WidthOf(columns_[column].title);
  for (const auto& row : rows_) width = std::max(width, WidthOf(row[column].text));
  return width;
}

std::vector<Table::Shown> Table::Fit(size_t most) const {
  std::vector<Shown> shown;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const size_t width = WidthOfColumn(i);
    const bool may_shrink = columns_[i].stretches && most != 0;
    shown.push_back({i, may_shrink ? std::min(width, kLeastStretch) : width});
  }
  if (most == 0) return shown;
  const auto keep = [this](const Shown& each) { return columns_[each.column].keep; };
  while (Total(shown) > most) {
    auto least = shown.end();
    for (auto at = shown.begin(); at != shown.end(); ++at) {
      if (keep(*at) == 0) continue;
      if (least == shown.end() || keep(*at) < keep(*least)) least = at;
    }
    if (least == shown.end()) break;
    shown.erase(least);
  }
  for (Shown& each : shown) {
    const size_t total = Total(shown);
    const size_t left = total < most ? most - total : 0;
    if (columns_[each.column].stretches) {
      each.width = std::min(WidthOfColumn(each.column), each.width + left);
    }
  }
  return shown;
}

std::vector<std::vector<Cell>> Table::Lay(const Screen& screen) const {
  const std::vector<Shown> shown = Fit(screen.columns);
  std::vector<std::vector<Cell>> laid;
  const auto add = [&](const std::vector<Cell>& row) {
    size_t room = screen.columns != 0 ? screen.columns : std::string::npos;
    std::vector<Cell>& cells = laid.emplace_back();
    for (const Shown& each : shown) {
      Cell cell = row[each.column];
      cell.text = CutText(cell.text, std::min(each.width, room));
      const size_t width = WidthOf(cell.text);
      room -= std::min(room, width);
      const size_t gap = &each == &shown.back() ? 0 : std::min(each.width - width + kGap, room);
      room -= gap;
      cells.push_back(std::move(cell));
      cells.push_back({std::string(gap, ' ')});
    }
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.push_back({column.title});
  add(titles);
  for (const auto& row : rows_) add(row);
  return laid;
}

std::string Table::Show(const Screen& screen) const {
  std::string text;
  for (const std::vector<Cell>& line : Lay(screen)) text += ShowLine(line, screen) + '\n';
  return text;
}

}  // namespace tandem::cli
