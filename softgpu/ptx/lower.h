// Turns one kernel, with the functions it calls, from syntax into Code.
//
// Every function gets registers and local memory of its own in the kernel's one frame, which is
// right because recursion is refused. A function's code comes before its callers', so that lanes
// inside a call have the lower program counter and finish it before the others go on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "softgpu/ptx/program.h"
#include "softgpu/ptx/syntax.h"

namespace tandem::ptx {

// What the kernels of a module share.
struct ModuleSymbols {
  struct Variable {
    uint64_t offset = 0;  // in the image
    Declaration::Space space = Declaration::Space::kGlobal;
    uint32_t index_bytes = 0;
  };
  std::unordered_map<std::string_view, Variable> image;  // .global, .const
  uint64_t heap = 0;                                     // where it begins in the image, if it does
  uint64_t constant_bytes = 0;                           // .const ones lie first in the image
  std::unordered_map<std::string_view, const Declaration*> shared;
  std::unordered_map<std::string_view, const Function*> functions;
  // Functions whose addresses the module takes: their numbers, and they themselves, null for one
  // that must not be called. argument_bytes: of the largest list of parameters or results of one.
  std::unordered_map<std::string_view, uint32_t> pointers;
  std::vector<const Function*> pointed_at;
  uint64_t argument_bytes = 0;
  // What .target sm_1x means: f32 arithmetic flushes subnormals, and some modifiers may be left
  // out.
  bool flushes = false;
  bool old = false;       // PTX before 2.0, or for sm_1x: some modifiers may be missing
  bool maps_f64 = false;  // f64 would have to be computed in f32
};

inline uint64_t PointerTo(uint32_t number) {
  return kFirstPointer + number * kPointerStep;
}

// Where a list of parameters has its parts when it is passed through memory; the end.
uint64_t LayOut(const std::vector<Declaration>& formals, std::vector<uint64_t>* offsets);

class KernelLowering;
class Modifiers;
struct Fragment;

// One form of an instruction: the modifiers that it has and those that it needs (forms.cc).
struct Form {
  struct Slot {
    std::vector<std::string_view> words;
    bool optional = false;
    bool types = false;  // the words are types, which must come in their order

    bool Has(std::string_view word) const;
  };
  std::vector<Slot> slots;
  Op op = Op::kNone;
  std::string_view operands;
  Status (KernelLowering::*lower)(const Statement&, const Modifiers&) = nullptr;

  bool old = false;  // only where ModuleSymbols::old

  // Whether each word has a slot of its own, and no slot that needs one is left over.
  bool Takes(const std::vector<std::string_view>& modifiers) const;
};

// The modifiers of a statement, all of which its form has.
class Modifiers {
 public:
  Modifiers(const std::vector<std::string_view>& words, const Form& form)
      : words_(words), form_(form) {}

  const Form& form() const { return form_; }
  bool Has(std::string_view word) const;
  // The index of the one that is there.
  std::optional<int> OneOf(std::initializer_list<std::string_view> words) const;
  Type type(size_t index) const;  // kNone when there are fewer

 private:
  const std::vector<std::string_view>& words_;
  const Form& form_;
};

class KernelLowering {
 public:
  // Stops after `work` statements and instructions, so that a module of many kernels that all call
  // the same functions cannot take for ever.
  KernelLowering(const ModuleSymbols& symbols, const Function& kernel, size_t work)
      : symbols_(symbols), kernel_(kernel), work_left_(work) {}

  Result<Kernel> Run();
  size_t work_left() const { return work_left_; }
  // Adds the functions that Run() has lowered into the kernel.
  void AddCallees(std::unordered_set<std::string_view>* names) const {
    for (const auto& [name, callee] : lowered_) names->insert(name);
  }

