#include "src/softgpu/ptx/program.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "src/softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kMaxImageBytes = uint64_t{1} << 38;
constexpr uint32_t kImageAlign = 256;
constexpr size_t kMaxWork = size_t{1} << 22;  // statements and instructions, of all kernels

}  // namespace

// Compiles one module; a friend of Program, which has no other way to come about.
class ModuleCompiler {
 public:
  Result<std::shared_ptr<const Program>> Run(std::string_view text);

 private:
  Status PlaceVariables(const Module& module);
  Status Initialize(const Declaration& declaration, Variable* variable);
  Status CollectFunctions(const Module& module);
  // Lowers a kernel, or a function for the sake of its errors; adds what it calls to *called.
  Status LowerKernel(const Function& kernel, std::unordered_set<std::string_view>* called);

  Program program_;
  ModuleSymbols symbols_;
  size_t work_left_ = kMaxWork;
};

Status ModuleCompiler::PlaceVariables(const Module& module) {
  std::vector<const Declaration*> placed;
  for (const Declaration& declaration : module.variables) {
    const std::string_view name = declaration.name;
    if (symbols_.image.contains(name) || symbols_.shared.contains(name)) {
      return SyntaxError(declaration.line, Quoted(name) + " is declared twice");
    }
    if (declaration.space == Declaration::Space::kShared) {
      if (!declaration.init.empty()) {
        return SyntaxError(declaration.line, "a shared variable cannot be initialized");
      }
      symbols_.shared[name] = &declaration;
      continue;
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
    variable.offset = RoundUp(program_.image_bytes_, declaration.align);
    program_.image_bytes_ = variable.offset + variable.size;
    if (program_.image_bytes_ > kMaxImageBytes) {
      return SyntaxError(declaration.line, "the module's variables are too large");
    }
    symbols_.image[name] = {variable.offset, declaration.space};
    program_.variables_.push_back(std::move(variable));
    placed.push_back(&declaration);
  }
  for (size_t i = 0; i < placed.size(); ++i) {
    TRY(Initialize(*placed[i], &program_.variables_[i]));
  }
  return {};
}

Status ModuleCompiler::Initialize(const Declaration& declaration, Variable* variable) {
  const uint32_t width = declaration.element_bytes;
  variable->element_bytes = width;
  for (const Initializer& value : declaration.init) {
    Variable::Value placed{value.index * width, value.value, false};
    if (!value.symbol.empty()) {
      const auto target = symbols_.image.find(value.symbol);
      if (target == symbols_.image.end()) {
        return SyntaxError(declaration.line, "unknown name " + Quoted(value.symbol));
      }
      placed.value += target->second.offset;
      placed.is_address = true;
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
  return {};
}

Result<std::shared_ptr<const Program>> ModuleCompiler::Run(std::string_view text) {
  ASSIGN_OR_RETURN(const Module module, Parse(text));
  const bool first_generation = module.target != 0 && module.target < 20;
  symbols_.flushes = first_generation;
  symbols_.old = first_generation || module.version < 2.0;
  symbols_.maps_f64 = module.maps_f64;
  TRY(PlaceVariables(module));
  TRY(CollectFunctions(module));
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
      const uint64_t bits = value.value + (value.is_address ? device_address : 0);
      std::memcpy(image + variable.offset + value.offset, &bits, variable.element_bytes);
    }
  }
}

Result<std::shared_ptr<const Program>> Compile(std::string_view text) {
  return ModuleCompiler().Run(text);
}

}  // namespace tandem::ptx
