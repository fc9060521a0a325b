// Fat binaries: containers of PTX as it is and packed, and ones that are damaged.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr uint16_t kPtx = 1, kMachineCode = 2;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr size_t kFirstByte = 80;  // of an image's only text

// A container with one text in it, laid out as fatbinary does.
std::vector<uint8_t> FatBinary(const std::string& text, uint16_t kind, uint32_t architecture) {
  const uint64_t padded = (text.size() + 8) / 8 * 8;
  std::vector<uint8_t> image(kFirstByte + padded);
  const auto put = [&](size_t at, uint64_t value, size_t bytes) {
    std::memcpy(&image[at], &value, bytes);
  };
  put(0, 0xba55ed50, 4);
  put(4, 1, 2);
  put(6, 16, 2);
  put(8, 64 + padded, 8);
  put(16, kind, 2);
  put(18, 0x101, 2);
  put(20, 64, 4);
  put(24, padded, 8);
  put(36, 64, 4);  // where its name would be
  put(42, 6, 2);   // of the text's version
  put(40, 3, 2);
  put(44, architecture, 4);
  put(56, 0x11, 8);
  std::memcpy(&image[kFirstByte], text.data(), text.size());
  return image;
}

// The same with PTX that is `bytes` long once it is unpacked.
std::vector<uint8_t> PackedFatBinary(const std::string& packed, uint64_t how, uint64_t bytes) {
  auto image = FatBinary(packed, kPtx, 50);
  const auto packed_bytes = static_cast<uint32_t>(packed.size());
  const uint64_t flags = 0x11 | how;
  std::memcpy(&image[32], &packed_bytes, sizeof(packed_bytes));
  std::memcpy(&image[56], &flags, sizeof(flags));
  std::memcpy(&image[72], &bytes, sizeof(bytes));
  return image;
}

// A frame of Zstandard with the text in a block that is not packed at all. REQUIRES: 256 to 65,791
// characters.
std::string ZstdFrame(const std::string& text) {
  const size_t size = text.size() - 256;
  const size_t block = text.size() << 3 | 1;  // the last one
  std::string frame = "\x28\xb5\x2f\xfd\x60";
  for (const size_t byte : {size, size >> 8, block, block >> 8, block >> 16}) {
    frame.push_back(static_cast<char>(byte & 255));
  }
  return frame + text;
}

struct Match {
  size_t back = 0, length = 0;
};

// The longest of the characters that follow which is there before, too. The last five are never in
// one, as LZ4 wants it.
Match LongestMatch(const std::string& text, size_t at) {
  Match longest;
  for (size_t from = 0; from < at; ++from) {
    size_t length = 0;
    while (at + length + 5 < text.size() && text[from + length] == text[at + length]) ++length;
    if (length > longest.length) longest = {at - from, length};
  }
  return longest;
}

// Literals and the match behind them, if there is one.
void AddLz4Sequence(std::string* block, const std::string& literals, Match match) {
  const auto add = [&](size_t byte) { block->push_back(static_cast<char>(byte & 255)); };
  const auto add_rest = [&](size_t length) {  // what of it the token cannot say
    if (length < 15) return;
    for (length -= 15; length >= 255; length -= 255) add(255);
    add(length);
  };
  const size_t length = match.length == 0 ? 0 : match.length - 4;
  add(std::min(literals.size(), size_t{15}) << 4 | std::min(length, size_t{15}));
  add_rest(literals.size());
  *block += literals;
  if (match.length == 0) return;
  add(match.back);
  add(match.back >> 8);
  add_rest(length);
}

// REQUIRES: at most 65,536 characters.
std::string Lz4Block(const std::string& text) {
  std::string block;
  size_t done = 0;
  for (size_t at = 0; at + 12 < text.size();) {
    const Match match = LongestMatch(text, at);
    if (match.length < 4) {
      ++at;
      continue;
    }
    AddLz4Sequence(&block, text.substr(done, at - done), match);
    done = at += match.length;
  }
  AddLz4Sequence(&block, text.substr(done), {});
  return block;
}

