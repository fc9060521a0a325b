// atom, red and redux, every operation in every type: the new value in memory, and the old one.
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "softgpu/ptx/float_format.h"

namespace tandem::ptx {
namespace {

using NextValue = std::function<uint64_t(uint64_t old, uint64_t b, uint64_t c)>;

struct AtomicForm {
  std::string op, type;
  int bits;
  NextValue next;                   // of the lowest `bits`
  NextValue next_in_shared = next;  // where shared memory differs
  bool red = true;                  // whether it is there without the old value, too
  int operands = 1;

  std::string name() const { return op + "." + type; }
  uint64_t mask() const { return ~uint64_t{0} >> (64 - bits); }
  std::string View(char which) const {
    return std::string(bits == 16 ? "%h" : bits == 32 ? "%w" : "%") + which;
  }
  // "[%at], %wb, %wc"
  std::string Operands(const std::string& at) const {
    return "[" + at + "], " + View('b') + (operands == 2 ? ", " + View('c') : "") + ";\n";
  }
  uint64_t After(uint64_t old, uint64_t b, uint64_t c, bool shared) const {
    return (shared ? next_in_shared : next)(old & mask(), b & mask(), c & mask()) & mask();
  }
};

template <class T>
void AddExtremes(const std::string& type, std::vector<AtomicForm>* forms) {
  constexpr int kWidth = sizeof(T) * 8;
  forms->push_back({"min", type, kWidth, [](auto old, auto b, auto) {
                      return static_cast<uint64_t>(
                          std::min(static_cast<T>(old), static_cast<T>(b)));
                    }});
  forms->push_back({"max", type, kWidth, [](auto old, auto b, auto) {
                      return static_cast<uint64_t>(
                          std::max(static_cast<T>(old), static_cast<T>(b)));
                    }});
}

void AddIntegers(std::vector<AtomicForm>* forms) {
  for (const auto& [type, bits] : {std::pair{"u32", 32}, {"s32", 32}, {"u64", 64}}) {
    forms->push_back({"add", type, bits, [](auto old, auto b, auto) { return old + b; }});
  }
  AddExtremes<uint32_t>("u32", forms);
  AddExtremes<int32_t>("s32", forms);
  AddExtremes<uint64_t>("u64", forms);
  AddExtremes<int64_t>("s64", forms);
  forms->push_back(
      {"inc", "u32", 32, [](auto old, auto b, auto) { return old >= b ? 0 : old + 1; }});
  forms->push_back(
      {"dec", "u32", 32, [](auto old, auto b, auto) { return old == 0 || old > b ? b : old - 1; }});
  for (const int bits : {32, 64}) {
    const std::string type = "b" + std::to_string(bits);
    forms->push_back({"and", type, bits, [](auto old, auto b, auto) { return old & b; }});
    forms->push_back({"or", type, bits, [](auto old, auto b, auto) { return old | b; }});
    forms->push_back({"xor", type, bits, [](auto old, auto b, auto) { return old ^ b; }});
  }
  for (const int bits : {16, 32, 64}) {
    const std::string type = "b" + std::to_string(bits);
    const NextValue exchanged = [](auto, auto b, auto) { return b; };
    const NextValue compared = [](auto old, auto b, auto c) { return old == b ? c : old; };
    if (bits > 16) forms->push_back({"exch", type, bits, exchanged, exchanged, false});
    forms->push_back({"cas", type, bits, compared, compared, false, 2});
  }
}

// Each part of a register added for itself, as the adder of global memory has it: in f32 subnormal
// numbers are zeros.
NextValue AdderOf(const FloatFormat& f, int parts, bool flushes) {
  return [=](uint64_t old, uint64_t b, uint64_t) {
    uint64_t sums = 0;
    for (int shift = 0; shift < parts * f.bits; shift += f.bits) {
      const uint64_t mask = ~uint64_t{0} >> (64 - f.bits);
      const uint64_t x = old >> shift & mask, y = b >> shift & mask;
      const uint64_t sum = flushes ? f.Flush(f.Sum(f.Value(f.Flush(x)), f.Value(f.Flush(y))))
                                   : f.Sum(f.Value(x), f.Value(y));
      sums |= sum << shift;
    }
    return sums;
  };
}

std::vector<AtomicForm> AtomicForms() {
  std::vector<AtomicForm> forms;
  AddIntegers(&forms);
  forms.push_back({"add", "f32", 32, AdderOf(kF32, 1, true), AdderOf(kF32, 1, false)});
  forms.push_back({"add", "f64", 64, AdderOf(kF64, 1, false)});
  for (const FloatFormat& f : {kF16, kBf16}) {
    const std::string name = f.name;
    forms.push_back({"add.noftz", name, 16, AdderOf(f, 1, false)});
    forms.push_back({"add.noftz", name + "x2", 32, AdderOf(f, 2, false)});
  }
  return forms;
}

// Where a thread's word of 64 bits lies, and how it is named.
struct AtomicPlace {
  const char *space, *setup, *at;
  bool shared;
};
constexpr AtomicPlace kAtomicPlaces[] = {
    {".global", "", "%out", false},
    {"", "", "%out", false},
    {".shared",
     ".shared .align 8 .b8 box[512]; .reg .b32 %box; mov.u32 %hi, %tid.x; shl.b32 %hi, %hi, 3;\n"
     "mov.u32 %box, box; add.u32 %box, %box, %hi;\n",
     "%box", true},
    {".shared::cta",
     ".shared .align 8 .b8 box[512]; .reg .b64 %box; mov.u32 %hi, %tid.x; mul.wide.u32 %d, %hi, "
     "8;\n"
     "mov.u64 %box, box; add.u64 %box, %box, %d;\n",
     "%box", true},
    {"",
     ".shared .align 8 .b8 box[512]; .reg .b64 %box; mov.u32 %hi, %tid.x; shl.b32 %hi, %hi, 3;\n"
     "cvt.u64.u32 %d, %hi; cvta.shared.u64 %box, box; add.u64 %box, %box, %d;\n",
     "%box", true},
};
// None, and every order in every scope.
std::vector<std::string> AtomicOrders() {
  std::vector<std::string> orders = {""};
  for (const std::string order : {".relaxed", ".acquire", ".release", ".acq_rel"}) {
    for (const std::string scope : {".cta", ".cluster", ".gpu", ".sys"}) {
      orders.push_back(order + scope);
    }
  }
  return orders;
}

std::vector<uint64_t> AtomicInputs() {
  const uint64_t edges[] = {0,
                            1,
                            2,
                            0x7fffffff,
                            0x80000000,
                            0xffffffff,
                            0x100000000,
                            0x7fffffffffffffff,
                            0x8000000000000000,
                            0xffffffffffffffff,
                            B(1.0f),
                            B(-1.0f),
                            B(0x1p-126f),
                            B(-0x1.8p-127f),
                            B(INFINITY),
                            B(-INFINITY),
                            B(1.0),
                            B(-0x1p53),
                            B(double{INFINITY}),
                            B(-double{INFINITY}),
                            0x3c003f80,
                            0xbc00fbff,
                            0x7bff7f7f,
                            0x7c00fc00,
                            0x04000080};
  return WithPairs(edges);
}

// Each thread on a word of its own. The bits beside the operand in the word stay.
TEST(Atomics, ResultAndOldValue) {
  const std::vector<uint64_t> inputs = AtomicInputs();
  const std::vector<std::string> orders = AtomicOrders();
  size_t turn = 0;
  for (const AtomicForm& form : AtomicForms()) {
    for (const AtomicPlace& place : kAtomicPlaces) {
      const std::string at = place.at, name = orders[turn++ % orders.size()] + place.space + "." +
                                              form.name() + " ";
      const std::string typed = place.space + std::string(".u64");
      const std::string set = std::string(place.setup) + "st" + typed + " [" + at + "], %a;\n";
      const std::string get = "ld" + typed + " %d, [" + at + "];";
      const std::string atom = "atom" + name + form.View('d') + ", " + form.Operands(at);
      const auto after = [=, shared = place.shared](auto a, auto b, auto c) {
        return (a & ~form.mask()) | form.After(a, b, c, shared);
      };
      Check({set + atom,
             form.bits == 16   ? 'h'
             : form.bits == 32 ? 'w'
                               : 'd',
             [=](auto a, auto, auto) { return a & form.mask(); }},
            inputs);
      Check({set + atom + get, 'd', after}, inputs);
      if (form.red) Check({set + "red" + name + form.Operands(at) + get, 'd', after}, inputs);
    }
  }
}

class AtomicTest : public KernelTest {
 protected:
  static constexpr uint64_t kCells = 4096, kOperandsB = 8192, kOperandsC = 16384;
  static constexpr uint32_t kThreads = 64, kCellCount = 4;

