#include "server/web_page.h"

#include <cstddef>

// DEEPINFER_WEB_PAGE is the file's path, given by src/server/CMakeLists.txt.
asm(".pushsection .rodata\n"
    ".global deepinfer_web_page_begin\n"
    ".hidden deepinfer_web_page_begin\n"
    ".global deepinfer_web_page_end\n"
    ".hidden deepinfer_web_page_end\n"
    "deepinfer_web_page_begin:\n"
    ".incbin \"" DEEPINFER_WEB_PAGE
    "\"\n"
    "deepinfer_web_page_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
extern const char deepinfer_web_page_begin[];
extern const char deepinfer_web_page_end[];
}

namespace deepinfer {

std::string_view WebPage() {
  return {deepinfer_web_page_begin, static_cast<size_t>(deepinfer_web_page_end - deepinfer_web_page_begin)};
}

}  // namespace deepinfer
