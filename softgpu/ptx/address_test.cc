// Generic addresses: from every space and back, and isspacep of each.
#include <gtest/gtest.h>

#include <string>

#include "softgpu/ptx/testing.h"

namespace tandem::ptx {
namespace {

struct AddressSpace {
  const char* name;
  const char* also;  // the same under another name
  const char *variable, *store;
};
constexpr AddressSpace kAddressSpaces[] = {
    {"global", "global", "in_global", ""},
    {"const", "const", "in_const", ""},
    {"shared", "shared::cta", "in_shared", "st.shared.u32 [in_shared+4], 77;"},
    {"shared::cta", "shared", "in_shared", "st.shared.u32 [in_shared+4], 77;"},
    {"local", "local", "in_local", "st.local.u32 [in_local+4], 77;"},
    {"param", "param::entry", "in_param", ""},
    {"param::entry", "param", "in_param", ""},
};

class AddressTest : public KernelTest {
 protected:
  // What a kernel with a variable in every space, whose second word is 77, stores first.
  uint32_t Stored(const std::string& body) {
    SCOPED_TRACE(body);
    const auto program = MustCompile(
        ".version 7.8\n.target sm_80\n.address_size 64\n"
        ".global .align 4 .u32 in_global[2] = {1, 77}; .const .align 4 .u32 in_const[2] = {1, "
        "77};\n"
        ".visible .entry k(.param .u64 result, .param .align 4 .u32 in_param[2]) {\n" +
        std::string(kPrologue) +
        ".shared .align 4 .u32 in_shared[2]; .local .align 4 .u32 in_local[2];\n" + body +
        "\nst.global.u32 [%out], %r1; ret; }");
    if (program == nullptr) return 0;
    program->WriteImage(device_.Array<uint8_t>(8192), device_.At(8192));
    MustRun(*program, device_, {.block = {1, 1, 1}, .image = device_.At(8192)},
            Params().Add(device_.At(0)).Add(1).Add(77), GetParam());
    return *device_.Array<uint32_t>(0);
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, AddressTest, ::testing::ValuesIn(Paths()));

std::string Generic(const AddressSpace& space) {
  return std::string(space.store) + "\nmov.u64 %rd1, " + space.variable + ";\ncvta." + space.name +
         ".u64 %rd2, %rd1;\n";
}

TEST_P(AddressTest, ToGenericAndBack) {
  for (const AddressSpace& space : kAddressSpaces) {
    EXPECT_EQ(Stored(Generic(space) + "ld.u32 %r1, [%rd2+4];"), 77u);
    EXPECT_EQ(Stored(Generic(space) + "cvta.to." + space.name + ".u64 %rd3, %rd2;\nld." +
                     space.name + ".u32 %r1, [%rd3+4];"),
              77u);
  }
}

TEST_P(AddressTest, TellTheirSpace) {
  for (const AddressSpace& space : kAddressSpaces) {
    for (const AddressSpace& asked : kAddressSpaces) {
      const std::string name = asked.name;
      EXPECT_EQ(
          Stored(Generic(space) + "isspacep." + name + " %p1, %rd2; selp.u32 %r1, 1, 0, %p1;"),
          name == space.name || name == space.also ? 1u : 0u)
          << name << " of " << space.name;
    }
  }
}

}  // namespace
}  // namespace tandem::ptx
