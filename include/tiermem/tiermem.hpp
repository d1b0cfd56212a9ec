// The whole C++ interface of tiermem in one include.
#pragma once

#include "tiermem/context.hpp"
#include "tiermem/queue.hpp"
#include "tiermem/status.hpp"
#include "tiermem/store.hpp"
#include "tiermem/types.hpp"
#include "tiermem/version.hpp"
