#include "src/cli/top/screen.h"

#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#define NCURSES_NOMACROS 1
#include <curses.h>

#include "src/cli/top/controls.h"

namespace tandem::cli::top {
namespace {

constexpr int kEscapeMs = 25;  // until an Escape is a key and no longer the start of a sequence
constexpr short kFirstColour = 31, kLastColour = 36;  // as Cell::colour

attr_t AttributesOf(const char* colour, bool colours) {
  const std::string_view code = colour;
  if (code == "1") return A_BOLD;
  if (code == "2") return A_DIM;
  const int number = std::atoi(colour);
  if (!colours || number < kFirstColour || number > kLastColour) return A_NORMAL;
  return static_cast<attr_t>(COLOR_PAIR(number - kFirstColour + 1));
}

// Programs such as perf start others with this signal blocked; the view would keep its first size.
void AllowSizeSignal() {
  sigset_t size;
  sigemptyset(&size);
  sigaddset(&size, SIGWINCH);
  sigprocmask(SIG_UNBLOCK, &size, nullptr);
}

void DefineColours() {
  start_color();
  use_default_colors();
  for (short code = kFirstColour; code <= kLastColour; ++code) {
    init_pair(static_cast<short>(code - kFirstColour + 1),
              static_cast<short>(code - kFirstColour + COLOR_RED), -1);
  }
}

}  // namespace

bool ShowsUnicode() {
  // Not LC_ALL: numbers keep their point.
  return std::setlocale(LC_CTYPE, "") != nullptr && std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

std::unique_ptr<TerminalScreen> TerminalScreen::Open(bool colours) {
  const char* const kind = std::getenv("TERM");
  const bool able = kind != nullptr && std::strcmp(kind, "dumb") != 0;
  if (!able || isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) return nullptr;
  AllowSizeSignal();
  SCREEN* const terminal = newterm(nullptr, stdout, stdin);
  if (terminal == nullptr) return nullptr;
  if (colours && has_colors()) DefineColours();
  cbreak();
  noecho();
  nonl();
  curs_set(0);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  set_escdelay(kEscapeMs);
  return std::unique_ptr<TerminalScreen>(new TerminalScreen(terminal));
}

TerminalScreen::~TerminalScreen() {
  endwin();
  delscreen(static_cast<SCREEN*>(terminal_));
}

size_t TerminalScreen::columns() const {
  return static_cast<size_t>(COLS);
}

size_t TerminalScreen::rows() const {
  return static_cast<size_t>(LINES);
}

void TerminalScreen::Show(const Frame& frame) {
  const bool colours = COLOR_PAIRS > 1;
  erase();
  for (size_t row = 0; row < frame.size() && row < rows(); ++row) {
    const attr_t shown = frame[row].selected ? A_REVERSE : A_NORMAL;
    move(static_cast<int>(row), 0);
    for (const Cell& cell : frame[row].cells) {
      attrset(static_cast<int>(AttributesOf(cell.colour, colours) | shown));
      addstr(cell.text.c_str());
    }
    // The selection reaches the right edge. A full line has left the cursor in the next one.
    if (frame[row].selected && getcury(stdscr) == static_cast<int>(row)) {
      chgat(-1, A_REVERSE, 0, nullptr);
    }
  }
  attrset(A_NORMAL);
  refresh();
}

int TerminalScreen::NextKey() {
  const int key = getch();
  switch (key) {
    case ERR:
      return -1;
    case KEY_UP:
      return kKeyUp;
    case KEY_DOWN:
      return kKeyDown;
    case KEY_PPAGE:
      return kKeyPageUp;
    case KEY_NPAGE:
      return kKeyPageDown;
    case '\r':
    case '\n':
    case KEY_ENTER:
      return kKeyEnter;
    case 27:
      return kKeyEscape;
    case KEY_BACKSPACE:
    case 8:
    case 127:
      return kKeyErase;
    default:
      return key < 128 ? key : 0;
  }
}

}  // namespace tandem::cli::top
