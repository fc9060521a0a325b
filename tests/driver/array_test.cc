// Arrays: making and describing them, and copies with an array on either side.
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

CUDA_ARRAY_DESCRIPTOR Plane(size_t width, size_t height,
                            CUarray_format format = CU_AD_FORMAT_UNSIGNED_INT8,
                            unsigned int channels = 1) {
  return {width, height, format, channels};
}

// Both are documented, and which one a null handle gives is the driver's choice.
bool RefusesHandle(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE;
}

class ArrayTest : public DriverTest {
 protected:
  CUarray Make(const CUDA_ARRAY_DESCRIPTOR& descriptor) {
    CUarray array = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuArrayCreate_v2(&array, &descriptor));
    return array;
  }
};

CUDA_MEMCPY2D HostToArray(const void* host, size_t pitch, CUarray array, size_t width,
                          size_t height) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

CUDA_MEMCPY2D ArrayToHost(CUarray array, void* host, size_t pitch, size_t width, size_t height) {
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = pitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

TEST_F(ArrayTest, TellsWhatItIs) {
  const CUarray array = Make(Plane(33, 7, CU_AD_FORMAT_FLOAT, 2));
  CUDA_ARRAY_DESCRIPTOR plane = {};
  ASSERT_CU(Cu().cuArrayGetDescriptor_v2(&plane, array));
  EXPECT_EQ(plane.Width, 33u);
  EXPECT_EQ(plane.Height, 7u);
  EXPECT_EQ(plane.Format, CU_AD_FORMAT_FLOAT);
  EXPECT_EQ(plane.NumChannels, 2u);
  CUDA_ARRAY3D_DESCRIPTOR box = {};
  ASSERT_CU(Cu().cuArray3DGetDescriptor_v2(&box, array));
  EXPECT_EQ(box.Width, 33u);
  EXPECT_EQ(box.Height, 7u);
  EXPECT_EQ(box.Depth, 0u);
  EXPECT_EQ(box.Flags, 0u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArrayGetDescriptor_v2(nullptr, array));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArray3DGetDescriptor_v2(nullptr, array));
  EXPECT_TRUE(RefusesHandle(Cu().cuArrayGetDescriptor_v2(&plane, nullptr)));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuArrayDestroy(array));
  EXPECT_TRUE(RefusesHandle(Cu().cuArrayDestroy(nullptr)));
}

TEST_F(ArrayTest, RefusesWhatIsNoArray) {
  CUarray array = nullptr;
  const auto refuses = [&](const CUDA_ARRAY_DESCRIPTOR& descriptor) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArrayCreate_v2(&array, &descriptor));
  };
  refuses(Plane(0, 8));
  refuses(Plane(8, 8, static_cast<CUarray_format>(0x77)));
  refuses(Plane(8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 3));
  refuses(Plane(8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 0));
  int most = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 0));
  refuses(Plane(static_cast<size_t>(most) + 1, 1));
  const CUDA_ARRAY_DESCRIPTOR good = Plane(8, 8);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArrayCreate_v2(nullptr, &good));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArrayCreate_v2(&array, nullptr));
  CUDA_ARRAY3D_DESCRIPTOR box = {8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArray3DCreate_v2(&array, &box));  // no layers
  box = {8, 9, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArray3DCreate_v2(&array, &box));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArray3DCreate_v2(nullptr, &box));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuArray3DCreate_v2(&array, nullptr));
}

// An array takes memory, and gives it back: with its context at the latest.
TEST_F(ArrayTest, TakesMemory) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t before = 0, during = 0, after = 0, total = 0;
  const CUarray warm_up = Make(Plane(64, 64));
  ASSERT_CU(Cu().cuArrayDestroy(warm_up));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  const CUarray array = Make(Plane(4096, 4096, CU_AD_FORMAT_FLOAT, 1));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&during, &total));
  EXPECT_LE(during + (size_t{60} << 20), before);
  ASSERT_CU(Cu().cuArrayDestroy(array));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_TRUE(IsAbout(after, before)) << after << " after, " << before << " before";
}

