#include "src/cli/containers/mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "src/base/unique_fd.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDetach = 2;  // MNT_DETACH: <sys/mount.h> and <linux/mount.h> exclude each other

Error Failed(const std::string& what, int error) {
  return {ErrorCode::kFailed, what + ": " + std::strerror(error)};
}

// A mount of its own that lies nowhere yet.
Result<UniqueFd> Detached(const cdi::Mount& mount) {
  constexpr unsigned kClone = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
  UniqueFd tree(static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, mount.host.c_str(), kClone)));
  if (!tree) return Failed("cannot mount " + mount.host, errno);
  struct stat facts {};
  const bool is_device = fstat(tree.get(), &facts) == 0 && S_ISCHR(facts.st_mode);
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_NOSUID | (is_device ? 0 : MOUNT_ATTR_NODEV) |
                        (mount.writable ? 0 : MOUNT_ATTR_RDONLY);
  if (syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes,
              sizeof attributes) != 0) {
    return Failed("cannot protect " + mount.host, errno);
  }
  return tree;
}

// The mount needs something of its own kind to cover.
Status MakeTarget(const cdi::Mount& mount, bool folder) {
  const fs::path target = mount.container;
  std::error_code error;
  fs::create_directories(folder ? target : target.parent_path(), error);
  if (!error && !folder && !fs::exists(target, error)) {
    const UniqueFd made(open(target.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    if (!made) error.assign(errno, std::generic_category());
  }
  if (!error) return {};
  return Error{ErrorCode::kFailed,
               "cannot make " + mount.container + " in the container: " + error.message()};
}

Status MoveAll(const std::vector<cdi::Mount>& mounts, const std::vector<UniqueFd>& trees,
               const std::vector<bool>& folders, size_t* moved) {
  for (size_t& i = *moved; i < mounts.size(); ++i) {
    TRY(MakeTarget(mounts[i], folders[i]));
    if (syscall(SYS_move_mount, trees[i].get(), "", AT_FDCWD, mounts[i].container.c_str(),
                MOVE_MOUNT_F_EMPTY_PATH) != 0) {
      return Failed("cannot mount at " + mounts[i].container + " in the container", errno);
    }
  }
  return {};
}

// In a process of its own, which enters the container's namespace for good.
Status MountFromInside(int pid, const std::vector<cdi::Mount>& mounts) {
  std::vector<UniqueFd> trees;
  std::vector<bool> folders;
  for (const cdi::Mount& mount : mounts) {
    ASSIGN_OR_RETURN(UniqueFd tree, Detached(mount));
    trees.push_back(std::move(tree));
    std::error_code error;
    folders.push_back(fs::is_directory(mount.host, error));
  }
  const std::string process = "/proc/" + std::to_string(pid);
  const UniqueFd space(open((process + "/ns/mnt").c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd root(open((process + "/root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!space || !root) return Failed("cannot look into " + process, errno);
  // The namespace's root need not be the container's: its links must not lead out of its own.
  if (setns(space.get(), CLONE_NEWNS) != 0 || fchdir(root.get()) != 0 || chroot(".") != 0) {
    return Failed("cannot enter the container", errno);
  }
  size_t moved = 0;
  const Status done = MoveAll(mounts, trees, folders, &moved);
  while (!done.ok() && moved-- > 0) {
    syscall(SYS_umount2, mounts[moved].container.c_str(), kDetach);
  }
  return done;
}

}  // namespace

Status MountIn(int pid, const std::vector<cdi::Mount>& mounts) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Failed("cannot make a pipe", errno);
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t child = fork();
  if (child < 0) return Failed("cannot start a process", errno);
  if (child == 0) {
    const Status done = MountFromInside(pid, mounts);
    const std::string why = done.ok() ? "" : done.error().message;
    // A pipe takes that much at once.
    const bool told =
        write(writer.get(), why.data(), why.size()) == static_cast<ssize_t>(why.size());
    _exit(done.ok() && told ? 0 : 1);
  }
  writer.Reset();
  std::string why(PIPE_BUF, '\0');
  const ssize_t length = read(reader.get(), why.data(), why.size());
  why.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Error{ErrorCode::kFailed, why.empty() ? "the process in the container ended" : why};
}

}  // namespace tandem::cli
