#include "src/cli/top/frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "src/cli/fields.h"

namespace tandem::cli::top {
namespace {

constexpr const char* kBold = "1";
constexpr const char* kDim = "2";
constexpr const char* kYellow = "33";

constexpr std::array<const char*, 15> kHelp = {
    "up, down, j, k   select a session",
    "Enter            all about the selected session; again: back",
    "s                sort by the next of: GPU, activity, memory, waited, user, name",
    "t                tree: the sessions below their users",
    "u                only one user's sessions; an empty name: all",
    "z                suspend the selected session: its memory moves to the host",
    "r                resume it",
    "l                limit the memory of its run",
    "p                pause the refresh, and go on",
    "h, ?             this page, and back",
    "q                quit",
    "",
    "GPU% is the part of the time in which a session was active; H/MIN counts the",
    "hand-overs for it in a minute; SHARE is the part of the last minute that it had",
    "the GPU, and the share that was set (policy fair). `tandem help top` says more.",
};
constexpr const char* kKeys =
    "q quit h help s sort u user t tree Enter info z suspend r resume l limit p pause";

std::string Plain(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) plain += text[i];
    if (byte >= 0xc0) plain += text.compare(i, 3, "…") == 0 ? '~' : '?';
  }
  return plain;
}

// Beside each other where both fit, the second at the right edge.
Line Sides(Cell left, Cell right, const Canvas& canvas) {
  const size_t used = WidthOf(left.text) + WidthOf(right.text);
  if (used + 2 > canvas.columns) return {{std::move(left)}};
  Cell gap{std::string(canvas.columns - used, ' ')};
  return {{std::move(left), std::move(gap), std::move(right)}};
}

Line Heading(const Model& model, const View& view, const Canvas& canvas) {
  const Json& status = model.status();
  std::string left = "tandem top";
  if (model.known()) {
    left += fmt::format("   tandemd {}, up {}", Text(Member(status, "version")),
                        SecondsText(Member(status, "uptime_s")));
  }
  std::string right = fmt::format("sorted by {}", kSortNames.at(static_cast<size_t>(view.sort)));
  if (!view.user.empty()) right = "only " + Text(Json(view.user)) + ", " + right;
  if (view.paused) right = "paused, " + right;
  return Sides({left, kBold}, {right, view.paused ? kYellow : kDim}, canvas);
}

std::string MillisecondsText(const Json& seconds) {
  return seconds.is_number() ? fmt::format("{:.0f} ms", seconds.get<double>() * 1e3) : "-";
}

Line Costs(const Model& model) {
  const auto& gpus = List(model.status(), "gpus");
  std::string text = "hand-overs: ";
  for (const Json& gpu : gpus) {
    const Json& index = Member(gpu, "index");
    if (&gpu != &gpus.front()) text += "; ";
    if (gpus.size() > 1) text += "gpu" + Text(index) + " ";
    const Rates rates = model.OfGpu(index.is_number_unsigned() ? index.get<uint64_t>() : 0);
    text += fmt::format("{} a minute, each about {}", PerMinute(rates.handovers_per_minute),
                        MillisecondsText(Member(gpu, "switch_cost_s")));
  }
  return {{{text, kDim}}};
}

Frame Body(const Model& model, const View& view, const Canvas& canvas) {
  if (view.page == Page::kHelp) {
    Frame help;
    for (const char* text : kHelp) help.push_back({{{text}}});
    return help;
  }
  return view.page == Page::kDetails ? DrawDetails(model, view, canvas)
                                     : DrawSessions(model, view, canvas);
}

// A question comes before a message: it waits for keys.
Line LastLine(const Model& model, const View& view) {
  if (!view.prompt.empty()) return {{{view.prompt, kBold}}};
  if (!model.lost().empty()) return {{{model.lost(), kYellow}}};
  if (!view.message.empty()) return {{{view.message, kYellow}}};
  return {{{kKeys, kDim}}};
}

}  // namespace

std::string Percent(const std::optional<double>& part) {
  return part.has_value() ? fmt::format("{:.0f}%", *part * 100) : "-";
}

std::string PerMinute(const std::optional<double>& rate) {
  if (!rate.has_value()) return "-";
  return fmt::format("{:.{}f}", *rate, *rate > 0 && *rate < 9.95 ? 1 : 0);
}

void FitLine(Line* line, const Canvas& canvas) {
  size_t room = canvas.columns;
  for (Cell& cell : line->cells) {
    cell.text = CutText(std::move(cell.text), room);
    if (!canvas.unicode) cell.text = Plain(cell.text);
    room -= std::min(room, WidthOf(cell.text));
  }
}

Frame Draw(const Model& model, const View& view, const Canvas& canvas) {
  Frame frame = {Heading(model, view, canvas)};
  const bool endless = canvas.rows == 0;
  if (model.known()) {
    const Frame gpus = DrawGpus(model, canvas);
    frame.insert(frame.end(), gpus.begin(), gpus.end());
    frame.emplace_back();
    const size_t foot = endless ? 1 : 2;
    Canvas body = canvas;
    if (!endless) body.rows = canvas.rows - std::min(canvas.rows - 1, frame.size() + foot);
    Frame lines = Body(model, view, body);
    if (!endless) lines.resize(body.rows);
    std::move(lines.begin(), lines.end(), std::back_inserter(frame));
    frame.push_back(Costs(model));
  } else if (!endless) {
    frame.resize(std::max<size_t>(canvas.rows, 2) - 1);
  }
  const bool says = !model.lost().empty() || !view.message.empty();
  if (!endless || says) frame.push_back(LastLine(model, view));
  if (!endless && frame.size() > canvas.rows) {  // the last line may wait for an answer
    frame.erase(frame.begin() + static_cast<std::ptrdiff_t>(canvas.rows) - 1, frame.end() - 1);
  }
  for (Line& line : frame) FitLine(&line, canvas);
  return frame;
}

std::string ShowFrame(const Frame& frame, bool colours) {
  std::string text;
  for (const Line& line : frame) text += ShowLine(line.cells, {0, colours}) + '\n';
  return text;
}

}  // namespace tandem::cli::top
