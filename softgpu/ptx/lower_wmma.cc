// Lowering of mma, wmma.load, wmma.mma and wmma.store.
#include <charconv>
#include <cstring>

#include "softgpu/ptx/lower.h"
#include "softgpu/ptx/wmma.h"

namespace tandem::ptx {
namespace {

struct Shape {
  uint8_t m = 0, n = 0, k = 0;
  bool of_wmma() const { return m * n == 256; }  // in f64 it has mma's
};

// m16n16k8 among the words of an instruction.
Shape ShapeOf(const std::vector<std::string_view>& words) {
  Shape shape;
  for (const std::string_view word : words) {
    const size_t n = word.find('n'), k = word.find('k');
    if (word[0] != 'm' || n == word.npos || k == word.npos) continue;
    std::from_chars(word.data() + 1, word.data() + n, shape.m);
    std::from_chars(word.data() + n + 1, word.data() + k, shape.n);
    std::from_chars(word.data() + k + 1, word.data() + word.size(), shape.k);
  }
  return shape;
}

// The fragment of matrix 'a', 'b', or 'c', which is d's, too.
Fragment FragmentOf(const Shape& shape, char matrix, Type type) {
  Fragment f;
  f.type = type;
  f.bytes = static_cast<uint8_t>(TypeBytes(type));
  f.in_register = static_cast<uint8_t>(f.bytes >= 4 ? 1 : 4 / f.bytes);
  f.rows = matrix == 'b' ? shape.n : shape.m;
  f.columns = matrix == 'c' ? shape.n : shape.k;
  f.run = matrix == 'c' ? 2 : f.in_register;
  f.registers = static_cast<uint8_t>(f.rows * f.columns / (kLanes * f.in_register));
  // Halves of wmma have as many registers in every shape.
  if (type == Type::kF16 && matrix != 'c' && shape.of_wmma()) f.registers = 8;
  return f;
}

// The type of the registers.
Type RegisterType(const Fragment& f) {
  const bool word = f.bytes < 4 || f.type == Type::kTf32;
  return word ? Type::kU32 : f.type;
}

}  // namespace

Status KernelLowering::FragmentRows(const Operand& operand, const Fragment& fragment, bool write,
                                    std::vector<uint32_t>* words) {
  const size_t at = words->size();
  words->resize(at + kFragmentWords);
  std::memcpy(words->data() + at, &fragment, sizeof fragment);
  return TileRows(operand, fragment.registers, RegisterType(fragment), write, words);
}

// wmma.load.a d, [p]{, stride}; wmma.store.d [p], d{, stride}
Status KernelLowering::WmmaMemory(const Statement& s, const Modifiers& m) {
  const bool store = m.form().op == Op::kWmmaStore;
  const size_t count = s.operands.size();
  if (count != 2 && count != 3) return Bad("a wrong number of operands");
  TRY(MeetLanes(nullptr));
  const char matrix = m.Has("a") ? 'a' : m.Has("b") ? 'b' : 'c';
  const Fragment f = FragmentOf(ShapeOf(s.modifiers), matrix, m.type(0));
  std::vector<uint32_t> words;
  TRY(FragmentRows(s.operands[store ? 1 : 0], f, !store, &words));
  Instruction in;
  std::optional<Symbol> symbol;
  TRY(AddressOperand(s.operands[store ? 0 : 1], &in, &symbol));
  ASSIGN_OR_RETURN(in.space, SpaceOf(m, symbol, store));
  in.transposed = m.Has("row") == (matrix == 'b');
  in.b = Constant(in.transposed ? f.rows : f.columns, false);
  if (count == 3) {
    ASSIGN_OR_RETURN(in.b, Source(s.operands[2], Type::kU32));
  }
  ASSIGN_OR_RETURN(in.c, RowList(words));
  return Emit({.op = m.form().op}, in);
}

// mma and wmma.mma d, a, b, c
Status KernelLowering::Mma(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 4));
  TRY(MeetLanes(nullptr));
  const Shape shape = ShapeOf(s.modifiers);
  // Halves of wmma are not named: only what they are added to.
  const bool named = m.type(2) != Type::kNone;
  const Type a = named ? m.type(1) : Type::kF16, b = named ? m.type(2) : Type::kF16;
  if (a != b && shape.of_wmma()) return Bad("both factors have the same type");
  std::vector<uint32_t> words;
  TRY(FragmentRows(s.operands[0], FragmentOf(shape, 'c', m.type(0)), true, &words));
  TRY(FragmentRows(s.operands[1], FragmentOf(shape, 'a', a), false, &words));
  TRY(FragmentRows(s.operands[2], FragmentOf(shape, 'b', b), false, &words));
  TRY(FragmentRows(s.operands[3], FragmentOf(shape, 'c', m.type(named ? 3 : 1)), false, &words));
  Instruction in;
  in.finite = m.Has("satfinite");
  ASSIGN_OR_RETURN(in.c, RowList(words));
  return Emit({.op = Op::kMma,
               .type = m.type(0),
               .from = a,
               .count = shape.k,
               .rows = shape.m,
               .columns = shape.n},
              in);
}

}  // namespace tandem::ptx
