#include "softgpu/driver/linker.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <set>

#include "softgpu/driver/device_runtime.h"
#include "softgpu/driver/driver.h"
#include "softgpu/driver/fat_binary.h"
#include "softgpu/driver/module_image.h"
#include "softgpu/ptx/syntax.h"
#include "src/base/time.h"

namespace tandem::soft {
namespace {

// One directive, declaration or function of a module, at the top level.
struct Item {
  enum class What { kOther, kVariable, kFunction };
  // A local name is its text's own. Of several weak definitions one is taken, a strong one first.
  enum class Linkage { kLocal, kVisible, kWeak, kExtern };
  std::string_view text, head;
  What what = What::kOther;
  Linkage linkage = Linkage::kLocal;
  bool defines = false;
  std::string_view name;  // of the variable or function
  uint64_t weight = 0;    // of several weak definitions the first of the heaviest is taken
};

struct Header {
  int version_major = 0, version_minor = 0;
  int target = 0;
  std::string_view target_line;
};

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
}

bool Contains(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

size_t SkipBlank(std::string_view text, size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

// What follows the string or the character at `at`.
size_t Next(std::string_view text, size_t at) {
  if (text[at] != '"') return at + 1;
  return std::min(text.find('"', at + 1), text.size() - 1) + 1;
}

// With a blank for every comment, so that no search finds a match inside one.
std::string WithoutComments(std::string_view text) {
  std::string plain;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    const std::string_view two = text.substr(at, 2);
    if (two == "//") {
      end = std::min(text.find('\n', at), text.size());
    } else if (two == "/*") {
      end = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
    } else {
      end = Next(text, at);
      plain.append(text.substr(at, end - at));
      continue;
    }
    plain.push_back(' ');
  }
  return plain;
}

bool StartsWithAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](auto word) { return text.starts_with(word); });
}

// What comes before an initial value or a body.
std::string_view HeadOf(std::string_view item) {
  size_t at = 0;
  while (at < item.size() && item[at] != '=' && item[at] != '{') at = Next(item, at);
  return item.substr(0, at);
}

// The end of the item that begins at `at`: a line's, where the header's next directive begins, a
// semicolon outside of braces, or the brace that closes a function or section. (An initial value's
// braces are followed by a semicolon.)
size_t EndOfItem(std::string_view text, size_t at) {
  const size_t begin = at;
  const std::string_view rest = text.substr(begin);
  if (StartsWithAny(rest, {".file", "@@"})) return std::min(text.find('\n', at), text.size());
  if (StartsWithAny(rest, {".version", ".target", ".address_size"})) {
    do {
      at = Next(text, at);
    } while (at < text.size() && (text[at] != '.' || IsNameCharacter(text[at - 1])) &&
             text[at] != '@');
    return at;
  }
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    at = Next(text, at);
    if (c == '{') ++depth;
    if (c == ';' && depth == 0) {
      // The body of a function comes after the .pragma in its head.
      if (!text.substr(SkipBlank(text, at)).starts_with('{')) return at;
    }
    if (c != '}' || --depth > 0) continue;
    const size_t head = HeadOf(text.substr(begin, at - begin)).size();
    if (!text.substr(begin + head).starts_with('=')) return at;
  }
  return at;
}

Item::Linkage LinkageOf(std::string_view head) {
  if (Contains(head, ".extern")) return Item::Linkage::kExtern;
  if (Contains(head, ".visible")) return Item::Linkage::kVisible;
  if (Contains(head, ".weak") || Contains(head, ".common")) return Item::Linkage::kWeak;
  return Item::Linkage::kLocal;
}

size_t EndOfName(std::string_view text, size_t at) {
  while (at < text.size() && IsNameCharacter(text[at])) ++at;
  return at;
}

// Of a function: behind its directive and the list of its results, if there is one.
std::string_view NameOfFunction(std::string_view head) {
  const size_t function = head.find(".func"), entry = head.find(".entry");
  const bool is_entry = function == std::string_view::npos;
  size_t at = SkipBlank(head, is_entry ? entry + 6 : function + 5);
  if (at < head.size() && head[at] == '(') {
    at = SkipBlank(head, std::min(head.find(')', at), head.size() - 1) + 1);
  }
  return head.substr(at, EndOfName(head, at) - at);
}