 private:
  struct Symbol {
    enum class Kind : uint8_t {
      kRegister,
      kPredicate,
      kKernelParam,
      kLocal,
      kShared,
      kDynamicShared,
      kImage,
      kFunction,
    } kind = Kind::kRegister;
    Type type = Type::kNone;
    Declaration::Space space = Declaration::Space::kRegister;
    uint32_t where = 0;  // row, predicate, range index, or offset
    uint64_t offset = 0;
    uint64_t size = 0;
    uint32_t index_bytes = 0;  // as in Declaration
  };
  struct Range {
    uint64_t count = 0;
    Type type = Type::kNone;
    std::unordered_map<uint32_t, uint32_t> slots;
  };
  struct Scope {
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, size_t>
        ranges;  // %r of %r<100>, which is no name, to ranges_
    const std::unordered_map<std::string_view, uint32_t>* labels = nullptr;  // to label_targets_
  };
  // A function already lowered into this kernel.
  struct Callee {
    uint32_t entry = 0;
    uint32_t return_row = 0;
    uint32_t inside = 0;  // a predicate, where pointers are called: lanes that run it
    bool polls = false;   // there is something in it that may wait for other lanes
    std::vector<Symbol> params, results;
  };
  struct Register {
    uint32_t ref = 0;
    Type type = Type::kNone;
  };
  struct FormRow {
    std::string_view syntax;
    Op op = Op::kNone;
    std::string_view operands;
    Status (KernelLowering::*lower)(const Statement&, const Modifiers&) = &KernelLowering::Plain;
  };
  friend bool KnownOpcode(std::string_view name);
  static const FormRow kFormRows[];
  static const std::unordered_map<std::string_view, std::vector<Form>>& Forms();  // by name
  Result<const Form*> FormOf(const Statement& statement) const;

  // Structure (lower.cc).
  Status LowerFunction(const Function& function, int depth);
  Status LowerCallees(const Function& function, int depth);
  Status LowerBody(const Function& function);
  Status LowerStatement(const Statement& statement);
  Status MarkStack(const Function& function);
  void CollectLabels(const Function& function);
  Status DefineFormals(const Function& function, Callee* lowered);
  Status DefineKernelParams(std::vector<Param>* params, uint32_t* bytes);
  Status Define(const Declaration& declaration);
  Result<Symbol> PlaceRegister(const Declaration& declaration);
  Result<Symbol> PlaceLocal(const Declaration& declaration);
  Result<Symbol> PlaceShared(const Declaration& declaration);
  Status PatchLabels(size_t first);
  void CountStraightRuns();
  void OpenScope();

  // Operands (operands.cc).
  Result<uint32_t> NewRow(Type type);
  uint32_t NewTrail();
  Result<uint32_t> NewPredicate();
  uint32_t Constant(uint64_t bits, bool wide);
  Status CheckFrame() const;
  uint32_t PlaceConstant(const std::vector<Line>& lines);
  Result<uint32_t> RowList(const std::vector<uint32_t>& refs);
  Result<Symbol> Find(const Operand& operand);
  Result<Symbol> FindName(std::string_view name);
  Result<std::optional<Symbol>> FindInRange(const Scope& scope, std::string_view name);
  Result<uint64_t> Displacement(const Operand& operand, const Symbol& symbol) const;
  Result<uint32_t> VariableSource(const Operand& operand, const Symbol& symbol, Type type);
  Result<Register> RegisterOf(const Operand& operand);
  Result<uint32_t> Destination(const Operand& operand, Type type);
  Result<uint32_t> Source(const Operand& operand, Type type);
  Result<uint64_t> ImmediateBits(const Operand& operand, Type type) const;
  Result<uint32_t> Immediate(const Operand& operand, Type type);
  Result<uint32_t> ReadSpecial(Special special, Type type);
  Result<uint32_t> PredicateDestination(const Operand& operand);
  Result<uint32_t> PredicateSource(const Operand& operand, bool* negated);
  // Puts an address operand into in.a, in.imm and in.narrow; tells the space its name lives in.
  Status AddressOperand(const Operand& operand, Instruction* in, std::optional<Symbol>* symbol);
  Result<uint32_t> AddressOf(const Symbol& symbol, uint64_t displacement);

