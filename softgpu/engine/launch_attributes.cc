#include "softgpu/engine/launch_attributes.h"

namespace tandem::soft {
namespace {

constexpr int kSynchronizationPolicies = 4;  // counted from 1

}  // namespace

CUresult CheckAttribute(CUlaunchAttributeID attribute, const CUlaunchAttributeValue& value) {
  const auto check = [](bool valid) { return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; };
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: {
      const float ratio = value.accessPolicyWindow.hitRatio;
      return check(ratio >= 0 && ratio <= 1);
    }
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return check(value.syncPolicy >= 1 && value.syncPolicy <= kSynchronizationPolicies);
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& [x, y, z] = value.clusterDim;
      return x == 1 && y == 1 && z == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return value.deviceUpdatableKernelNode.deviceUpdatable != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult ReadAttributes(std::span<const CUlaunchAttribute> attributes, LaunchOptions* options) {
  for (const CUlaunchAttribute& attribute : attributes) {
    const CUresult checked = CheckAttribute(attribute.id, attribute.value);
    if (checked != CUDA_SUCCESS) return checked;
    switch (attribute.id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        options->cooperative = attribute.value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        options->priority = attribute.value.priority;
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        options->completion = attribute.value.launchCompletionEvent.event;
        break;
      default:
        options->hints[attribute.id] = attribute.value;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
