#include "src/cli/containers/device_cgroup.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPrograms = 64;  // of one cgroup: BPF_CGROUP_MAX_PROGS
using Instructions = std::vector<bpf_insn>;

Error NoDevices(const std::string& what, int error) {
  return {ErrorCode::kFailed,
          "cannot allow the GPU's devices in the container: " + what + ": " + std::strerror(error)};
}

// ---- Finding the cgroups

bool HasPart(const std::string& list, const std::string& part) {
  return ("," + list + ",").find("," + part + ",") != std::string::npos;
}

// The part of a line after its second colon, of the line that `wanted` fits.
std::string PathOf(const std::string& cgroups, int version) {
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool wanted =
        version == 1 ? HasPart(controllers, "devices") : line.compare(0, first, "0") == 0;
    if (wanted) return line.substr(second + 1);
  }
  return {};
}

// Where the hierarchy is mounted as a whole.
std::string MountOf(const std::string& mounts, int version) {
  std::istringstream lines(mounts);
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string id, parent, number, root, place, type, source, options;
    before >> id >> parent >> number >> root >> place;
    after >> type >> source >> options;
    const bool wanted =
        version == 1 ? type == "cgroup" && HasPart(options, "devices") : type == "cgroup2";
    if (wanted && root == "/") return place;
  }
  return {};
}

// ---- Programs of eBPF

int Bpf(bpf_cmd command, bpf_attr* attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, attributes, sizeof(bpf_attr)));
}

uint64_t Address(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

bpf_insn Instruction(int code, int to, int from, int offset, int value) {
  bpf_insn made{};
  made.code = static_cast<uint8_t>(code);
  made.dst_reg = static_cast<uint8_t>(to & 15);
  made.src_reg = static_cast<uint8_t>(from & 15);
  made.off = static_cast<int16_t>(offset);
  made.imm = value;
  return made;
}

// Allows to read and to write the device, and falls through for all else. The context, which
// register 1 points at, is bpf_cgroup_dev_ctx; the program after it finds the registers that it may
// count on unchanged.
void AppendRule(Instructions* program, const CharDevice& device) {
  constexpr int kLoad = BPF_LDX | BPF_MEM | BPF_W, kSkip = BPF_JMP | BPF_JNE | BPF_K;
  constexpr int kTypeOfDevice = 0xffff, kMakeNode = BPF_DEVCG_ACC_MKNOD << 16;
  const auto field = [](size_t offset) { return static_cast<int>(offset); };
  const Instructions rule = {
      Instruction(kLoad, BPF_REG_2, BPF_REG_1, field(offsetof(bpf_cgroup_dev_ctx, access_type)), 0),
      Instruction(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_2, 0, 0, kTypeOfDevice | kMakeNode),
      Instruction(kSkip, BPF_REG_2, 0, 6, BPF_DEVCG_DEV_CHAR),
      Instruction(kLoad, BPF_REG_2, BPF_REG_1, field(offsetof(bpf_cgroup_dev_ctx, major)), 0),
      Instruction(kSkip, BPF_REG_2, 0, 4, static_cast<int>(device.major)),
      Instruction(kLoad, BPF_REG_2, BPF_REG_1, field(offsetof(bpf_cgroup_dev_ctx, minor)), 0),
      Instruction(kSkip, BPF_REG_2, 0, 2, static_cast<int>(device.minor)),
      Instruction(BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 1),
      Instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)};
  program->insert(program->end(), rule.begin(), rule.end());
}

// What a loaded program consists of, as the kernel keeps it.
Result<Instructions> ReadProgram(int program) {
  bpf_prog_info info{};
  bpf_attr attributes{};
  attributes.info.bpf_fd = static_cast<uint32_t>(program);
  attributes.info.info_len = sizeof info;
  attributes.info.info = Address(&info);
  if (Bpf(BPF_OBJ_GET_INFO_BY_FD, &attributes) != 0) return NoDevices("cannot read them", errno);
  Instructions instructions(info.xlated_prog_len / sizeof(bpf_insn));
  const uint32_t length = info.xlated_prog_len;
  info = {};
  info.xlated_prog_len = length;
  info.xlated_prog_insns = Address(instructions.data());
  attributes.info.info_len = sizeof info;
  if (Bpf(BPF_OBJ_GET_INFO_BY_FD, &attributes) != 0) return NoDevices("cannot read them", errno);
  const bool whole = info.xlated_prog_len == length && info.xlated_prog_insns != 0;
  if (!whole || info.nr_map_ids != 0 || instructions.empty()) {
    return Error{ErrorCode::kUnsupported,
                 "another program than the container's runtime decides on its devices: start it "
                 "with --device nvidia.com/gpu=all"};
  }
  return instructions;
}

Result<UniqueFd> LoadProgram(const Instructions& instructions) {
  constexpr char kLicense[] = "GPL";
  bpf_attr attributes{};
  attributes.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attributes.insn_cnt = static_cast<uint32_t>(instructions.size());
  attributes.insns = Address(instructions.data());
  attributes.license = Address(kLicense);
  UniqueFd program(Bpf(BPF_PROG_LOAD, &attributes));
  if (!program) return NoDevices("the kernel refuses the list", errno);
  return program;
}

struct Attached {
  std::vector<uint32_t> programs;  // their numbers
  uint32_t flags = 0;
};

