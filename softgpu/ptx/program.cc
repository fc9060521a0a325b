#include "softgpu/ptx/program.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kMaxImageBytes = uint64_t{1} << 38;
constexpr uint32_t kImageAlign = 256;
constexpr size_t kMaxWork = size_t{1} << 22;  // statements and instructions, of all kernels

// Empty bodies and room for what other texts may define, so that the rest can be looked at.
void StandInForOthers(Module* module) {
  std::unordered_set<std::string_view> known = {"malloc", "free", "vprintf", "__assertfail",
                                                "cudaGraphSetConditional"};
  for (const Function& function : module->functions) {
    if (function.has_body) known.insert(function.name);
  }
  for (const Alias& alias : module->aliases) known.insert(alias.name);
  for (Function& function : module->functions) {
    function.has_body |= known.insert(function.name).second;
  }
  known.clear();
  for (const Declaration& variable : module->variables) {
    if (!variable.is_extern) known.insert(variable.name);
  }
  std::erase_if(module->variables, [&](const Declaration& variable) {
    return variable.is_extern && !known.insert(variable.name).second;
  });
  for (Declaration& variable : module->variables) {
    if (!variable.is_extern || variable.space == Declaration::Space::kShared) continue;
    variable.is_extern = false;
    if (variable.bytes == 0) variable.bytes = variable.element_bytes;
  }
}

}  // namespace

// Compiles one module; a friend of Program, which has no other way to come about.
class ModuleCompiler {
 public:
  Result<std::shared_ptr<const Program>> Run(Module module, uint32_t max_registers);

 private:
  Status PlaceVariables(const Module& module);
  Status Place(const Declaration& declaration);
  Status Initialize(const Declaration& declaration, Variable* variable);
  Status CollectFunctions(const Module& module);
  Status CollectPointers(const Module& module);
  Status PointAt(std::string_view name, uint32_t line);
  void CountArguments(const std::vector<Declaration>& results,
                      const std::vector<Declaration>& params);
  // Lowers a kernel, or a function for the sake of its errors; adds what it calls to *called.
  Status LowerKernel(const Function& kernel, std::unordered_set<std::string_view>* called);

  Program program_;
  ModuleSymbols symbols_;
  std::unordered_map<const Function*, uint32_t> numbers_;  // of those in pointed_at
  size_t work_left_ = kMaxWork;
};

Status ModuleCompiler::PlaceVariables(const Module& module) {
  std::vector<const Declaration*> placed;
  for (const bool constants : {true, false}) {
    for (const Declaration& declaration : module.variables) {
      if ((declaration.space == Declaration::Space::kConst) != constants) continue;
      TRY(Place(declaration));
      if (declaration.space != Declaration::Space::kShared) placed.push_back(&declaration);
    }
    if (constants) symbols_.constant_bytes = program_.image_bytes_;
  }
  const auto provided = [&](std::string_view name) {
    const auto function = symbols_.functions.find(name);
    return function != symbols_.functions.end() && !function->second->has_body;
  };
  if (provided("malloc") || provided("free")) {
    symbols_.heap = RoundUp(program_.image_bytes_, kImageAlign);
    program_.image_bytes_ = symbols_.heap + kHeapBytes;
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    TRY(Initialize(*placed[i], &program_.variables_[i]));
  }
  return {};
}

Status ModuleCompiler::Place(const Declaration& declaration) {
  const std::string_view name = declaration.name;
  if (symbols_.image.contains(name) || symbols_.shared.contains(name)) {
    return SyntaxError(declaration.line, Quoted(name) + " is declared twice");
  }
  if (declaration.space == Declaration::Space::kShared) {
    symbols_.shared[name] = &declaration;
    return {};
  }
  if (declaration.bytes == 0 || (declaration.is_extern && declaration.init.empty())) {
    return SyntaxError(declaration.line, Quoted(name) + " is defined in no module that is known");
  }
  if (declaration.align > kImageAlign) {
    return SyntaxError(declaration.line, "an alignment above 256 is not supported here");
  }
  Variable variable;
  variable.name = std::string(name);
  variable.size = declaration.bytes;
  variable.align = declaration.align;
  variable.constant = declaration.space == Declaration::Space::kConst;
  variable.managed = declaration.managed;
  variable.offset = RoundUp(program_.image_bytes_, declaration.align);
  program_.image_bytes_ = variable.offset + variable.size;
  if (program_.image_bytes_ > kMaxImageBytes) {
    return SyntaxError(declaration.line, "the module's variables are too large");
  }
  symbols_.image[name] = {variable.offset, declaration.space, declaration.index_bytes};
  program_.variables_.push_back(std::move(variable));
  return {};
}

Status ModuleCompiler::Initialize(const Declaration& declaration, Variable* variable) {
  const uint32_t width = declaration.element_bytes;
  variable->element_bytes = width;
  for (const Initializer& value : declaration.init) {
    Variable::Value placed{value.index * width, value.value, false, value.shift};
    const auto target = symbols_.image.find(value.symbol);
    const auto function = symbols_.pointers.find(value.symbol);
    if (target != symbols_.image.end()) {
      placed.value += target->second.offset;
      placed.is_address = true;
    } else if (function != symbols_.pointers.end()) {
      placed.value += PointerTo(function->second);
    } else if (!value.symbol.empty()) {
      return SyntaxError(declaration.line, "unknown name " + Quoted(value.symbol));
    }
    variable->init.push_back(placed);
  }
  return {};
}