TEST_F(ArrayTest, RectanglesThroughAnArray) {
  constexpr size_t kWidth = 300, kHeight = 40;
  const auto picture = Pattern(kWidth * kHeight, 3);
  const CUarray one = Make(Plane(kWidth, kHeight)), two = Make(Plane(kWidth, kHeight));
  CUDA_MEMCPY2D in = HostToArray(picture.data(), kWidth, one, kWidth, kHeight);
  ASSERT_CU(Cu().cuMemcpy2D_v2(&in));
  // A piece from array to array, then by way of device memory.
  CUDA_MEMCPY2D across = {};
  across.srcMemoryType = across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = one;
  across.dstArray = two;
  across.srcXInBytes = 10;
  across.srcY = 5;
  across.dstXInBytes = 100;
  across.dstY = 20;
  across.WidthInBytes = 50;
  across.Height = 12;
  ASSERT_CU(Cu().cuMemcpy2DUnaligned_v2(&across));
  const CUdeviceptr device = Allocate(size_t{64} * 12);
  CUDA_MEMCPY2D out = ArrayToHost(two, nullptr, 0, 50, 12);
  out.srcXInBytes = 100;
  out.srcY = 20;
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = device;
  out.dstPitch = 64;
  ASSERT_CU(Cu().cuMemcpy2DAsync_v2(&out, nullptr));
  const auto back = Read(device, size_t{64} * 12);
  for (size_t row = 0; row < 12; ++row) {
    ASSERT_EQ(std::memcmp(&back[row * 64], &picture[(row + 5) * kWidth + 10], 50), 0) << row;
  }
  in.dstXInBytes = 1;  // over the edge
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy2D_v2(&in));
  in.dstXInBytes = 0;
  in.dstY = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy2D_v2(&in));
  ASSERT_CU(Cu().cuArrayDestroy(one));
  ASSERT_CU(Cu().cuArrayDestroy(two));
}

TEST_F(ArrayTest, Rows) {
  const auto pattern = Pattern(4000, 4);
  const CUarray one = Make(Plane(1000, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  const CUarray two = Make(Plane(1000, 0, CU_AD_FORMAT_UNSIGNED_INT32));
  const CUdeviceptr device = Allocate(4000);
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuMemcpyHtoA_v2(one, 0, pattern.data(), 2000));
  ASSERT_CU(Cu().cuMemcpyHtoAAsync_v2(one, 2000, pattern.data() + 2000, 2000, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  ASSERT_CU(Cu().cuMemcpyAtoA_v2(two, 400, one, 0, 3600));
  ASSERT_CU(Cu().cuMemcpyAtoA_v2(two, 0, one, 3600, 400));
  ASSERT_CU(Cu().cuMemcpyAtoD_v2(device, two, 400, 3600));
  ASSERT_CU(Cu().cuMemcpyAtoD_v2(device + 3600, two, 0, 400));
  EXPECT_EQ(Read(device, 4000), pattern);
  ASSERT_CU(Cu().cuMemcpyDtoA_v2(two, 0, device, 4000));
  std::vector<uint8_t> back(4000);
  ASSERT_CU(Cu().cuMemcpyAtoH_v2(back.data(), two, 0, 1000));
  ASSERT_CU(Cu().cuMemcpyAtoHAsync_v2(back.data() + 1000, two, 1000, 3000, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(back, pattern);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyHtoA_v2(one, 4, pattern.data(), 4000));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpyAtoH_v2(nullptr, one, 0, 4000));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  ASSERT_CU(Cu().cuArrayDestroy(one));
  ASSERT_CU(Cu().cuArrayDestroy(two));
}

// A box of 20 x 6 x 3 elements of 2 bytes, out of a larger one in host memory, through a 3D array
// into device memory.
TEST_F(ArrayTest, Boxes) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {32, 8, 4, CU_AD_FORMAT_UNSIGNED_INT16, 1, 0};
  CUarray array = nullptr;
  ASSERT_CU(Cu().cuArray3DCreate_v2(&array, &shape));
  const auto host = Pattern(size_t{100} * 10 * 5, 5);
  CUDA_MEMCPY3D in = {};
  in.srcMemoryType = CU_MEMORYTYPE_HOST;
  in.srcHost = host.data();
  in.srcPitch = 100;
  in.srcHeight = 10;
  in.srcXInBytes = 6;
  in.srcY = 2;
  in.srcZ = 1;
  in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  in.dstArray = array;
  in.dstXInBytes = 4;
  in.dstY = 1;
  in.dstZ = 1;
  in.WidthInBytes = 40;
  in.Height = 6;
  in.Depth = 3;
  ASSERT_CU(Cu().cuMemcpy3D_v2(&in));
  const CUdeviceptr device = Allocate(size_t{64} * 7 * 3);
  CUDA_MEMCPY3D out = {};
  out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  out.srcArray = array;
  out.srcXInBytes = 4;
  out.srcY = 1;
  out.srcZ = 1;
  out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.dstDevice = device;
  out.dstPitch = 64;
  out.dstHeight = 7;
  out.WidthInBytes = 40;
  out.Height = 6;
  out.Depth = 3;
  ASSERT_CU(Cu().cuMemcpy3DAsync_v2(&out, nullptr));
  const auto back = Read(device, size_t{64} * 7 * 3);
  for (size_t z = 0; z < 3; ++z) {
    for (size_t y = 0; y < 6; ++y) {
      ASSERT_EQ(std::memcmp(&back[(z * 7 + y) * 64], &host[((z + 1) * 10 + y + 2) * 100 + 6], 40),
                0)
          << y << ' ' << z;
    }
  }
  in.dstZ = 2;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy3D_v2(&in));
  in.dstZ = 1;
  in.srcHeight = 7;  // fewer rows than a slice has
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy3D_v2(&in));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy3D_v2(nullptr));
  ASSERT_CU(Cu().cuArrayDestroy(array));
}