  // Emission.
  Error Bad(const std::string& what) const;
  Status NeedOperands(const Statement& statement, size_t count) const;
  Status Spend(size_t work);
  Status Emit(const Selector& selector, Instruction in);
  Status Append(Instruction in);  // control flow: as it is, without a handler

  // What forms name (lower_*.cc), with their parts.
  Status Plain(const Statement& s, const Modifiers& m);
  Status Lop3(const Statement& s, const Modifiers& m);
  Status PlainSource(const Operand& operand, char kind, const Modifiers& m, Instruction* in,
                     uint32_t* ref);
  Status Setp(const Statement& s, const Modifiers& m);
  Status Set(const Statement& s, const Modifiers& m);
  Status Comparison(const Statement& s, const Modifiers& m, Selector* selector, Instruction* in);
  Status Cvt(const Statement& s, const Modifiers& m);
  Status CvtPack(const Statement& s, const Modifiers& m);
  Status Extend(uint32_t row, Type type, const Register& target);
  Result<uint32_t> ConvertSource(const Operand& operand, Type type);
  Status Mov(const Statement& s, const Modifiers& m);
  Status Pack(const Statement& s, Type type, bool pack);
  Status Cvta(const Statement& s, const Modifiers& m);
  Status Memory(const Statement& s, const Modifiers& m);
  Result<Space> SpaceOf(const Modifiers& m, const std::optional<Symbol>& symbol, bool write) const;
  Result<Type> MemoryValues(const Operand& value, Type type, bool store, Instruction* in);
  Status KernelParamLoad(const Symbol& param, Selector* selector, Instruction* in);
  Result<uint32_t> MemoryRegister(const Operand& operand, Type type, bool store, Type* width);
  Status Atom(const Statement& s, const Modifiers& m);
  Result<uint32_t> TextureHandle(const Operand& operand);
  Status TextureCoordinates(const Operand& where, Type type, Instruction* in);
  Status Texture(const Statement& s, const Modifiers& m);
  Status Surface(const Statement& s, const Modifiers& m);
  Status TextureQuery(const Statement& s, const Modifiers& m);
  Status Nothing(const Statement& s, const Modifiers& m);
  Status Branch(const Statement& s, const Modifiers& m);
  Status JumpTo(const Operand& target);
  Status Leave(const Statement& s, const Modifiers& m);
  Status CheckBarrier(const Operand& barrier, const Operand* threads) const;
  Status Barrier(const Statement& s, const Modifiers& m);
  Status BarrierReduce(const Statement& s, const Modifiers& m);
  Status WarpSync(const Statement& s, const Modifiers& m);
  Status Trap(const Statement& s, const Modifiers& m);
  Status Call(const Statement& s, const Modifiers& m);
  Status CallFunction(const Callee& callee, const std::vector<Operand>& results,
                      const std::vector<Operand>& arguments);
  Result<Symbol> Actual(const Operand& operand, const Symbol& formal, bool in);
  Status CopyArgument(const Symbol& from, const Symbol& to);
  Status MeetLanes(const Operand* members);
  Status Shfl(const Statement& s, const Modifiers& m);
  Status Vote(const Statement& s, const Modifiers& m);
  Status ActiveMask(const Statement& s, const Modifiers& m);
  Status Match(const Statement& s, const Modifiers& m);
  Status Elect(const Statement& s, const Modifiers& m);
  Status Redux(const Statement& s, const Modifiers& m);

