// A table of text in aligned columns, at least two blanks apart. On a terminal the headings are
// bold, and the last column is wrapped to the width. Elsewhere each row is one line. One thread.
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

  /// Missing cells are empty. Bytes that are not plain text are escaped (base/shown.hpp).
  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  /// Omits the headings if all are empty. On a terminal the last column is wrapped, or is placed
  /// below its row if there is little room; headings are bold if colours are on.
  std::string text(bool terminal, unsigned width) const { return text(terminal, terminal, width); }
  std::string text(bool terminal, bool colours, unsigned width) const;
  /// Prints to stdout, in the form for a terminal or for programs.
  void print() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A heading on its own line, bold on a terminal.
void print_title(std::string_view title);
/// A paragraph, wrapped on a terminal.
void print_text(std::string_view text);
/// Lines of at most `width` columns, broken at blanks; a longer word gets its own line.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);
/// The columns that the text takes on a terminal: its code points, which is correct for tiermem's
/// own texts.
std::size_t display_width(std::string_view text);

}  // namespace tiermem::cli
