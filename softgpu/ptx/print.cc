#include "softgpu/ptx/print.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace tandem::ptx {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr int kMaxWidth = 1 << 16;

bool MayRead(const WarpContext& w, uint64_t address, uint64_t bytes) {
  const uint64_t offset = address - w.device_base;
  if (offset >= w.device_size || bytes > w.device_size - offset) return false;
  for (uint64_t granule = offset >> w.granule_shift;
       granule <= (offset + bytes - 1) >> w.granule_shift; ++granule) {
    const uint64_t word = w.readable[granule >> 6].load(std::memory_order_relaxed);
    if ((word >> (granule & 63) & 1) == 0) return false;
  }
  return true;
}

// Reads as the lane would; false where it may not.
bool ReadGeneric(const WarpContext& w, int lane, uint64_t address, void* to, uint64_t bytes) {
  const uint64_t inside = address & ((uint64_t{1} << kWindowShift) - 1);
  const uint8_t* base = nullptr;
  uint64_t size = 0;
  switch (address >> kWindowShift) {
    case kSharedWindow:
      base = w.shared;
      size = w.shared_bytes;
      break;
    case kLocalWindow:
      base = w.local + static_cast<uint64_t>(lane) * w.local_bytes;
      size = w.local_bytes;
      break;
    case kParamWindow:
      base = w.params;
      size = w.param_bytes;
      break;
    default:
      if (!MayRead(w, address, bytes)) return false;
      std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
      return true;
  }
  if (inside > size || bytes > size - inside) return false;
  std::memcpy(to, base + inside, bytes);
  return true;
}

// A text that ends in NUL, at most a megabyte.
bool ReadText(const WarpContext& w, int lane, uint64_t address, std::string* text) {
  char c = 0;
  while (text->size() < kBufferBytes) {
    if (!ReadGeneric(w, lane, address++, &c, 1)) return false;
    if (c == 0) break;
    *text += c;
  }
  return true;
}

template <class T>
T ReadRow(const WarpContext& w, uint32_t ref, int lane) {
  T value;
  std::memcpy(&value, w.frame + ref + sizeof value * static_cast<size_t>(lane), sizeof value);
  return value;
}

// One conversion of a format, from its '%' to its letter.
struct Conversion {
  std::string flags;
  int width = -1, precision = -1;
  bool star_width = false, star_precision = false;
  int longs = 0, shorts = 0;
  char letter = 0;
  size_t end = 0;  // behind it
};

Conversion ParseConversion(std::string_view format, size_t at) {
  const auto digit = [&] { return at < format.size() && format[at] >= '0' && format[at] <= '9'; };
  const auto number = [&] {
    int value = 0;
    for (; digit(); ++at) value = std::min(value * 10 + (format[at] - '0'), kMaxWidth);
    return value;
  };
  const auto next = [&](char c) { return at < format.size() && format[at] == c; };
  Conversion c;
  ++at;
  while (at < format.size() && std::strchr("-+ #0", format[at]) != nullptr) c.flags += format[at++];
  if (next('*')) {
    c.star_width = true;
    ++at;
  } else if (digit()) {
    c.width = number();
  }
  if (next('.')) {
    ++at;
    if (next('*')) {
      c.star_precision = true;
      ++at;
    } else {
      c.precision = number();
    }
  }
  while (next('l') || next('h') || next('j') || next('z') || next('t')) {
    ++(format[at++] == 'h' ? c.shorts : c.longs);
  }
  c.letter = at < format.size() ? format[at++] : 0;
  c.end = at;
  return c;
}

// The arguments of one call: each at the next multiple of its size.
class Arguments {
 public:
  Arguments(const WarpContext& w, int lane, uint64_t address)
      : w_(w), lane_(lane), address_(address) {}

