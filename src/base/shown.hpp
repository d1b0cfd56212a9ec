// Conversion of text from the program or the machine into one line of a message: labels, paths,
// names of processes and devices. Bytes that would end the line, move a terminal's cursor or
// reorder the text, and bytes that are not UTF-8, become escapes: \n, \t, \r, \x1b, \xff, \u{2028}.
// Nothing else changes, so a second conversion changes nothing.
//
// Threads: any. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tiermem {

/// Returns the length of the UTF-8 character at the start of `text`, which is not empty. Returns 0
/// if there is none, and for surrogates, overlong forms and values above U+10FFFF.
std::size_t character_length(std::string_view text) noexcept;
/// Returns `text` without an incomplete character that a cut left at its end.
std::string_view whole_characters(std::string_view text) noexcept;

/// Returns whether shown() would change nothing.
bool is_plain(std::string_view text) noexcept;
/// Writes the escaped text into `to`, up to `room` bytes, and never a part of an escape or of a
/// character. Returns the number of bytes written; there is no terminating zero. Allocates nothing.
std::size_t show_into(char* to, std::size_t room, std::string_view text) noexcept;
/// Returns the escaped text.
std::string shown(std::string_view text);

}  // namespace tiermem
