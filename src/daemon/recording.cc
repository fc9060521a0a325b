#include "src/daemon/recording.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <memory>

#include "src/base/user_name.h"
#include "src/daemon/log.h"
#include "src/history/recorder.h"
#include "src/history/state_dir.h"

namespace tandem::daemon {
namespace {

constexpr int kEventFiles = 4;  // events.jsonl and three older ones
constexpr const char* kNowhere = "none";

// The file that `option` names, or `usual`; empty: none.
std::string FileOf(const std::string& option, const std::string& usual) {
  if (option == kNowhere) return "";
  return option.empty() ? usual : std::filesystem::absolute(option).string();
}

}  // namespace

void RecordHistory(const Options& options, service::ServiceConfig* config) {
  const bool everybody = config->shares_host_memory;
  if (options.events.empty() || options.accounts.empty()) {
    const Status made = history::MakeStateDir(everybody);
    if (!made.ok()) spdlog::warn("nothing can be recorded there: {}", made.error().message);
  }
  history::RecorderConfig recorder;
  recorder.note = &WarnFromThread;
  recorder.user_name = &UserNameOf;
  recorder.events.path = FileOf(options.events, history::EventsFile());
  recorder.events.everybody_reads = everybody;
  recorder.events.older_files = kEventFiles - 1;
  recorder.events.most_bytes = options.events_size.count / kEventFiles;
  recorder.accounts_file = FileOf(options.accounts, history::AccountsFile());
  recorder.accounts.everybody = everybody;
  config->events_file = recorder.events.path;
  config->accounts_file = recorder.accounts_file;
  if (config->events_file.empty() && config->accounts_file.empty()) return;
  config->record = [shared = std::make_shared<history::Recorder>(std::move(recorder))](
                       history::Record record) { shared->Put(std::move(record)); };
}

}  // namespace tandem::daemon
