// Lowering of texture and surface instructions, in the unified mode: a texture and its sampler are
// one object, whose handle is in a register or is written as a number.
#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

// Three rows in Instruction::imm; RowOfTexture in handlers_texture.cc takes them out again. A row
// is a multiple of 128 below 1 << 28.
int64_t PackRows(const uint32_t (&rows)[3]) {
  uint64_t packed = 0;
  for (int i = 0; i < 3; ++i) {
    packed |= uint64_t{rows[i] >> 7} << (21 * i);
  }
  return static_cast<int64_t>(packed);
}

constexpr TextureShape kGeometries[] = {{1, false, Edge::kTrap},
                                        {2, false, Edge::kTrap},
                                        {3, false, Edge::kTrap},
                                        {1, true, Edge::kTrap},
                                        {2, true, Edge::kTrap}};

}  // namespace

// The register, or number, that names the texture.
Result<uint32_t> KernelLowering::TextureHandle(const Operand& operand) {
  if (operand.kind != Operand::Kind::kAddress || !operand.component.empty()) {
    return Bad("expected a texture in brackets");
  }
  if (operand.name.empty()) return Constant(operand.integer, true);
  if (operand.integer != 0) return Bad("a texture has no displacement");
  ASSIGN_OR_RETURN(const Symbol symbol, FindName(operand.name));
  if (symbol.kind != Symbol::Kind::kRegister) {
    return Bad("texture references are not supported; texture objects are");
  }
  if (TypeBytes(symbol.type) != 8) return Bad("a texture handle has 64 bits");
  return symbol.where;
}

// The rows of the coordinates, for a geometry that is known. One that the geometry does not need is
// allowed where the tuple must have four.
Status KernelLowering::TextureCoordinates(const Operand& where, Type type, Instruction* in) {
  if (where.parts.size() != 1) {
    return Bad(where.parts.empty() ? "the coordinates are missing"
                                   : "samplers apart from textures are not supported");
  }
  const Operand& tuple = where.parts[0];
  const bool single = tuple.kind != Operand::Kind::kVector;
  const size_t given = single ? 1 : tuple.parts.size();
  const size_t needed = size_t{in->texture.dimensions} + (in->texture.layered ? 1 : 0);
  if (given != needed && !(needed == 3 && given == 4)) {
    return Bad(std::to_string(needed) + " coordinates are expected");
  }
  uint32_t rows[3] = {kSinkRow, kSinkRow, kSinkRow};
  for (size_t i = 0; i < needed; ++i) {
    const Type expected = in->texture.layered && i == 0 ? Type::kU32 : type;
    ASSIGN_OR_RETURN(rows[i], Source(single ? tuple : tuple.parts[i], expected));
  }
  in->imm = PackRows(rows);
  return {};
}

// tex.2d.v4.u32.f32 {d, d, d, d}, [texture, {x, y}]; and [texture, x] for one coordinate.
Status KernelLowering::Texture(const Statement& s, const Modifiers& m) {
  const bool level = m.Has("level");
  TRY(NeedOperands(s, level ? 3 : 2));
  const Operand& results = s.operands[0];
  if (results.kind != Operand::Kind::kVector || results.parts.size() != 4) {
    return Bad("four results are expected");
  }
  Instruction in;
  in.texture = kGeometries[*m.OneOf({"1d", "2d", "3d", "a1d", "a2d"})];
  ASSIGN_OR_RETURN(in.a, TextureHandle(s.operands[1]));
  uint32_t* refs[4] = {&in.dst, &in.b, &in.c, &in.d};
  for (int i = 0; i < 4; ++i) {
    ASSIGN_OR_RETURN(*refs[i], Destination(results.parts[i], Type::kU32));
  }
  TRY(TextureCoordinates(s.operands[1], m.type(1), &in));
  if (level) {
    // No texture has more than one level, and levels beyond the last are the last.
    ASSIGN_OR_RETURN(const uint32_t unused, Source(s.operands[2], m.type(1)));
    static_cast<void>(unused);
  }
  return Emit({.op = Op::kTexture, .type = m.type(1)}, in);
}

// suld.b.2d.v2.b32.trap {d, d}, [surface, {x, y}]; and sust.b with the operands exchanged.
Status KernelLowering::Surface(const Statement& s, const Modifiers& m) {
  const bool store = m.form().op == Op::kSurfaceStore;
  TRY(NeedOperands(s, 2));
  const Operand& where = s.operands[store ? 0 : 1];
  const Operand& values = s.operands[store ? 1 : 0];
  Instruction in;
  in.count = m.Has("v4") ? 4 : m.Has("v2") ? 2 : 1;
  const size_t given = values.kind == Operand::Kind::kVector ? values.parts.size() : 1;
  if (given != in.count) return Bad("the operand does not fit the vector");
  if (in.count == 4 && TypeBytes(m.type(0)) == 8) return Bad("at most 16 bytes at once");
  in.texture = kGeometries[*m.OneOf({"1d", "2d", "3d", "a1d", "a2d"})];
  in.texture.edge = static_cast<Edge>(*m.OneOf({"trap", "clamp", "zero"}));
  ASSIGN_OR_RETURN(in.a, TextureHandle(where));
  TRY(TextureCoordinates(where, Type::kS32, &in));
  Selector selector{.op = m.form().op, .type = m.type(0), .count = in.count};
  ASSIGN_OR_RETURN(selector.from, MemoryValues(values, selector.type, store, &in));
  return Emit(selector, in);
}

Status KernelLowering::TextureQuery(const Statement& s, const Modifiers& m) {
  TRY(NeedOperands(s, 2));
  if (!s.operands[1].parts.empty()) return Bad("expected a texture in brackets");
  Instruction in;
  ASSIGN_OR_RETURN(in.dst, Destination(s.operands[0], Type::kU32));
  ASSIGN_OR_RETURN(in.a, TextureHandle(s.operands[1]));
  in.query = static_cast<Query>(*m.OneOf(
      {"width", "height", "depth", "array_size", "num_mipmap_levels", "normalized_coords"}));
  return Emit({.op = Op::kTextureQuery, .type = Type::kU32}, in);
}

}  // namespace tandem::ptx