class FatBinaryTest : public DriverTest {
 protected:
  // Unloads the module; whether it is what kKernels says.
  static bool IsTheKernels(CUmodule module) {
    CUdeviceptr counter = 0;
    uint32_t word = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleGetGlobal_v2(&counter, nullptr, module, "counter"));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(&word, counter, sizeof(word)));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleUnload(module));
    return word == 7;
  }
  static void ExpectTheKernels(const std::vector<uint8_t>& image) {
    CUmodule module = nullptr;
    ASSERT_CU(Cu().cuModuleLoadFatBinary(&module, image.data()));
    EXPECT_TRUE(IsTheKernels(module));
    ASSERT_CU(Cu().cuModuleLoadData(&module, image.data()));
    EXPECT_TRUE(IsTheKernels(module));
  }
};

TEST_F(FatBinaryTest, GivesItsPtx) {
  ExpectTheKernels(FatBinary(kKernels, kPtx, 50));
}

TEST_F(FatBinaryTest, UnpacksZstandard) {
  auto image = PackedFatBinary(ZstdFrame(kKernels), kZstd, std::strlen(kKernels));
  ExpectTheKernels(image);
  image[kFirstByte] = 0;  // no such frame
  CUmodule module = nullptr;
  EXPECT_NE(Cu().cuModuleLoadFatBinary(&module, image.data()), CUDA_SUCCESS);
}

TEST_F(FatBinaryTest, UnpacksLz4) {
  // The line makes a match that is longer than one byte can say, and that overlaps itself.
  const std::string text = kKernels + ("//" + std::string(600, '-')) + "\n.global .u32 last;\n";
  const std::string block = Lz4Block(text);
  EXPECT_LT(block.size(), text.size() * 3 / 4);
  ExpectTheKernels(PackedFatBinary(block, kLz4, text.size()));
  CUmodule module = nullptr;
  auto cut = PackedFatBinary(block.substr(0, block.size() / 2), kLz4, text.size());
  EXPECT_NE(Cu().cuModuleLoadFatBinary(&module, cut.data()), CUDA_SUCCESS);
  auto back = PackedFatBinary(std::string("\x10.\x05\0\x50", 5) + "wrong", kLz4, 10);
  EXPECT_NE(Cu().cuModuleLoadFatBinary(&module, back.data()), CUDA_SUCCESS);
}

TEST_F(FatBinaryTest, RefusesWhatTheDeviceCannotRun) {
  CUmodule module = nullptr;
  const auto machine_code = FatBinary("nothing that any device runs", kMachineCode, 50);
  EXPECT_NE(Cu().cuModuleLoadFatBinary(&module, machine_code.data()), CUDA_SUCCESS);
  const auto newer = FatBinary(kKernels, kPtx, 999);
  EXPECT_CU(CUDA_ERROR_NO_BINARY_FOR_GPU, Cu().cuModuleLoadFatBinary(&module, newer.data()));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuModuleLoadFatBinary(&module, nullptr));
}

TEST_F(FatBinaryTest, RefusesWhatIsCutShort) {
  const auto image = FatBinary(kKernels, kPtx, 50);
  const std::string path = testing::TempDir() + "/tandem_cut_" + std::to_string(getpid());
  const auto load = [&](size_t bytes) {
    FILE* file = fopen(path.c_str(), "wb");
    EXPECT_EQ(fwrite(image.data(), 1, bytes, file), bytes);
    fclose(file);
    CUmodule module = nullptr;
    const CUresult result = Cu().cuModuleLoad(&module, path.c_str());
    if (result == CUDA_SUCCESS) Cu().cuModuleUnload(module);
    remove(path.c_str());
    return result;
  };
  EXPECT_CU(CUDA_SUCCESS, load(image.size()));
  for (const size_t bytes : {image.size() / 2, kFirstByte, size_t{17}, size_t{8}}) {
    EXPECT_NE(load(bytes), CUDA_SUCCESS) << bytes;
    CUlinkState state = nullptr;
    ASSERT_CU(Cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
    std::vector<uint8_t> cut(image.begin(), image.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_NE(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_FATBINARY, cut.data(), cut.size(), "cut", 0,
                                    nullptr, nullptr),
              CUDA_SUCCESS)
        << bytes;
    ASSERT_CU(Cu().cuLinkDestroy(state));
  }
}

}  // namespace
}  // namespace tandem::driver_test
