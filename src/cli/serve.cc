#include "src/cli/serve.h"

#include <filesystem>
#include <memory>
#include <system_error>

#include "src/cli/environment.h"
#include "src/cli/print.h"
#include "src/cli/show_commands.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kServe = "lib/tandem/tandem-serve";  // below <root>

int BecomeServe(const ServeOptions& options) {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return Fail(1, "cannot read /proc/self/exe: " + error.message());
  const Result<Program> program = ServeProgram(executable, options, OwnEnvironment());
  return Fail(1, program.ok() ? Become(*program).message : program.error().message);
}

}  // namespace

void AddServeOptions(CLI::App* command, ServeOptions* options) {
  command->add_option("--listen", options->listen, "Address and port; port 0: any that is free")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command
      ->add_option("--token-file", options->token_file,
                   "Clients need the token in this file; it is made if it does not exist")
      ->type_name("FILE");
  command->add_flag("--privacy", options->privacy,
                    "Hide programs, runs and processes of other users");
  command->add_flag("--json", options->json, "Print the address as one JSON object on one line");
  AddGpu(command, &options->gpu);
  command->footer(
      "It serves a page for browsers, the same data as JSON, and metrics for Prometheus. It reads\n"
      "what the daemon and the accounts say, and gives no orders. It asks the daemon at most once\n"
      "a second, and only while a client asks.\n"
      "Clients on this machine need no token. If ADDRESS can be reached from other machines,\n"
      "--token-file is required. The connection is not encrypted.\n"
      "docs/serve.md has the addresses and the metrics.\n"
      "\n"
      "Examples:\n"
      "  tandem serve\n"
      "  tandem serve --listen 0.0.0.0:9870 --token-file ~/.tandem-token --privacy\n"
      "  curl -s http://127.0.0.1:9870/api/v1/sessions | jq '.sessions[] | .user, .state'");
}

Result<Program> ServeProgram(const std::string& executable, const ServeOptions& options,
                             Environment environment) {
  const fs::path file = fs::path(executable).parent_path().parent_path() / kServe;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    return Error{ErrorCode::kNotFound,
                 file.string() + " is missing: this installation of Tandem is not complete"};
  }
  std::vector<std::string> words = {"tandem-serve", "--listen", options.listen};
  if (!options.token_file.empty()) {
    words.insert(words.end(), {"--token-file", options.token_file});
  }
  if (options.privacy) words.emplace_back("--privacy");
  if (options.json) words.emplace_back("--json");
  if (options.gpu.has_value()) words.insert(words.end(), {"--gpu", *options.gpu});
  return Program{file, std::move(words), std::move(environment)};
}

void AddServe(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app->add_subcommand("serve", "Serve a page, JSON and metrics over HTTP");
  AddServeOptions(command, options.get());
  command->callback([=] { *action = [=] { return BecomeServe(*options); }; });
}

}  // namespace tandem::cli
