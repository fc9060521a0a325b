// Launches of a process that oversubscribes: notes the memory whose addresses kernels get, so that
// it is on the card rather than other memory (docs/decisions/0016). They take the place of the
// driver's functions in callable_driver, so that no other program's launch takes longer for it.
#include "src/shim/driver/launch_arguments.h"
#include "src/shim/program/process.h"

namespace tandem::shim {
namespace {

void Note(CUfunction function, void** parameters, void** extra) {
  EachArgumentWord(Real(), function, parameters, extra, [](uint64_t word) {
    AskGuests([word](Guest* guest) { return guest->NoteNamedByLaunch(word); });
  });
}

void NoteLaunch(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, CUstream, void** parameters, void** extra = nullptr) {
  Note(function, parameters, extra);
}

void NoteLaunch(const CUlaunchConfig*, CUfunction function, void** parameters, void** extra) {
  Note(function, parameters, extra);
}

template <auto kLaunch, typename... Parameters>
CUresult Launch(Parameters... parameters) {
  NoteLaunch(parameters...);
  return (Real().*kLaunch)(parameters...);
}

template <auto kLaunch, typename... Parameters>
auto Noting(CUresult (*function)(Parameters...)) -> CUresult (*)(Parameters...) {
  return function == nullptr ? nullptr : &Launch<kLaunch, Parameters...>;
}

}  // namespace

void NoteNamesInLaunches(cuda::RealDriver* table) {
  using Driver = cuda::RealDriver;
  table->cuLaunchKernel = Noting<&Driver::cuLaunchKernel>(table->cuLaunchKernel);
  table->cuLaunchKernel_ptsz = Noting<&Driver::cuLaunchKernel_ptsz>(table->cuLaunchKernel_ptsz);
  table->cuLaunchKernelEx = Noting<&Driver::cuLaunchKernelEx>(table->cuLaunchKernelEx);
  table->cuLaunchKernelEx_ptsz =
      Noting<&Driver::cuLaunchKernelEx_ptsz>(table->cuLaunchKernelEx_ptsz);
  table->cuLaunchCooperativeKernel =
      Noting<&Driver::cuLaunchCooperativeKernel>(table->cuLaunchCooperativeKernel);
  table->cuLaunchCooperativeKernel_ptsz =
      Noting<&Driver::cuLaunchCooperativeKernel_ptsz>(table->cuLaunchCooperativeKernel_ptsz);
}

}  // namespace tandem::shim
