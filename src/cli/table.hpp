// A table of text in aligned columns, at least two blanks apart. On a terminal with bold headings,
// and the last column wrapped to the width. Elsewhere each row is one line. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tiermem::cli {

class Table {
 public:
  enum class Align { left, right };

  struct Column {
    std::string heading;
    Align align = Align::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Missing cells are empty. Bytes that are no plain text are escaped (base/shown.hpp).
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  /// Without headings when all of them are empty. On a terminal the last column is wrapped,
  /// or stands below its row where little room is left; headings are bold where there are colours.
  std::string text(bool terminal, unsigned width) const { return text(terminal, terminal, width); }
  std::string text(bool terminal, bool colours, unsigned width) const;
  /// To stdout, as it deserves.
  void print() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A heading over what follows, bold on a terminal; a line of its own.
void print_title(std::string_view title);
/// A paragraph, wrapped on a terminal.
void print_text(std::string_view text);
/// Lines of at most `width` columns, broken at blanks; a longer word has a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);
/// Columns that the text takes on a terminal: code points, which is right for all that we print.
std::size_t display_width(std::string_view text);

}  // namespace tiermem::cli