Status ModuleCompiler::CollectFunctions(const Module& module) {
  for (const Function& function : module.functions) {
    const auto [entry, fresh] = symbols_.functions.try_emplace(function.name, &function);
    if (fresh) continue;
    if (entry->second->has_body && function.has_body) {
      return SyntaxError(function.line, Quoted(function.name) + " is defined twice");
    }
    if (function.has_body) entry->second = &function;
  }
  for (const Alias& alias : module.aliases) {
    const auto function = symbols_.functions.find(alias.function);
    const auto name = symbols_.functions.find(alias.name);
    if (function == symbols_.functions.end() || !function->second->has_body ||
        function->second->entry || name == symbols_.functions.end() || name->second->has_body) {
      return SyntaxError(alias.line, "an alias is a declared name for a function with a body");
    }
    name->second = function->second;
  }
  return {};
}

// Finds the functions whose addresses are taken, and how much is passed to what pointers call.
Status ModuleCompiler::CollectPointers(const Module& module) {
  for (const Declaration& declaration : module.variables) {
    for (const Initializer& value : declaration.init) {
      TRY(PointAt(value.symbol, declaration.line));
    }
  }
  for (const Function& function : module.functions) {
    for (const Statement& statement : function.body) {
      const bool targets = statement.kind == Statement::Kind::kCallTargets;
      if (statement.kind == Statement::Kind::kPrototype) {
        CountArguments(statement.results, statement.declarations);
      } else if (targets || statement.name == "mov") {
        for (const Operand& operand : statement.operands) {
          const auto found = symbols_.functions.find(operand.name);
          if (targets && found != symbols_.functions.end() && found->second->entry) {
            return SyntaxError(statement.line, Quoted(operand.name) + " is a kernel");
          }
          TRY(PointAt(operand.name, statement.line));
        }
      }
    }
  }
  return {};
}

Status ModuleCompiler::PointAt(std::string_view name, uint32_t line) {
  const auto found = symbols_.functions.find(name);
  if (found == symbols_.functions.end() || found->second->entry) return {};
  const Function* function = found->second;
  // What compilers put in the place of a virtual function that is never there.
  const bool impossible = name == "__cxa_pure_virtual" || name == "__cxa_deleted_virtual";
  if (!function->has_body && !impossible) {
    return SyntaxError(line, Quoted(name) + " is not a function with a body");
  }
  CountArguments(function->results, function->params);
  if (!function->has_body) function = nullptr;
  const auto [entry, fresh] =
      numbers_.try_emplace(found->second, static_cast<uint32_t>(symbols_.pointed_at.size()));
  symbols_.pointers[name] = entry->second;
  if (fresh) symbols_.pointed_at.push_back(function);
  return {};
}

void ModuleCompiler::CountArguments(const std::vector<Declaration>& results,
                                    const std::vector<Declaration>& params) {
  std::vector<uint64_t> offsets;
  for (const auto* formals : {&results, &params}) {
    symbols_.argument_bytes = std::max(symbols_.argument_bytes, LayOut(*formals, &offsets));
  }
}

Result<std::shared_ptr<const Program>> ModuleCompiler::Run(Module module, uint32_t max_registers) {
  for (Function& function : module.functions) {
    if (function.max_registers == 0) function.max_registers = max_registers;
  }
  const bool first_generation = module.target != 0 && module.target < 20;
  symbols_.flushes = first_generation;
  symbols_.old = first_generation || module.version < 2.0;
  symbols_.maps_f64 = module.maps_f64;
  TRY(CollectFunctions(module));
  TRY(CollectPointers(module));
  TRY(PlaceVariables(module));
  std::unordered_set<std::string_view> called;
  for (const Function& function : module.functions) {
    if (function.entry && function.has_body) TRY(LowerKernel(function, &called));
  }
  // Functions that no kernel calls are checked too, callers first.
  for (auto function = module.functions.rbegin(); function != module.functions.rend(); ++function) {
    if (function->entry || !function->has_body || called.contains(function->name)) continue;
    TRY(LowerKernel(*function, &called));
  }
  return std::make_shared<const Program>(std::move(program_));
}

Status ModuleCompiler::LowerKernel(const Function& kernel,
                                   std::unordered_set<std::string_view>* called) {
  KernelLowering lowering(symbols_, kernel, work_left_);
  ASSIGN_OR_RETURN(Kernel lowered, lowering.Run());
  work_left_ = lowering.work_left();
  lowering.AddCallees(called);
  if (kernel.entry) program_.kernels_.push_back(std::move(lowered));
  return {};
}

const Kernel* Program::FindKernel(std::string_view name) const {
  const auto found = std::find_if(kernels_.begin(), kernels_.end(),
                                  [&](const Kernel& kernel) { return kernel.name == name; });
  return found == kernels_.end() ? nullptr : &*found;
}

const Variable* Program::FindVariable(std::string_view name) const {
  const auto found = std::find_if(variables_.begin(), variables_.end(),
                                  [&](const Variable& variable) { return variable.name == name; });
  return found == variables_.end() ? nullptr : &*found;
}

void Program::WriteImage(uint8_t* image, uint64_t device_address) const {
  std::memset(image, 0, image_bytes_);
  for (const Variable& variable : variables_) {
    for (const Variable::Value& value : variable.init) {
      const uint64_t bits = (value.value + (value.is_address ? device_address : 0)) >> value.shift;
      std::memcpy(image + variable.offset + value.offset, &bits, variable.element_bytes);
    }
  }
}

Result<std::shared_ptr<const Program>> Compile(std::string_view text, uint32_t max_registers) {
  ASSIGN_OR_RETURN(Module module, Parse(text));
  return ModuleCompiler().Run(std::move(module), max_registers);
}

Status CheckPart(std::string_view text) {
  ASSIGN_OR_RETURN(Module module, Parse(text));
  StandInForOthers(&module);
  TRY(ModuleCompiler().Run(std::move(module), 0));
  return {};
}

}  // namespace tandem::ptx
