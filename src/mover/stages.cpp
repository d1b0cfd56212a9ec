#include "mover/stages.hpp"

namespace tiermem {

const char* kind_name(TransferKind kind) {
  constexpr const char* kNames[] = {"idle",         "promote", "promote_parts", "demote",
                                    "demote_parts", "evict",   "empty",         "show",
                                    "relocate",     "destage", "gather"};
  return kNames[static_cast<unsigned>(kind)];
}

const char* stage_name(Stage stage) {
  constexpr const char* kNames[] = {"start",  "staging",   "prepare", "read",    "land",
                                    "recopy", "abandoned", "parked",  "measure", "slot",
                                    "copy",   "hash",      "whole",   "write",   "unmap",
                                    "drop",   "withdraw",  "remap",   "show",    "relocate"};
  return kNames[static_cast<unsigned>(stage)];
}

}  // namespace tiermem