  // Every fourth thread works on the same cell. Stores the old values.
  std::string Contended(const AtomicForm& form, const std::string& scope) const {
    return R"(
    .reg .b64 %a, %b, %c, %d, %cell; .reg .b32 %wb, %wc, %wd, %hi; .reg .b16 %hb, %hc, %hd;
    mul.wide.u32 %a, %t, 8; add.u64 %a, %a, %out;
    ld.global.u64 %b, [%a+8192]; ld.global.u64 %c, [%a+16384];
    mov.b64 {%wb, %hi}, %b; mov.b64 {%wc, %hi}, %c;
    cvt.u16.u32 %hb, %wb; cvt.u16.u32 %hc, %wc;
    and.b32 %r1, %t, 3; mul.wide.u32 %cell, %r1, 8; add.u64 %cell, %cell, %out;
    add.u64 %cell, %cell, 4096;
    atom)" +
           scope + ".global." + form.name() + " " + form.View('d') + ", " + form.Operands("%cell") +
           (form.bits == 16   ? "cvt.u64.u16 %d, %hd;"
            : form.bits == 32 ? "cvt.u64.u32 %d, %wd;"
                              : "") +
           "st.global.u64 [%a], %d; ret;";
  }

  // Whether some order of the threads of this cell explains what each has seen and what is left.
  void ExpectSomeOrder(const AtomicForm& form, uint32_t cell, uint64_t first) {
    uint64_t value = first;
    uint64_t done = 0;
    const auto seen = [&](uint32_t i) { return device_.Array<uint64_t>(0)[i]; };
    const auto next = [&](uint32_t i) {
      return form.After(value, device_.Array<uint64_t>(kOperandsB)[i],
                        device_.Array<uint64_t>(kOperandsC)[i], false);
    };
    for (uint32_t step = 0; step < kThreads / kCellCount; ++step) {
      uint32_t chosen = kThreads;
      for (uint32_t i = cell; i < kThreads; i += kCellCount) {
        if ((done >> i & 1) != 0 || seen(i) != value) continue;
        // Those that change nothing have had their turn before the one that does.
        if (chosen == kThreads || next(i) == value) chosen = i;
      }
      ASSERT_LT(chosen, kThreads) << "nobody saw " << value << ", step " << step;
      done |= uint64_t{1} << chosen;
      value = next(chosen);
    }
    EXPECT_EQ(device_.Array<uint64_t>(kCells)[cell] & form.mask(), value);
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, AtomicTest, ::testing::ValuesIn(Paths()));

TEST_P(AtomicTest, ThreadsOnOneWordTakeTurns) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  std::mt19937_64 random(Seed());
  for (const AtomicForm& form : AtomicForms()) {
    SCOPED_TRACE(form.name());
    uint64_t first[kCellCount];
    for (uint64_t& value : first) value = random() & form.mask();
    std::copy(std::begin(first), std::end(first), device_.Array<uint64_t>(kCells));
    for (uint32_t i = 0; i < kThreads; ++i) {
      const bool matches = form.op == "cas" && i % 3 == 0;
      device_.Array<uint64_t>(kOperandsB)[i] = matches ? first[i % kCellCount] : random();
      device_.Array<uint64_t>(kOperandsC)[i] = random();
    }
    Go(Contended(form, random() % 2 == 0 ? ".relaxed.sys" : ""), kThreads);
    for (uint32_t cell = 0; cell < kCellCount; ++cell) ExpectSomeOrder(form, cell, first[cell]);
  }
}

// Adds 1 until the kernel is done; returns how often.
template <class T>
uint64_t AddUntil(const std::atomic<bool>& done, T* word) {
  constexpr uint64_t kMost = 1 << 22;  // so that all sums are exact in f32
  uint64_t added = 0;
  for (; !done && added < kMost; ++added) std::atomic_ref<T>(*word).fetch_add(1);
  return added;
}

// The host adds to the same word as the kernel.
TEST_P(AtomicTest, OfSystemScopeLoseNoUpdate) {
  constexpr uint32_t kAdders = 128, kRounds = 3000;
  const auto total_of = [&]<class T>(T, const std::string& type, const std::string& one) {
    T* const word = device_.Array<T>(kCells);
    *word = 0;
    std::atomic<bool> done{false};
    uint64_t added = 0;
    std::thread host([&] { added = AddUntil(done, word); });
    Go("mov." + type + " " + one + "; add.u64 %rd1, %out, 4096; mov.u32 %r9, 0;\n" +
           "LOOP: red.relaxed.sys.global.add." + type + " [%rd1], " + one.substr(0, one.find(',')) +
           "; add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, " + std::to_string(kRounds) +
           "; @%p1 bra LOOP; ret;",
       kAdders);
    done = true;
    host.join();
    EXPECT_EQ(static_cast<uint64_t>(*word), added + uint64_t{kAdders} * kRounds) << type;
  };
  total_of(uint32_t{}, "u32", "%r2, 1");
  total_of(uint64_t{}, "u64", "%rd2, 1");
  total_of(float{}, "f32", "%f2, 0f3F800000");
}

struct ReduxForm {
  const char* name;
  int64_t (*join)(int64_t a, int64_t b);
  bool is_signed;
};
constexpr ReduxForm kReduxForms[] = {
    {"add.u32", [](int64_t a, int64_t b) { return a + b; }, false},
    {"add.s32", [](int64_t a, int64_t b) { return a + b; }, true},
    {"min.u32", [](int64_t a, int64_t b) { return std::min(a, b); }, false},
    {"min.s32", [](int64_t a, int64_t b) { return std::min(a, b); }, true},
    {"max.u32", [](int64_t a, int64_t b) { return std::max(a, b); }, false},
    {"max.s32", [](int64_t a, int64_t b) { return std::max(a, b); }, true},
    {"and.b32", [](int64_t a, int64_t b) { return a & b; }, false},
    {"or.b32", [](int64_t a, int64_t b) { return a | b; }, false},
    {"xor.b32", [](int64_t a, int64_t b) { return a ^ b; }, false},
};

// Of the lanes that a mask names; the others are in a group of their own, or elsewhere.
TEST_P(AtomicTest, ReduxJoinsItsMembers) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  std::mt19937_64 random(Seed());
  uint32_t* values = device_.Array<uint32_t>(kOperandsB);
  for (const ReduxForm& form : kReduxForms) {
    for (const uint32_t members :
         {0xffffffffu, 0xffffu, 0x55555555u, 0x80000001u, W(random()) | 1}) {
      for (const bool apart : {false, true}) {
        SCOPED_TRACE(form.name + std::string(" of ") + std::to_string(members));
        for (uint32_t i = 0; i < 32; ++i) {
          const uint32_t edges[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, W(random())};
          values[i] = edges[random() % std::size(edges)];
        }
        const std::string redux = std::string("redux.sync.") + form.name + " %r3, %r2, %r5;\n";
        const auto out =
            Go("ld.global.u32 %r2, [%at+8192]; mov.u32 %r5, " + std::to_string(members) +
               "; mov.u32 %r3, 0;\n"
               "shr.u32 %r4, %r5, %t; and.b32 %r4, %r4, 1; setp.eq.u32 %p1, %r4, 0;\n" +
               (apart ? "@%p1 bra OUT;\n" : "@%p1 not.b32 %r5, %r5;\n") + redux +
               "OUT: st.global.u32 [%at], %r3; ret;");
        for (uint32_t i = 0; i < 32; ++i) {
          const bool member = (members >> i & 1) != 0;
          const uint32_t group = member ? members : ~members;
          int64_t joined = 0;
          bool any = false;
          for (uint32_t j = 0; j < 32; ++j) {
            if ((group >> j & 1) == 0) continue;
            const int64_t value = form.is_signed ? S(values[j]) : int64_t{values[j]};
            joined = any ? form.join(joined, value) : value;
            any = true;
          }
          EXPECT_EQ(out[i], apart && !member ? 0 : W(static_cast<uint64_t>(joined))) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