TEST_F(ArrayTest, GraphsCopyToThemAndFromThem) {
  constexpr size_t kWidth = 40, kHeight = 9;
  const CUDA_ARRAY_DESCRIPTOR descriptor = {kWidth, kHeight, CU_AD_FORMAT_UNSIGNED_INT8, 4};
  CUarray array = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr, captured = nullptr;
  CUgraphNode in = nullptr, out = nullptr, node = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CU(Cu().cuArrayCreate_v2(&array, &descriptor));
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuGraphCreate(&graph, 0));
  const auto texels = Pattern(kWidth * 4 * kHeight, 61);
  std::vector<uint8_t> seen(texels.size());
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = texels.data();
  copy.srcPitch = kWidth * 4;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = kWidth * 4;
  copy.Height = kHeight;
  copy.Depth = 1;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&in, graph, nullptr, 0, &copy, context_));
  CUDA_MEMCPY3D shown = {};
  ASSERT_CU(Cu().cuGraphMemcpyNodeGetParams(in, &shown));
  EXPECT_EQ(shown.dstMemoryType, CU_MEMORYTYPE_ARRAY);
  EXPECT_EQ(shown.dstArray, array);
  CUDA_MEMCPY3D back = {};
  back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  back.srcArray = array;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = seen.data();
  back.dstPitch = kWidth * 4;
  back.WidthInBytes = kWidth * 4;
  back.Height = kHeight;
  back.Depth = 1;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&out, graph, &in, 1, &back, context_));
  back.Height = kHeight + 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddMemcpyNode(&node, graph, &in, 1, &back, context_));
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(seen, texels);
  // A captured copy says what it was.
  const CUdeviceptr device = Allocate(texels.size());
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  size_t count = 1;
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(Cu().cuMemcpy3DAsync_v2(&copy, stream));
  ASSERT_CU(Cu().cuStreamEndCapture(stream, &captured));
  ASSERT_CU(Cu().cuGraphGetNodes(captured, &node, &count));
  ASSERT_CU(Cu().cuGraphMemcpyNodeGetParams(node, &shown));
  EXPECT_EQ(shown.dstArray, array);
  EXPECT_EQ(shown.srcDevice, device);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  ASSERT_CU(Cu().cuArrayDestroy(array));
}

}  // namespace
}  // namespace tandem::driver_test
