// Files of an installation besides the programs: manual pages and shell completion. `tiermem
// completion` prints one for the user; the build calls the hidden `tiermem generate`.
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "cli/command.hpp"
#include "cli/completion.hpp"
#include "cli/json_file.hpp"
#include "cli/man_page.hpp"
#include "cli/option_facts.hpp"
#include "cli/values.hpp"

namespace tiermem::cli {
namespace {

/// Today, or SOURCE_DATE_EPOCH for reproducible builds.
std::string date_of_pages() {
  const char* const named = std::getenv("SOURCE_DATE_EPOCH");
  const std::time_t when = named != nullptr
                               ? static_cast<std::time_t>(std::strtoll(named, nullptr, 10))
                               : std::time(nullptr);
  std::tm day{};
  (void)gmtime_r(&when, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

std::string completion_for(const std::string& shell, const CLI::App& program) {
  return shell == "bash"  ? bash_completion(program)
         : shell == "zsh" ? zsh_completion(program)
                          : fish_completion(program);
}

/// Writes into share/ of an installation. Removes old pages, because a command may no longer exist.
int generate(const std::string& share, const CLI::App& program) {
  namespace fs = std::filesystem;
  const fs::path root(share);
  const std::string date = date_of_pages();
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "man/man1", error)) {
    if (entry.path().filename().string().starts_with("tiermem-")) {
      fs::remove(entry.path());
    }
  }
  const auto write = [&](const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    return write_text(path.string(), text);
  };
  Status status = write(root / "man/man1/tiermem.1", man_page(program, date));
  for (const CLI::App* const command : commands_of(program)) {
    if (status.ok()) {
      status = write(root / "man/man1" / (page_name(*command) + ".1"), man_page(*command, date));
    }
  }
  if (status.ok()) {
    status = write(root / "bash-completion/completions/tiermem", bash_completion(program));
  }
  if (status.ok()) {
    status = write(root / "zsh/site-functions/_tiermem", zsh_completion(program));
  }
  if (status.ok()) {
    status = write(root / "fish/vendor_completions.d/tiermem.fish", fish_completion(program));
  }
  return status.ok() ? kDone : complain(status);
}

}  // namespace

void add_completion(CLI::App& program, int& exit) {
  auto shell = std::make_shared<std::string>();
  Command* const command =
      add_command(program, "completion", "Print the completion of command lines for a shell");
  command->add_option("shell", *shell, "The shell.")
      ->type_name("SHELL")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  command->manual.description = {
      "An installed tiermem has these files where the shells look for them. This command is for a "
      "tiermem that is not installed, or is elsewhere."};
  command->manual.examples = {
      {"source <(tiermem completion bash)", "Complete command lines in this bash."},
      {"tiermem completion fish > ~/.config/fish/completions/tiermem.fish",
       "Complete command lines in every fish."}};
  command->callback([shell, &program, &exit] {
    fmt::print("{}", completion_for(*shell, program));
    exit = kDone;
  });
}

void add_generate(CLI::App& program, int& exit) {
  auto share = std::make_shared<std::string>();
  Command* const command =
      add_command(program, "generate", "Write manual pages and completion into a directory");
  command->group("");
  command->add_option("share", *share, "The directory.")->type_name(kFolder)->required();
  command->callback([share, &program, &exit] { exit = generate(*share, program); });
}

}  // namespace tiermem::cli