// Of a variable: the last name before its extent, initial value or end.
std::string_view NameOfVariable(std::string_view head) {
  size_t end = std::min(head.find_first_of("[;"), head.size());
  while (end > 0 && !IsNameCharacter(head[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && IsNameCharacter(head[begin - 1])) --begin;
  return head.substr(begin, end - begin);
}

uint64_t BytesOfVariable(std::string_view text) {
  const std::string module = ".version 6.0\n.target sm_50\n" + std::string(text);
  const auto parsed = ptx::Parse(module);
  return parsed.ok() && !parsed->variables.empty() ? parsed->variables[0].bytes : 0;
}

Item Classify(std::string_view text) {
  Item item;
  item.text = text;
  if (text[0] != '.') return item;
  const std::string_view head = item.head = HeadOf(text);
  if (Contains(head, ".func") || Contains(head, ".entry")) {
    item.what = Item::What::kFunction;
    item.defines = head.size() < text.size();
    item.name = NameOfFunction(head);
  } else if (Contains(head, ".shared") || Contains(head, ".global") || Contains(head, ".const")) {
    item.what = Item::What::kVariable;
    item.defines = !Contains(head, ".extern");
    item.name = NameOfVariable(head);
  } else {
    return item;
  }
  item.linkage = LinkageOf(head.substr(0, head.find('(')));
  if (Contains(head, ".common")) {
    item.weight = head.size() < text.size() ? UINT64_MAX : BytesOfVariable(text);
  }
  return item;
}

std::vector<Item> Split(std::string_view text, Header* header) {
  std::vector<Item> items;
  for (size_t at = SkipBlank(text, 0); at < text.size(); at = SkipBlank(text, at)) {
    const size_t end = EndOfItem(text, at);
    const Item item = Classify(text.substr(at, end - at));
    at = end;
    int major = 0, minor = 0, target = 0;
    const std::string line(item.text.substr(0, 100));
    if (std::sscanf(line.c_str(), ".version %d.%d", &major, &minor) == 2) {
      if (std::pair(major, minor) > std::pair(header->version_major, header->version_minor)) {
        header->version_major = major;
        header->version_minor = minor;
      }
    } else if (std::sscanf(line.c_str(), ".target sm_%d", &target) == 1) {
      if (target > header->target) {
        header->target = target;
        header->target_line = item.text;
      }
    } else if (!line.starts_with(".address_size")) {
      items.push_back(item);
    }
  }
  return items;
}

using Renames = std::map<std::string_view, std::string>;

// New names for what is local to a text and known to others by the same name.
Renames LocalNames(const std::vector<Item>& items, size_t number,
                   std::set<std::string, std::less<>>* taken) {
  Renames renames;
  std::set<std::string_view> own;
  for (const Item& item : items) {
    if (item.what == Item::What::kOther || item.linkage != Item::Linkage::kLocal) continue;
    if (!own.insert(item.name).second) continue;  // its definition after its declaration
    if (taken->emplace(item.name).second) continue;
    std::string fresh = std::string(item.name) + "$" + std::to_string(number);
    while (!taken->insert(fresh).second) fresh += "$";
    renames[item.name] = std::move(fresh);
  }
  return renames;
}

// The text with other names. What follows a dot is a directive or a part of a vector.
std::string Renamed(std::string_view text, const Renames& renames) {
  std::string renamed;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::max(EndOfName(text, at), Next(text, at));
    const std::string_view token = text.substr(at, end - at);
    const auto found = at > 0 && text[at - 1] == '.' ? renames.end() : renames.find(token);
    if (found == renames.end()) {
      renamed.append(token);
    } else {
      renamed.append(found->second);
    }
    at = end;
  }
  return renamed;
}

// The item's text; of a kernel that sets no limit to its registers, with this one (zero: none).
std::string Limited(const Item& item, uint32_t max_registers) {
  std::string text(item.text);
  const bool kernel = item.what == Item::What::kFunction && Contains(item.head, ".entry");
  if (max_registers == 0 || !kernel || !item.defines || Contains(item.head, ".maxnreg"))
    return text;
  return text.insert(item.head.size(), ".maxnreg " + std::to_string(max_registers) + "\n");
}

// Which definitions and declarations are left out. The items must stay where they are.
class Duplicates {
 public:
  explicit Duplicates(const std::vector<std::vector<Item>>& texts) {
    for (const std::vector<Item>& items : texts) {
      for (const Item& item : items) Note(item);
    }
  }
  bool Drops(const Item& item) {
    if (item.what == Item::What::kOther) return false;
    if (item.linkage == Item::Linkage::kWeak && item.defines) {
      return strong_.contains(item.name) || weak_.at(item.name) != &item;
    }
    if (item.what != Item::What::kVariable || item.defines) return false;
    return variables_.contains(item.name) || !declared_.insert(item.name).second;
  }

 private:
  void Note(const Item& item) {
    if (!item.defines) return;
    if (item.what == Item::What::kVariable) variables_.insert(item.name);
    if (item.linkage == Item::Linkage::kVisible) strong_.insert(item.name);
    if (item.linkage != Item::Linkage::kWeak) return;
    const Item*& taken = weak_.try_emplace(item.name, &item).first->second;
    if (item.weight > taken->weight) taken = &item;
  }

  std::set<std::string_view> variables_, strong_, declared_;
  std::map<std::string_view, const Item*> weak_;
};

}  // namespace