  // What works on tiles and copies them (lower_tiles.cc, lower_wmma.cc).
  Status Mma(const Statement& s, const Modifiers& m);
  Status TileRows(const Operand& operand, size_t count, Type type, bool write,
                  std::vector<uint32_t>* refs);
  Status MmaBits(const Statement& s, const Modifiers& m);
  Status WmmaMemory(const Statement& s, const Modifiers& m);
  Status FragmentRows(const Operand& operand, const Fragment& fragment, bool write,
                      std::vector<uint32_t>* words);
  Status MatrixMemory(const Statement& s, const Modifiers& m);
  Status CopyAsync(const Statement& s, const Modifiers& m);
  Status AsyncNothing(const Statement& s, const Modifiers& m);
  Status Policy(const Statement& s, const Modifiers& m);
  Status CheckPolicy(const Operand& operand);
  Status Mbarrier(const Statement& s, const Modifiers& m);
  Status BarrierOperand(const Operand& operand, char kind, const Modifiers& m, Instruction* in);

  // Video instructions (lower_video.cc).
  Status VideoScalar(const Statement& s, const Modifiers& m);
  Status VideoVector(const Statement& s, const Modifiers& m);
  Result<uint32_t> VideoSource(const Operand& operand);
  Status IsSpace(const Statement& s, const Modifiers& m);

  // Calls of the functions that the system provides (lower_system.cc).
  Status SystemCall(std::string_view name, const std::vector<Operand>& results,
                    const std::vector<Operand>& arguments);
  bool IsSystemCall(std::string_view name) const;
  Status CallAssert(const std::vector<Operand>& results, const std::vector<Operand>& arguments);
  Status SetConditional(const std::vector<Operand>& results, const std::vector<Operand>& arguments);
  Result<uint32_t> SystemArgument(const Operand& argument, Type type);
  Status BranchIndexed(const Statement& s, const Modifiers& m);

  // Calls by pointer (lower_pointers.cc).
  Status PlacePassed();
  Status LowerPointers();
  Status LowerThunk(const Function& function);
  Status CallPointer(const Operand& target, const Operand& prototype,
                     const std::vector<Operand>& results, const std::vector<Operand>& arguments);
  std::vector<Symbol> Passed(const std::vector<Declaration>& formals) const;
  Status Return();
  Status Alloca(const Statement& s, const Modifiers& m);
  Status StackMark(const Statement& s, const Modifiers& m);

  const ModuleSymbols& symbols_;
  const Function& kernel_;
  size_t work_left_;
  Code code_;
  uint32_t shared_bytes_ = 0;
  uint32_t dynamic_shared_align_ = 1;  // where the dynamic part begins, once there is one
  std::map<std::pair<uint64_t, bool>, uint32_t> constants_;
  std::vector<Range> ranges_;
  std::vector<Scope> scopes_;
  std::vector<uint32_t> label_targets_;                  // by label; ~0 while not met
  std::vector<std::pair<size_t, uint32_t>> label_uses_;  // instruction, label
  std::unordered_map<std::string_view, Callee> lowered_;
  std::unordered_map<const Declaration*, Symbol> shared_placed_;
  std::unordered_set<std::string_view> in_progress_;
  // The labels of the function in hand, one map for each '{' in order.
  std::vector<std::unordered_map<std::string_view, uint32_t>> labels_;
  std::unordered_map<std::string_view, const Statement*> targets_;     // of indexed branches
  std::unordered_map<std::string_view, const Statement*> prototypes_;  // and lists of functions
  size_t next_scope_ = 0;
  bool has_stack_ = false;
  uint32_t register_rows_ = 0;
  uint32_t trails_ = 0;  // the next one, unless a row begins there
  // Where in local memory calls by pointer pass arguments and results, once there is one.
  std::optional<uint64_t> passing_;
  // Of the function and statement in hand.
  const Function* function_ = nullptr;
  const Statement* statement_ = nullptr;
  uint32_t return_row_ = 0;
  uint32_t inside_ = 0;
  uint32_t stack_row_ = 0;  // what alloca had handed out when the function began; 0: it has none
  uint16_t guard_ = kTruePredicate;
};

}  // namespace tandem::ptx
