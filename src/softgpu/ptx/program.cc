#include "src/softgpu/ptx/program.h"

#include <algorithm>
#include <cstring>

#include "src/softgpu/ptx/lower.h"

namespace tandem::ptx {
namespace {

constexpr uint64_t kMaxImageBytes = uint64_t{1} << 38;

uint64_t RoundUp(uint64_t value, uint64_t align) {
  return (value + align - 1) / align * align;
}

std::string Quoted(std::string_view name) {
  return "'" + std::string(name.substr(0, 40)) + "'";
}

}  // namespace

// Compiles one module; a friend of Program, which has no other way to come about.
class ModuleCompiler {
 public:
  Result<std::shared_ptr<const Program>> Run(std::string_view text);

 private:
  Status PlaceVariables(const Module& module);
  Status Initialize(const Declaration& declaration, Variable* variable);
  Status CollectFunctions(const Module& module);

  Program program_;
  ModuleSymbols symbols_;
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
    symbols_.image[name] = variable.offset;
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
  variable->init.resize(declaration.init.size() * width);
  size_t at = 0;
  for (const Initializer& value : declaration.init) {
    if (!value.symbol.empty()) {
      const auto target = symbols_.image.find(value.symbol);
      if (target == symbols_.image.end()) {
        return SyntaxError(declaration.line, "unknown name " + Quoted(value.symbol));
      }
      variable->relocations.push_back({at, target->second + value.value});
    } else {
      std::memcpy(variable->init.data() + at, &value.value, width);
    }
    at += width;
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
  TRY(PlaceVariables(module));
  TRY(CollectFunctions(module));
  for (const Function& function : module.functions) {
    if (!function.has_body) continue;
    // A function is lowered on its own as well, so that one that nobody calls is checked too.
    KernelLowering lowering(symbols_, function);
    ASSIGN_OR_RETURN(Kernel kernel, lowering.Run());
    if (function.entry) program_.kernels_.push_back(std::move(kernel));
  }
  return std::make_shared<const Program>(std::move(program_));
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
    uint8_t* at = image + variable.offset;
    if (!variable.init.empty()) std::memcpy(at, variable.init.data(), variable.init.size());
    for (const Variable::Relocation& relocation : variable.relocations) {
      const uint64_t address = device_address + relocation.addend;
      std::memcpy(at + relocation.offset, &address, sizeof address);
    }
  }
}

Result<std::shared_ptr<const Program>> Compile(std::string_view text) {
  return ModuleCompiler().Run(text);
}

}  // namespace tandem::ptx
