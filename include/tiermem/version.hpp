// The version, for the preprocessor. CMakeLists.txt reads it from here.
#pragma once

#define TIERMEM_VERSION_MAJOR 0
#define TIERMEM_VERSION_MINOR 2
#define TIERMEM_VERSION_PATCH 0
