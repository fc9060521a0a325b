// Conditional nodes of graphs: bodies that run by the value of a condition, which kernels set.
#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

constexpr char kConditions[] = R"(.version 8.3
.target sm_70
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry choose(.param .u64 handle, .param .u32 value)
{
  .reg .b64 %h; .reg .b32 %v;
  ld.param.u64 %h, [handle]; ld.param.u32 %v, [value];
  { .param .b64 h; .param .b32 v;
    st.param.b64 [h], %h; st.param.b32 [v], %v;
    call.uni cudaGraphSetConditional, (h, v); }
  ret;
}
.visible .entry count(.param .u64 handle, .param .u64 word, .param .u32 limit)
{
  .reg .pred %p; .reg .b64 %h, %w; .reg .b32 %n, %l, %v;
  ld.param.u64 %h, [handle]; ld.param.u64 %w, [word]; ld.param.u32 %l, [limit];
  ld.global.u32 %n, [%w]; add.u32 %n, %n, 1; st.global.u32 [%w], %n;
  setp.lt.u32 %p, %n, %l; selp.u32 %v, 1, 0, %p;
  { .param .b64 h; .param .b32 v;
    st.param.b64 [h], %h; st.param.b32 [v], %v;
    call.uni cudaGraphSetConditional, (h, v); }
  ret;
}
)";

class ConditionalTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuGraphConditionalHandleCreate == nullptr) GTEST_SKIP() << "a driver before CUDA 12.3";
    CUmodule module = nullptr;
    ASSERT_CU(Cu().cuModuleLoadData(&module, kConditions));
    ASSERT_CU(Cu().cuModuleGetFunction(&choose_, module, "choose"));
    ASSERT_CU(Cu().cuModuleGetFunction(&count_, module, "count"));
  }
  CUgraphConditionalHandle Condition(CUgraph graph, unsigned int value = 0,
                                     unsigned int flags = 0) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphConditionalHandleCreate(&handle, graph, context_, value, flags));
    return handle;
  }
  // Returns the bodies.
  std::vector<CUgraph> Conditional(CUgraph graph, CUgraphConditionalHandle handle,
                                   CUgraphConditionalNodeType type, unsigned int size,
                                   std::vector<CUgraphNode> before, CUgraphNode* node = nullptr) {
    CUgraphNodeParams params = {};
    CUgraphNode made = nullptr;
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional = {handle, type, size, nullptr, context_};
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddNode(&made, graph, before.data(), before.size(), &params));
    if (node != nullptr) *node = made;
    CUgraph* const bodies = params.conditional.phGraph_out;
    return bodies == nullptr ? std::vector<CUgraph>(size)
                             : std::vector<CUgraph>(bodies, bodies + size);
  }
  CUgraphNode Run(CUgraph graph, CUfunction function, std::vector<void*> arguments,
                  std::vector<CUgraphNode> before = {}) {
    const CUDA_KERNEL_NODE_PARAMS_v2 params = Params(function, arguments.data());
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddKernelNode_v2(&node, graph, before.data(), before.size(), &params));
    return node;
  }
  using GraphTest::Run;

  CUfunction choose_ = nullptr, count_ = nullptr;
};

