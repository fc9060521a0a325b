#include "src/cli/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "src/base/unique_fd.h"

namespace tandem::cli {
namespace {

constexpr int kMaxInterpreters =
    5;  // one script may be another's interpreter; the kernel stops too
constexpr size_t kMaxScriptLine = 256;
constexpr size_t kMaxSegments = 4096;

bool IsRunnableFile(const std::string& file) {
  struct stat info;
  return stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(file.c_str(), X_OK) == 0;
}

Error NotRunnable(const std::string& name, const std::string& file) {
  struct stat info;
  if (stat(file.c_str(), &info) != 0) {
    return Error{ErrorCode::kNotFound, name + ": " + std::strerror(errno)};
  }
  if (S_ISDIR(info.st_mode)) return Error{ErrorCode::kRefused, name + " is a directory"};
  return Error{ErrorCode::kRefused, name + " is not executable"};
}

// Why the loader would ignore LD_PRELOAD because of who the program becomes.
std::optional<std::string> WhyPrivileged(const std::string& file, uid_t uid) {
  struct stat info;
  if (stat(file.c_str(), &info) != 0) return std::nullopt;
  if ((info.st_mode & S_ISUID) != 0) return file + " is set-uid";
  // Without the group's x the bit is one of file locking.
  const mode_t set_gid = S_ISGID | S_IXGRP;
  if ((info.st_mode & set_gid) == set_gid) return file + " is set-gid";
  if (uid != 0 && getxattr(file.c_str(), "security.capability", nullptr, 0) > 0) {
    return file + " has file capabilities";
  }
  return std::nullopt;
}

template <typename T>
bool ReadAt(int fd, uint64_t offset, T* value) {
  return pread(fd, value, sizeof(T), static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof(T));
}

bool IsElf(int fd) {
  std::array<char, SELFMAG> magic{};
  return ReadAt(fd, 0, &magic) && std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0;
}

// Of an ELF file of our own class and machine: does it name a dynamic loader?
std::optional<std::string> WhyElfNotShareable(const std::string& file, int fd) {
  Elf64_Ehdr header;
  if (!ReadAt(fd, 0, &header)) return std::nullopt;  // the kernel will refuse it
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return file + " is a 32-bit program";
  for (size_t i = 0; i < std::min<size_t>(header.e_phnum, kMaxSegments); ++i) {
    Elf64_Phdr segment;
    if (!ReadAt(fd, header.e_phoff + i * header.e_phentsize, &segment)) break;
    if (segment.p_type == PT_INTERP) return std::nullopt;
  }
  return file + " is statically linked";
}

// The words of a "#!" line.
std::vector<std::string> ScriptWords(int fd) {
  std::array<char, kMaxScriptLine> text{};
  const ssize_t size = pread(fd, text.data(), text.size(), 0);
  if (size < 2 || text[0] != '#' || text[1] != '!') return {};
  std::string line(text.data() + 2, static_cast<size_t>(size) - 2);
  line.resize(std::min(line.find('\n'), line.size()));
  std::istringstream words(line);
  std::vector<std::string> result;
  for (std::string word; words >> word;) result.push_back(word);
  return result;
}

// The program that interprets a script with these words; empty if there is none.
std::string Interpreter(const std::vector<std::string>& words, const std::string& path) {
  if (words.empty()) return "/bin/sh";  // what execvp and shells do
  if (std::filesystem::path(words[0]).filename() != "env") return words[0];
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i][0] == '-' || words[i].find('=') != std::string::npos) continue;
    Result<std::string> found = FindProgram(words[i], path);
    return found.ok() ? *found : "";
  }
  return words[0];
}

}  // namespace

Result<std::string> FindProgram(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) {
    if (IsRunnableFile(name)) return name;
    return NotRunnable(name, name);
  }
  std::string there;  // found, but not to be run
  std::istringstream folders(name.empty() ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (IsRunnableFile(file)) return file;
    if (there.empty() && access(file.c_str(), F_OK) == 0) there = file;
  }
  if (!there.empty()) return NotRunnable(there, there);
  return Error{ErrorCode::kNotFound, name + ": no such program in PATH"};
}

std::string ExecutedFile(const std::string& file, const std::string& path) {
  std::string current = file;
  for (int depth = 0; depth < kMaxInterpreters; ++depth) {
    const UniqueFd fd(open(current.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || IsElf(fd.get())) return current;  // it may be run but not read
    current = Interpreter(ScriptWords(fd.get()), path);
  }
  return "";
}

std::optional<std::string> WhyNotShareable(const std::string& file, const std::string& path,
                                           uid_t uid) {
  // The bits of a script mean nothing to the kernel, those of its interpreter do.
  const std::string executed = ExecutedFile(file, path);
  if (executed.empty()) return std::nullopt;
  if (auto why = WhyPrivileged(executed, uid)) return why;
  const UniqueFd fd(open(executed.c_str(), O_RDONLY | O_CLOEXEC));
  return fd ? WhyElfNotShareable(executed, fd.get()) : std::nullopt;
}

}  // namespace tandem::cli