Result<Attached> ProgramsOf(int cgroup, const std::string& folder) {
  Attached attached;
  attached.programs.resize(kMostPrograms);
  bpf_attr attributes{};
  attributes.query.target_fd = static_cast<uint32_t>(cgroup);
  attributes.query.attach_type = BPF_CGROUP_DEVICE;
  attributes.query.prog_ids = Address(attached.programs.data());
  attributes.query.prog_cnt = kMostPrograms;
  if (Bpf(BPF_PROG_QUERY, &attributes) != 0) return NoDevices(folder, errno);
  attached.programs.resize(attributes.query.prog_cnt);
  attached.flags = attributes.query.attach_flags;
  return attached;
}

// `now` takes the place of `was`.
bool Replace(int cgroup, int was, int now, uint32_t flags) {
  bpf_attr attributes{};
  attributes.target_fd = static_cast<uint32_t>(cgroup);
  attributes.attach_bpf_fd = static_cast<uint32_t>(now);
  attributes.attach_type = BPF_CGROUP_DEVICE;
  attributes.attach_flags = flags;
  // Without it a cgroup has one program, whose place each new one takes.
  if ((flags & BPF_F_ALLOW_MULTI) != 0) {
    attributes.attach_flags |= BPF_F_REPLACE;
    attributes.replace_bpf_fd = static_cast<uint32_t>(was);
  }
  return Bpf(BPF_PROG_ATTACH, &attributes) == 0;
}

// ---- Files of version 1

// Zero, or the error's number.
int WriteLine(const std::string& file, const std::string& line) {
  const UniqueFd opened(open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!opened) return errno;
  return write(opened.get(), line.data(), line.size()) < 0 ? errno : 0;
}

// Whether the cgroup's list has the line, or allows all.
bool Lists(const std::string& folder, const std::string& line) {
  std::ifstream list(folder + "/devices.list");
  for (std::string entry; std::getline(list, entry);) {
    if (entry == "a *:* rwm" || entry == line || entry == line + "m") return true;
  }
  return false;
}

}  // namespace

DeviceCgroup DeviceCgroupOf(const std::string& cgroups, const std::string& mounts,
                            const std::string& id) {
  DeviceCgroup found;
  // Where both versions are mounted, the controller belongs to the first.
  for (const int version : {1, 2}) {
    const std::string path = PathOf(cgroups, version), mount = MountOf(mounts, version);
    if (path.empty() || mount.empty()) continue;
    found.version = version;
    std::string folder = mount;
    bool own = false;
    for (const fs::path& part : fs::path(path).relative_path()) {
      folder += "/" + part.string();
      own = own || (!id.empty() && part.string().find(id) != std::string::npos);
      if (own) found.folders.push_back(folder);
    }
    break;
  }
  return found;
}

Result<DeviceGrant> DeviceGrant::Allow(const DeviceCgroup& cgroup,
                                       const std::vector<CharDevice>& devices) {
  DeviceGrant grant;
  for (const std::string& folder : cgroup.folders) {
    TRY(cgroup.version == 1 ? grant.AllowByFile(folder, devices)
                            : grant.AllowByProgram(folder, devices));
  }
  return grant;
}

DeviceGrant::DeviceGrant(DeviceGrant&& other) noexcept : done_(std::exchange(other.done_, {})) {}

DeviceGrant::~DeviceGrant() {
  for (; !done_.empty(); done_.pop_back()) {
    const Done& last = done_.back();
    if (last.cgroup) {
      Replace(last.cgroup.get(), last.now.get(), last.was.get(), last.flags);
    } else {
      WriteLine(last.file, last.line);
    }
  }
}

Status DeviceGrant::AllowByFile(const std::string& folder, const std::vector<CharDevice>& devices) {
  for (const CharDevice& device : devices) {
    const std::string line =
        "c " + std::to_string(device.major) + ":" + std::to_string(device.minor) + " rw";
    if (Lists(folder, line)) continue;
    const std::string file = folder + "/devices.allow";
    if (const int error = WriteLine(file, line); error != 0) return NoDevices(file, error);
    done_.push_back({folder + "/devices.deny", line, {}, {}, {}});
  }
  return {};
}

Status DeviceGrant::AllowByProgram(const std::string& folder,
                                   const std::vector<CharDevice>& devices) {
  const UniqueFd cgroup(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!cgroup) return NoDevices(folder, errno);
  ASSIGN_OR_RETURN(const Attached attached, ProgramsOf(cgroup.get(), folder));
  for (const uint32_t number : attached.programs) {
    bpf_attr attributes{};
    attributes.prog_id = number;
    Done step;
    step.was = UniqueFd(Bpf(BPF_PROG_GET_FD_BY_ID, &attributes));
    if (!step.was) return NoDevices("cannot read them", errno);
    Instructions program;
    for (const CharDevice& device : devices) AppendRule(&program, device);
    ASSIGN_OR_RETURN(const Instructions before, ReadProgram(step.was.get()));
    program.insert(program.end(), before.begin(), before.end());
    ASSIGN_OR_RETURN(step.now, LoadProgram(program));
    step.cgroup = UniqueFd(fcntl(cgroup.get(), F_DUPFD_CLOEXEC, 0));
    step.flags = attached.flags;
    if (!step.cgroup || !Replace(cgroup.get(), step.was.get(), step.now.get(), attached.flags)) {
      return NoDevices(folder, errno);
    }
    done_.push_back(std::move(step));
  }
  return {};
}

}  // namespace tandem::cli