TEST_F(ConditionalTest, ALoopEndsWhenAKernelSaysSo) {
  CUgraphConditionalHandle handle = Condition(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  uint32_t limit = 10;
  CUgraphNode loop = nullptr;
  const CUgraph body = Conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {}, &loop).front();
  Run(body, count_, {&handle, &words_, &limit});
  Add(1000, {loop}, graph_);
  CUgraphNodeType type = {};
  ASSERT_CU(Cu().cuGraphNodeGetType(loop, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(), 1010u);
  Run(exec);  // The condition has its first value again.
  EXPECT_EQ(Word(), 2011u);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, OneOfTheBodiesRuns) {
  for (const bool is_switch : {false, true}) {
    for (uint32_t value = 0; value < 4; ++value) {
      ASSERT_CU(Cu().cuGraphCreate(&graph_, 0));
      ASSERT_CU(Cu().cuMemsetD32_v2(words_, 0, 16));
      CUgraphConditionalHandle handle = Condition(graph_);
      const CUgraphNode set = Run(graph_, choose_, {&handle, &value});
      const auto type = is_switch ? CU_GRAPH_COND_TYPE_SWITCH : CU_GRAPH_COND_TYPE_IF;
      const auto bodies = Conditional(graph_, handle, type, is_switch ? 3 : 2, {set});
      for (size_t i = 0; i < bodies.size(); ++i) Add(i == 0 ? 1 : i == 1 ? 10 : 100, {}, bodies[i]);
      const CUgraphExec exec = Instantiate(graph_);
      Run(exec);
      const uint32_t of_switch[] = {1, 10, 100, 0};
      EXPECT_EQ(Word(), is_switch ? of_switch[value] : value != 0 ? 1u : 10u) << value;
      ASSERT_CU(Cu().cuGraphExecDestroy(exec));
      ASSERT_CU(Cu().cuGraphDestroy(graph_));
    }
  }
}

// A loop with a copy to the host and, each time, a node that runs every second time.
TEST_F(ConditionalTest, BodiesHaveConditionsAndCopies) {
  CUgraphConditionalHandle loop = Condition(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  uint32_t limit = 6, seen = 0, once = 1;
  const CUgraph body = Conditional(graph_, loop, CU_GRAPH_COND_TYPE_WHILE, 1, {}).front();
  const CUgraphNode counted = Run(body, count_, {&loop, &words_, &limit});
  CUDA_MEMCPY3D out = {};
  out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = words_;
  out.dstMemoryType = CU_MEMORYTYPE_HOST;
  out.dstHost = &seen;
  out.WidthInBytes = sizeof(seen);
  out.Height = out.Depth = 1;
  CUgraphNode copied = nullptr;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&copied, body, &counted, 1, &out, context_));
  CUgraphConditionalHandle inner = Condition(body);
  const CUgraphNode set = Run(body, choose_, {&inner, &once}, {copied});
  const CUgraph inside = Conditional(body, inner, CU_GRAPH_COND_TYPE_IF, 1, {set}).front();
  CUdeviceptr second = words_ + 4;
  uint32_t most = 1000;
  Run(inside, count_, {&inner, &second, &most});
  Run(Instantiate(graph_));
  EXPECT_EQ(seen, 6u);
  EXPECT_EQ(Word(1), 6u);
}

TEST_F(ConditionalTest, RefusesNonsense) {
  CUgraphConditionalHandle handle = 0;
  constexpr auto kValue = CUDA_ERROR_INVALID_VALUE;
  EXPECT_CU(kValue, Cu().cuGraphConditionalHandleCreate(nullptr, graph_, context_, 0, 0));
  EXPECT_CU(kValue, Cu().cuGraphConditionalHandleCreate(&handle, graph_, context_, 0, 2));
  EXPECT_CU(kValue, Cu().cuGraphConditionalHandleCreate(&handle, nullptr, context_, 0, 0));
  handle = Condition(graph_);
  const auto add = [&](CUgraphConditionalNodeType type, unsigned int size) {
    CUgraphNodeParams params = {};
    CUgraphNode node = nullptr;
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional = {handle, type, size, nullptr, context_};
    return Cu().cuGraphAddNode(&node, graph_, nullptr, 0, &params);
  };
  EXPECT_CU(kValue, add(CU_GRAPH_COND_TYPE_IF, 0));
  EXPECT_CU(kValue, add(CU_GRAPH_COND_TYPE_WHILE, 2));
  EXPECT_CU(kValue, add(static_cast<CUgraphConditionalNodeType>(99), 1));
  const CUgraph body = Conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1, {}).front();
  EXPECT_NE(add(CU_GRAPH_COND_TYPE_IF, 1), CUDA_SUCCESS);  // the handle has a node
  // A graph with such a node has one instance, no clone, and is no child.
  CUgraph other = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec second = nullptr;
  EXPECT_NE(Cu().cuGraphClone(&other, graph_), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuGraphCreate(&other, 0));
  EXPECT_NE(Cu().cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph_), CUDA_SUCCESS);
  const CUgraphExec exec = Instantiate(graph_);
  EXPECT_NE(Cu().cuGraphInstantiateWithFlags(&second, graph_, 0), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  // Bodies have no host functions.
  const CUDA_HOST_NODE_PARAMS host = {[](void*) {}, nullptr};
  EXPECT_NE(Cu().cuGraphAddHostNode(&node, body, nullptr, 0, &host), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuGraphDestroy(other));
}

}  // namespace
}  // namespace tandem::driver_test