  template <class T>
  T Take() {
    T value{};
    offset_ = (offset_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    good_ = good_ && ReadGeneric(w_, lane_, address_ + offset_, &value, sizeof value);
    offset_ += sizeof(T);
    ++count_;
    return value;
  }
  bool good() const { return good_; }
  void Spoil() { good_ = false; }
  int count() const { return count_; }

 private:
  const WarpContext& w_;
  const int lane_;
  const uint64_t address_;
  uint64_t offset_ = 0;
  int count_ = 0;
  bool good_ = true;
};

template <class T>
std::string Formatted(const Conversion& c, std::string_view length, T value) {
  const std::string spec = "%" + c.flags + "*.*" + std::string(length) + c.letter;
  // A negative precision is none; a width of 0 is none, too.
  const int width = std::max(c.width, 0);
  const int size = std::snprintf(nullptr, 0, spec.c_str(), width, c.precision, value);
  std::string text(size < 0 ? 0 : static_cast<size_t>(size) + 1, 0);
  if (text.empty()) return text;
  std::snprintf(text.data(), text.size(), spec.c_str(), width, c.precision, value);
  text.pop_back();
  return text;
}

std::string Convert(const WarpContext& w, int lane, Conversion c, Arguments* arguments) {
  if (c.star_width) {
    c.width = std::max(-kMaxWidth, std::min(arguments->Take<int>(), kMaxWidth));
    if (c.width < 0) {
      c.flags += '-';
      c.width = -c.width;
    }
  }
  if (c.star_precision) c.precision = std::min(arguments->Take<int>(), kMaxWidth);
  switch (c.letter) {
    case 'd':
    case 'i':
    case 'o':
    case 'u':
    case 'x':
    case 'X':
      if (c.longs > 0) return Formatted(c, "ll", arguments->Take<long long>());
      return Formatted(c, c.shorts == 0 ? "" : c.shorts == 1 ? "h" : "hh", arguments->Take<int>());
    case 'c':
      c.precision = -1;
      return Formatted(c, "", arguments->Take<int>());
    case 'p':
      return Formatted(c, "", reinterpret_cast<void*>(arguments->Take<uint64_t>()));
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      return Formatted(c, "", arguments->Take<double>());
    case 's': {
      std::string text;
      const uint64_t address = arguments->Take<uint64_t>();
      if (address == 0) {
        text = "(null)";
      } else if (!ReadText(w, lane, address, &text)) {
        arguments->Spoil();
      }
      return Formatted(c, "", text.c_str());
    }
    default:
      return {};
  }
}

}  // namespace

bool PrintBuffer::Print(const WarpContext& w, int lane, uint64_t format, uint64_t arguments,
                        int* count) {
  *count = -1;
  if (format == 0) return true;
  std::string pattern, text;
  if (!ReadText(w, lane, format, &pattern)) return false;
  Arguments values(w, lane, arguments);
  for (size_t at = 0; at < pattern.size() && text.size() < kBufferBytes;) {
    if (pattern[at] != '%') {
      text += pattern[at++];
    } else if (pattern.compare(at, 2, "%%") == 0) {
      text += '%';
      at += 2;
    } else {
      const Conversion conversion = ParseConversion(pattern, at);
      text += Convert(w, lane, conversion, &values);
      at = conversion.end;
    }
    if (!values.good()) return false;
  }
  *count = values.count();
  bytes_ += text.size();
  lines_.push_back(std::move(text));
  while (bytes_ > kBufferBytes && lines_.size() > 1) {
    bytes_ -= lines_.front().size();
    lines_.pop_front();
  }
  return true;
}

bool PrintBuffer::PrintLanes(const WarpContext& w, const Instruction& in, uint32_t active) {
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    int count = 0;
    if (!Print(w, lane, ReadRow<uint64_t>(w, in.a, lane), ReadRow<uint64_t>(w, in.b, lane),
               &count)) {
      return false;
    }
    std::memcpy(w.frame + in.dst + sizeof count * static_cast<size_t>(lane), &count, sizeof count);
  }
  return true;
}

std::string PrintBuffer::Take() {
  std::string all;
  for (const std::string& line : lines_) all += line;
  lines_.clear();
  bytes_ = 0;
  return all;
}

std::string AssertionText(const WarpContext& w, const Instruction& in, uint32_t active) {
  const auto place = [](uint32_t x, uint32_t y, uint32_t z) {
    return '[' + std::to_string(x) + ',' + std::to_string(y) + ',' + std::to_string(z) + ']';
  };
  std::string lines;
  for (uint32_t rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto text = [&](uint32_t ref) {
      std::string value;
      return ReadText(w, lane, ReadRow<uint64_t>(w, ref, lane), &value) ? value : "(null)";
    };
    lines += text(in.b) + ':' + std::to_string(ReadRow<uint32_t>(w, in.c, lane)) + ": " +
             text(in.d) + ": block: " + place(w.ctaid[0], w.ctaid[1], w.ctaid[2]) +
             ", thread: " + place(w.tid[0][lane], w.tid[1][lane], w.tid[2][lane]) + " Assertion `" +
             text(in.a) + "` failed.\n";
  }
  return lines;
}

}  // namespace tandem::ptx
