// Pods that ask for a part of a GPU by the annotations of KAI's scheduler, gpu-memory and
// gpu-fraction, get tandem.dev/gpu-memory instead: the answer of a mutating webhook of Kubernetes
// (admission.k8s.io/v1).
//
// Pure. Threading: none.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

struct AnnotationRules {
  Bytes unit = GiB(1);  // of tandem.dev/gpu-memory
  Bytes gpu;            // memory that gpu-fraction is a part of; 0: no fractions
  std::string scheduler = "default-scheduler";  // of pods that name KAI's
};

// The operations of a JSON patch (RFC 6902) of that pod; none where it has no such annotation, or
// asks for tandem.dev/gpu-memory by itself. kInvalid: in words for the person who made the pod.
Result<nlohmann::json> PatchOf(const nlohmann::json& pod, const AnnotationRules& rules);

// The answer to an AdmissionReview; its patch is not yet encoded. kInvalid: it is none.
Result<nlohmann::json> AnswerTo(const nlohmann::json& review, const AnnotationRules& rules);

}  // namespace tandem::kubernetes
