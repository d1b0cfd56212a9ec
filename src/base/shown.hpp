// Text of the program's, or of the machine's, as one line of a message may show it: labels, paths,
// names of processes and devices. Bytes that would end the line, move a terminal's cursor, reorder
// the text or are not UTF-8 become escapes: \n, \t, \r, \x1b, \xff, \u{2028}. Nothing else changes,
// so a text that is shown twice is shown as it was after the first time.
//
// Threads: any. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tiermem {

/// The length of the UTF-8 character at the start of `text`, which is not empty. 0 when there is
/// none: also for surrogates, overlong forms and values above U+10FFFF.
std::size_t character_length(std::string_view text) noexcept;
/// `text` without the part of a character that a cut left at its end.
std::string_view whole_characters(std::string_view text) noexcept;

/// Whether shown() changes nothing.
bool is_plain(std::string_view text) noexcept;
/// Writes the escaped text into `to`, at most `room` bytes and never a part of an escape or of a
/// character. Allocates nothing. Returns the bytes written; there is no terminating zero.
std::size_t show_into(char* to, std::size_t room, std::string_view text) noexcept;
/// The escaped text.
std::string shown(std::string_view text);

}  // namespace tiermem
