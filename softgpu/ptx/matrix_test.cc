// ldmatrix and stmatrix in every form, element by element, with rows that lie anywhere.
#include <algorithm>
#include <random>
#include <string>

#include "softgpu/ptx/operations.h"

namespace tandem::ptx {
namespace {

// Of ldmatrix and stmatrix: how many matrices, whether turned, and in which space.
struct MatrixForm {
  uint32_t count;
  bool turned;
  std::string space;

  std::string name() const {
    return ".sync.aligned.m8n8.x" + std::to_string(count) + (turned ? ".trans" : "") + space +
           ".b16 ";
  }
  std::string registers() const {
    return count == 1 ? "{%r10}" : count == 2 ? "{%r10, %r11}" : "{%r10, %r11, %r12, %r13}";
  }
  // The element that is the low or high half of a lane's register: row, column.
  std::pair<uint32_t, uint32_t> Element(uint32_t lane, uint32_t half) const {
    const uint32_t row = lane / 4, column = lane % 4 * 2 + half;
    return turned ? std::pair{column, row} : std::pair{row, column};
  }
};

class MatrixTest : public KernelTest {
 protected:
  static constexpr uint64_t kRows = 4096, kTile = 8192, kRegisters = 16384, kAfter = 32768;

  // Fills shared memory, runs `matrix` on it, and copies it back. A lane's row is at %r4, and for
  // generic addresses at %rd4.
  static std::string Around(const std::string& matrix) {
    std::string fill, back;
    for (const char* at : {"0", "16", "32", "48"}) {
      const std::string words = "{%r5, %r6, %r7, %r8}", place = at;
      fill += "ld.global.v4.u32 " + words + ", [%rd1+8192+" + place + "]; st.shared.v4.u32 [%r1+" +
              place + "], " + words + ";\n";
      back += "ld.shared.v4.u32 " + words + ", [%r1+" + place + "]; st.global.v4.u32 [%rd1+32768+" +
              place + "], " + words + ";\n";
    }
    return R"(.shared .align 16 .b8 tile[2048];
    mul.wide.u32 %rd1, %t, 64; add.u64 %rd1, %rd1, %out;
    mov.u32 %r1, tile; shl.b32 %r2, %t, 6; add.u32 %r1, %r1, %r2;
    ld.global.u32 %r3, [%at+4096]; mov.u32 %r4, tile; add.u32 %r4, %r4, %r3;
    cvta.shared.u64 %rd4, tile; cvt.u64.u32 %rd5, %r3; add.u64 %rd4, %rd4, %rd5;
)" + fill + "bar.sync 0;\n" +
           matrix + "\nbar.sync 0;\n" + back + "ret;";
  }
  void FillAtRandom() {
    std::vector<uint32_t> rows(128);
    for (uint32_t i = 0; i < 128; ++i) rows[i] = 16 * i;
    std::shuffle(rows.begin(), rows.end(), random_);
    std::copy(rows.begin(), rows.begin() + 32, device_.Array<uint32_t>(kRows));
    for (uint32_t i = 0; i < 512; ++i) device_.Array<uint32_t>(kTile)[i] = W(random_());
    for (uint32_t i = 0; i < 128; ++i) device_.Array<uint32_t>(kRegisters)[i] = W(random_());
  }
  // Where in shared memory, in elements, the half of a lane's register for a matrix lies.
  uint32_t PlaceOf(const MatrixForm& form, uint32_t matrix, uint32_t lane, uint32_t half) {
    const auto [row, column] = form.Element(lane, half);
    return device_.Array<uint32_t>(kRows)[8 * matrix + row] / 2 + column;
  }

  std::mt19937_64 random_{Seed()};
};
INSTANTIATE_TEST_SUITE_P(Paths, MatrixTest, ::testing::ValuesIn(Paths()));

std::vector<MatrixForm> MatrixForms() {
  std::vector<MatrixForm> forms;
  for (const uint32_t count : {1u, 2u, 4u}) {
    for (const bool turned : {false, true}) {
      for (const char* space : {"", ".shared", ".shared::cta"}) {
        forms.push_back({count, turned, space});
      }
    }
  }
  return forms;
}

TEST_P(MatrixTest, EveryFormLoads) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const MatrixForm& form : MatrixForms()) {
    SCOPED_TRACE(form.name());
    FillAtRandom();
    std::string text = "ldmatrix" + form.name() + form.registers() +
                       (form.space.empty() ? ", [%rd4];\n" : ", [%r4];\n");
    for (uint32_t i = 0; i < form.count; ++i) {
      text +=
          "st.global.u32 [%at+" + std::to_string(128 * i) + "], %r1" + std::to_string(i) + ";\n";
    }
    Go(Around(text));
    for (uint32_t i = 0; i < 64 * form.count; ++i) {
      const uint32_t place = PlaceOf(form, i / 64, i / 2 % 32, i % 2);
      ASSERT_EQ(device_.Array<uint16_t>(0)[i], device_.Array<uint16_t>(kTile)[place]) << i;
    }
  }
}

TEST_P(MatrixTest, EveryFormStores) {
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(Seed()));
  for (const MatrixForm& form : MatrixForms()) {
    SCOPED_TRACE(form.name());
    FillAtRandom();
    std::string text;
    for (uint32_t i = 0; i < form.count; ++i) {
      text += "ld.global.u32 %r1" + std::to_string(i) + ", [%at+16384+" + std::to_string(128 * i) +
              "];\n";
    }
    const auto* tile = device_.Array<uint16_t>(kTile);
    std::vector<uint16_t> expected(tile, tile + 1024);
    for (uint32_t i = 0; i < 64 * form.count; ++i) {
      const uint32_t place = PlaceOf(form, i / 64, i / 2 % 32, i % 2);
      expected[place] = device_.Array<uint16_t>(kRegisters)[i];
    }
    Go(Around(text + "stmatrix" + form.name() + (form.space.empty() ? "[%rd4], " : "[%r4], ") +
              form.registers() + ";"));
    const auto* after = device_.Array<uint16_t>(kAfter);
    EXPECT_EQ(std::vector<uint16_t>(after, after + 1024), expected);
  }
}

}  // namespace
}  // namespace tandem::ptx
