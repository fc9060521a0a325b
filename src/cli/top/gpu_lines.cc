// The GPUs: how busy each is, whose bytes it has, and who holds it.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/bytes.h"
#include "src/cli/fields.h"
#include "src/cli/top/frame.h"

namespace tandem::cli::top {
namespace {

constexpr size_t kLinesOfGpu = 4;
constexpr size_t kMinuteColumns = 60;  // a second each
constexpr size_t kLabel = 6;           // columns: "util  "
constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kMarks = "_.:-=+*#";
constexpr std::array<const char*, 6> kColours = {"36", "35", "32", "34", "33", "31"};

// A stretch of the bar of memory.
struct Part {
  std::string label;
  double bytes = 0;
  const char* fill = "";
  const char* colour = "";
};

uint64_t IndexOf(const Json& gpu) {
  const Json& index = Member(gpu, "index");
  return index.is_number_unsigned() ? index.get<uint64_t>() : 0;
}

double BytesOf(const Json& json, const char* key) {
  return static_cast<double>(RawBytes(json, key).count);
}

std::string NameOfSession(const Model& model, const Json& id) {
  for (const Row& row : model.rows()) {
    if (!id.is_null() && Member(*row.json, "id") == id) {
      return fmt::format("{} ({})", CutText(Text(Member(*row.json, "name")), 16), Text(id));
    }
  }
  return Text(id);
}

std::string NamesOf(const Model& model, const Json& gpu, const char* key) {
  std::string names;
  for (const Json& id : List(gpu, key)) {
    names += (names.empty() ? "" : ", ") + NameOfSession(model, id);
  }
  return names;
}

std::vector<Part> PartsOf(const Model& model, const Json& gpu, const Canvas& canvas) {
  std::vector<Part> parts;
  double taken = 0;
  const auto add = [&](Part part) {
    taken += part.bytes;
    if (part.bytes > 0) parts.push_back(std::move(part));
  };
  size_t number = 0;
  for (const Row& row : model.rows()) {
    const Json& session = *row.json;
    if (row.gpu != IndexOf(gpu) || !Member(session, "gpu").is_number()) continue;
    const double contexts = Number(Member(session, "contexts")) * BytesOf(gpu, "context_bytes");
    const double bytes =
        BytesOf(session, "resident_bytes") + BytesOf(session, "fixed_bytes") + contexts;
    const bool even = number % 2 == 0;
    const char* const fill = canvas.unicode ? (even ? "█" : "▓") : (even ? "#" : "=");
    const char* const colour = kColours.at(number % kColours.size());
    add({CutText(Text(Member(session, "name")), 16), bytes, fill, colour});
    ++number;
  }
  Part foreign{"others", BytesOf(gpu, "foreign_bytes"), canvas.unicode ? "▒" : "/", "2"};
  taken += foreign.bytes;
  add({"", std::max(BytesOf(gpu, "card_bytes") - taken, 0.0), canvas.unicode ? "·" : ".", "2"});
  if (foreign.bytes > 0) parts.push_back(std::move(foreign));
  return parts;
}

// In all `columns`, divided by bytes. A part that exists has at least one.
std::vector<Cell> MemoryBar(const std::vector<Part>& parts, size_t columns) {
  double total = 0;
  for (const Part& part : parts) total += part.bytes;
  std::vector<Cell> bar;
  double done = 0;
  size_t drawn = 0;
  for (const Part& part : parts) {
    done += part.bytes;
    const auto end = static_cast<size_t>(std::lround(done / total * static_cast<double>(columns)));
    size_t width = std::min(std::max(end, drawn + 1), columns) - drawn;
    if (width == 0) continue;
    drawn += width;
    std::string text;
    if (!part.label.empty() && WidthOf(part.label) + 2 <= width) {
      text = part.label + " ";
      width -= WidthOf(text);
    }
    for (; width > 0; --width) text += part.fill;
    bar.push_back({std::move(text), part.colour});
  }
  return bar;
}

std::string Sparkline(const Model& model, uint64_t index, size_t columns, bool unicode) {
  std::string line;
  for (const auto& busy : model.History(index, columns)) {
    if (!busy.has_value()) {
      line += ' ';
      continue;
    }
    const auto level = static_cast<size_t>(std::lround(*busy * (kBlocks.size() - 1)));
    if (unicode) {
      line += kBlocks.at(level);
    } else {
      line += kMarks[level];
    }
  }
  return line;
}

Line NameLine(const Json& gpu) {
  std::string mode = Text(Member(gpu, "mode"));
  if (mode == "turns") mode = "in turns";
  const size_t waiting = List(gpu, "waiting").size();
  std::string text = fmt::format("   policy {}, {}", Text(Member(gpu, "policy")), mode);
  if (waiting > 0) text += fmt::format(", {} waiting", waiting);
  const std::string name = CutText(Text(Member(gpu, "name")), kMostOfName);
  const bool software = Member(gpu, "software") == true;
  return {{{"gpu" + Text(Member(gpu, "index")), "1"},
           {"  " + name + (software ? " (software)" : ""), ""},
           {text, "2"}}};
}

Line BusyLine(const Json& gpu, const Model& model, const Canvas& canvas) {
  const uint64_t index = IndexOf(gpu);
  const size_t room = canvas.columns - std::min(canvas.columns, kLabel + 6 + 14);
  const size_t columns = std::min(room, kMinuteColumns);
  return {{{"util  ", "2"},
           {fmt::format("{:>4}  ", Percent(model.OfGpu(index).active)), "1"},
           {Sparkline(model, index, columns, canvas.unicode), "32"},
           {"  last minute", "2"}}};
}

Line MemoryLine(const Json& gpu, const Model& model, const Canvas& canvas) {
  const std::string words = fmt::format(" {} free of {}", Size(Member(gpu, "free_bytes")),
                                        Size(Member(gpu, "budget_bytes")));
  const size_t used = kLabel + 2 + WidthOf(words);
  Line line{{{"mem   ", "2"}, {"["}}};
  const size_t columns = canvas.columns > used ? std::min(canvas.columns - used, size_t{100}) : 0;
  for (Cell& cell : MemoryBar(PartsOf(model, gpu, canvas), columns)) {
    line.cells.push_back(std::move(cell));
  }
  line.cells.push_back({"]"});
  line.cells.push_back({words});
  return line;
}

Line HoldersLine(const Json& gpu, const Model& model) {
  const std::string holders = NamesOf(model, gpu, "holders");
  const std::string blockers = NamesOf(model, gpu, "blocked_by");
  Line line{{{"held  ", "2"}, {holders.empty() ? "no session holds it" : "by " + holders}}};
  const Json& restoring = Member(gpu, "restoring");
  if (restoring.is_number()) {
    line.cells.push_back({"; memory of " + NameOfSession(model, restoring) + " comes back", "33"});
  }
  if (!blockers.empty()) line.cells.push_back({"; blocked by " + blockers, "31"});
  return line;
}

// All in one line, where there are too many for more.
Line ShortLine(const Json& gpu, const Model& model, const Canvas& canvas) {
  constexpr size_t kSpark = 12;
  Line line{{{fmt::format("gpu{:<3}", Text(Member(gpu, "index"))), "1"},
             {fmt::format("{:>4} ", Percent(model.OfGpu(IndexOf(gpu)).active))},
             {Sparkline(model, IndexOf(gpu), kSpark, canvas.unicode), "32"},
             {" ["}}};
  const size_t columns = canvas.columns >= 60 ? (canvas.columns - 40) / 2 : 0;
  for (Cell& cell : MemoryBar(PartsOf(model, gpu, canvas), columns)) {
    line.cells.push_back(std::move(cell));
  }
  const std::string blockers = NamesOf(model, gpu, "blocked_by");
  const std::string holders = NamesOf(model, gpu, "holders");
  line.cells.push_back({"] " + (holders.empty() ? "free" : holders)});
  if (!blockers.empty()) line.cells.push_back({"; blocked by " + blockers, "31"});
  return line;
}

}  // namespace

Frame DrawGpus(const Model& model, const Canvas& canvas) {
  Frame lines;
  const auto& gpus = List(model.status(), "gpus");
  const bool endless = canvas.rows == 0;
  const size_t most = endless ? gpus.size() : canvas.rows / 2;
  if (endless || gpus.size() * kLinesOfGpu <= most) {
    for (const Json& gpu : gpus) {
      lines.push_back(NameLine(gpu));
      lines.push_back(BusyLine(gpu, model, canvas));
      lines.push_back(MemoryLine(gpu, model, canvas));
      lines.push_back(HoldersLine(gpu, model));
    }
    return lines;
  }
  for (const Json& gpu : gpus) {
    if (lines.size() + 1 >= most && gpus.size() > most) {
      lines.push_back({{{fmt::format("and {} more GPUs", gpus.size() - lines.size()), "2"}}});
      break;
    }
    lines.push_back(ShortLine(gpu, model, canvas));
  }
  return lines;
}

}  // namespace tandem::cli::top
