// Which of the instruction sets that the native extension was compiled for are used.
#pragma once

#include <string>
#include <vector>

namespace fastfeed {

// Names of those that this machine has, fastest first; the last one works everywhere.
std::vector<std::string> instruction_sets();
// For tests and the fuzzer: from now on all threads use the named one, or, if empty, the fastest. Throws
// std::invalid_argument for one that this machine does not have. Not while anything is being decoded or rendered.
void use_instruction_set(const std::string& name);

}  // namespace fastfeed