std::string JoinPtx(const std::vector<std::string>& texts, uint32_t max_registers) {
  Header header;
  std::vector<std::string> plain;
  for (const std::string& text : texts) plain.push_back(WithoutComments(text));
  std::vector<std::vector<Item>> items;
  std::set<std::string, std::less<>> taken;
  for (const std::string& text : plain) {
    items.push_back(Split(text, &header));
    for (const Item& item : items.back()) {
      if (item.linkage != Item::Linkage::kLocal) taken.emplace(item.name);
    }
  }
  std::string whole = ".version " + std::to_string(header.version_major) + "." +
                      std::to_string(header.version_minor) + "\n" +
                      std::string(header.target_line) + "\n.address_size 64\n";
  Duplicates duplicates(items);
  for (size_t i = 0; i < items.size(); ++i) {
    const Renames renames = LocalNames(items[i], i, &taken);
    for (const Item& item : items[i]) {
      if (duplicates.Drops(item)) continue;
      const std::string limited = Limited(item, max_registers);
      whole.append(renames.empty() ? limited : Renamed(limited, renames)).append("\n");
    }
  }
  return whole;
}

void Linker::Log(const std::string& errors, const std::string& info, float wall_ms) {
  AnswerJitOptions(static_cast<unsigned int>(options_.size()), options_.data(), values_, errors,
                   info, wall_ms);
}

CUresult Linker::AddText(std::string text, const std::string& name) {
  const Status checked = ptx::CheckPart(text);
  if (!checked.ok()) {
    errors_ += name + ": " + checked.error().message + "\n";
    Log(errors_, "", 0);
    return checked.error().code == ErrorCode::kVersion ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                       : CUDA_ERROR_INVALID_PTX;
  }
  texts_.push_back(std::move(text));
  return CUDA_SUCCESS;
}

CUresult Linker::Add(CUjitInputType type, const void* data, size_t size, const std::string& name) {
  if (type < CU_JIT_INPUT_CUBIN || type > CU_JIT_INPUT_NVVM) return CUDA_ERROR_INVALID_VALUE;
  std::string text(static_cast<const char*>(data), size);
  std::string log;
  if (size >= 16 && IsFatBinary(text.c_str())) {
    std::string unpacked;
    const CUresult result = PtxOfFatBinary({text.data(), text.size()},
                                           kComputeMajor * 10 + kComputeMinor, &unpacked, &log);
    if (result == CUDA_SUCCESS) return AddText(std::move(unpacked), name);
    errors_ += name + ": " + log;
    Log(errors_, "", 0);
    return result;
  }
  // What cuLinkComplete gives is PTX too, and may come back as the machine code that it stands for.
  const bool is_text =
      type == CU_JIT_INPUT_PTX || (type == CU_JIT_INPUT_CUBIN && !text.empty() && text[0] == '.');
  if (is_text) {
    text.resize(std::min(text.size(), text.find('\0')));
    return AddText(std::move(text), name);
  }
  if (type == CU_JIT_INPUT_LIBRARY && IsDeviceRuntime(text)) return AddText(kDeviceRuntime, name);
  const bool is_damaged = type == CU_JIT_INPUT_FATBINARY;
  errors_ +=
      name + (is_damaged ? ": not a fat binary\n" : ": machine code; a software GPU links PTX\n");
  Log(errors_, "", 0);
  return is_damaged ? CUDA_ERROR_INVALID_IMAGE : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult Linker::Complete(void** image, size_t* size) {
  const Instant began = MonotonicNow();
  std::shared_ptr<const ptx::Program> program;
  std::string log, info;
  const auto count = static_cast<unsigned int>(options_.size());
  whole_ = JoinPtx(texts_, MaxRegisters(count, options_.data(), values_));
  const CUresult result = CompileImage({whole_.c_str()}, 0, &program, &log);
  if (result == CUDA_SUCCESS && WantsVerboseLog(count, options_.data(), values_)) {
    info = DescribeKernels(*program);
  }
  const Duration took = MonotonicNow() - began;
  Log(errors_ + log, info, static_cast<float>(took.seconds() * 1e3));
  CU_TRY(result);
  *image = whole_.data();
  if (size != nullptr) *size = whole_.size() + 1;
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
