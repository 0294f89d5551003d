#include "system/instruction_sets.h"

#include <hwy/targets.h>

#include <stdexcept>

namespace fastfeed {
namespace {

std::vector<int64_t> targets() {
  static const std::vector<int64_t> all = hwy::SupportedAndGeneratedTargets();  // asked before any was chosen
  return all;
}

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const int64_t target : targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

void use_instruction_set(const std::string& name) {
  int64_t chosen = 0;
  for (const int64_t target : targets())
    if (name == hwy::TargetName(target)) chosen = target;
  if (!chosen && !name.empty()) throw std::invalid_argument("no instruction set of this machine: " + name);
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace fastfeed
