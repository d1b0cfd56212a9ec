// librsvg renders the picture, and cairo writes it as PNG. Both are loaded when a PNG is requested,
// because they bring forty libraries that no other command needs. The functions used are declared
// here as in their C interfaces.
#include "cli/picture.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "cli/json_file.hpp"

namespace tiermem::cli {
namespace {

constexpr const char* kLibrary = "librsvg-2.so.2";
// Letters of 11 pixels are also readable on screens with small pixels.
constexpr double kScale = 2;
constexpr int kOpaque = 1;                  // CAIRO_FORMAT_RGB24.
constexpr int kSuccess = 0, kNoMemory = 1;  // CAIRO_STATUS_…

struct Error {  // GError
  std::uint32_t domain;
  int code;
  char* message;
};
struct Rectangle {  // RsvgRectangle
  double x, y, width, height;
};
using Write = int (*)(void* to, const unsigned char* bytes, unsigned length);

/// The functions used, from librsvg and the libraries that it loads.
struct Library {
  void* (*rsvg_handle_new_from_data)(const unsigned char* data, std::size_t size, Error** error);
  int (*rsvg_handle_get_intrinsic_size_in_pixels)(void* handle, double* width, double* height);
  int (*rsvg_handle_render_document)(void* handle, void* cairo, const Rectangle* viewport,
                                     Error** error);
  void (*g_object_unref)(void* object);
  void (*g_error_free)(Error* error);
  void* (*cairo_image_surface_create)(int format, int width, int height);
  void (*cairo_surface_destroy)(void* surface);
  void* (*cairo_create)(void* surface);
  void (*cairo_destroy)(void* cairo);
  void (*cairo_set_source_rgb)(void* cairo, double red, double green, double blue);
  void (*cairo_paint)(void* cairo);
  int (*cairo_surface_write_to_png_stream)(void* surface, Write write, void* to);
  const char* (*cairo_status_to_string)(int status);
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

/// Never closed: the libraries that it loads cannot be unloaded.
Result<Library> open_library() {
  void* const opened = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return fail(Code::unavailable,
                "PNG: {:.100}; install librsvg2-2, or name a file that ends with .svg",
                ::dlerror());
  }
  Library library{};
#define TIERMEM_FIND(name) find(opened, #name, library.name)
  const bool all = TIERMEM_FIND(rsvg_handle_new_from_data) &&
                   TIERMEM_FIND(rsvg_handle_get_intrinsic_size_in_pixels) &&
                   TIERMEM_FIND(rsvg_handle_render_document) && TIERMEM_FIND(g_object_unref) &&
                   TIERMEM_FIND(g_error_free) && TIERMEM_FIND(cairo_image_surface_create) &&
                   TIERMEM_FIND(cairo_surface_destroy) && TIERMEM_FIND(cairo_create) &&
                   TIERMEM_FIND(cairo_destroy) && TIERMEM_FIND(cairo_set_source_rgb) &&
                   TIERMEM_FIND(cairo_paint) && TIERMEM_FIND(cairo_surface_write_to_png_stream) &&
                   TIERMEM_FIND(cairo_status_to_string);
#undef TIERMEM_FIND
  return all ? Result<Library>(library)
             : fail(Code::unavailable,
                    "PNG: librsvg here is older than 2.52; upgrade it, or name a file that ends "
                    "with .svg");
}

using Owned = std::unique_ptr<void, void (*)(void*)>;

Status failed(const Library& library, const char* what, Error* error) {
  Status status = fail(Code::internal, "PNG: librsvg cannot {} the picture: {:.160}", what,
                       error != nullptr ? error->message : "without a reason");
  if (error != nullptr) {
    library.g_error_free(error);
  }
  return status;
}

Result<std::string> rendered(const Library& library, const std::string& svg) {
  Error* error = nullptr;
  const Owned picture(library.rsvg_handle_new_from_data(
                          reinterpret_cast<const unsigned char*>(svg.data()), svg.size(), &error),
                      library.g_object_unref);
  if (picture == nullptr) {
    return failed(library, "read", error);
  }
  double width = 0, height = 0;
  (void)library.rsvg_handle_get_intrinsic_size_in_pixels(picture.get(), &width, &height);
  const Rectangle area{0, 0, width * kScale, height * kScale};
  const Owned surface(library.cairo_image_surface_create(kOpaque, static_cast<int>(area.width),
                                                         static_cast<int>(area.height)),
                      library.cairo_surface_destroy);
  const Owned pen(library.cairo_create(surface.get()), library.cairo_destroy);
  library.cairo_set_source_rgb(pen.get(), 1, 1, 1);
  library.cairo_paint(pen.get());
  if (library.rsvg_handle_render_document(picture.get(), pen.get(), &area, &error) == 0) {
    return failed(library, "draw", error);
  }
  std::string png;
  const int written = library.cairo_surface_write_to_png_stream(
      surface.get(),
      [](void* to, const unsigned char* bytes, unsigned length) {
        static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(bytes), length);
        return kSuccess;
      },
      &png);
  return written == kSuccess
             ? Result<std::string>(std::move(png))
             : fail(written == kNoMemory ? Code::no_capacity : Code::internal,
                    "PNG: cairo cannot write {} x {} pixels: {}; name a file that ends with .svg",
                    area.width, area.height, library.cairo_status_to_string(written));
}

bool wants_png(const std::string& path) {
  return path.ends_with(".png");
}

}  // namespace

Status check_picture(const std::string& path) {
  if (!path.empty() && path != "-" && !wants_png(path) && !path.ends_with(".svg")) {
    return fail(
        Code::invalid_argument,
        "--plot {:.160}: tiermem draws SVG and PNG only; name a file that ends in .svg or .png",
        path);
  }
  return wants_png(path) ? open_library().status() : Status();
}

Status check_outputs(const char* command, const std::string& json, const std::string& plot) {
  const auto named = [&](Status status) {
    return status.ok() ? std::move(status)
                       : fail(status.code(), "{}: {}", command, status.message());
  };
  if (json == "-" && plot == "-") {
    return fail(Code::invalid_argument,
                "{}: --json and --plot cannot both go to standard output; name a file for one",
                command);
  }
  if (Status can = named(check_json_output("--json", json)); !can.ok()) {
    return can;
  }
  if (Status can = named(check_picture(plot)); !can.ok()) {
    return can;
  }
  return named(check_output("--plot", plot));
}

Status write_picture(const std::string& path, const std::string& svg) {
  if (!wants_png(path)) {
    return write_text(path, svg);
  }
  const Result<Library> library = open_library();
  if (!library.ok()) {
    return library.status().clone();
  }
  const Result<std::string> png = rendered(*library, svg);
  return png.ok() ? write_text(path, *png) : png.status().clone();
}

}  // namespace tiermem::cli
